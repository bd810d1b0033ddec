//! The reported usage of a run matches its actual usage.

use sandbox_testing::command::{program, python, result, run};

fn number(result: &serde_json::Value, name: &str) -> f64 {
    result["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name}: {result:#}"))
}

#[test]
fn memory_is_measured_within_five_percent() {
    for megabytes in [50_u32, 100, 200] {
        let result = program(&["memory", &megabytes.to_string()], &["--memory", "512m"]);
        let (used, wanted) = (number(&result, "memory_peak"), f64::from(megabytes) * 1_048_576.0);
        assert!((wanted * 0.95..wanted * 1.05).contains(&used), "{megabytes} MiB were counted as {used} bytes");
        assert_eq!(result["memory_used"], result["metrics"]["memory_peak"]);
    }
}

#[test]
fn time_and_cpu_time_are_measured() {
    let spun = program(&["spin", "1"], &["--timeout", "2s"]);
    let (wall, cpu) = (number(&spun, "wall_time"), number(&spun, "cpu_time"));
    assert!(wall >= 2.0, "{wall}");
    // On a busy host a spinning program may have to wait, but never gets more than one CPU.
    assert!(cpu > 0.0 && cpu < wall * 1.1, "CPU {cpu} in {wall}");
    assert!(number(&spun, "cpu_user") > number(&spun, "cpu_system"));
    let slept = result(&run(&["exec", "--json", "--timeout", "20s", "--", "sleep", "2"]));
    let (wall, cpu) = (number(&slept, "wall_time"), number(&slept, "cpu_time"));
    assert!(wall > 2.0 && cpu < wall - 1.5, "CPU {cpu} in {wall}");
    let sum = number(&slept, "cpu_user") + number(&slept, "cpu_system");
    assert!((sum - number(&slept, "cpu_time")).abs() < 1e-5);
}

#[test]
fn bytes_read_and_written_are_counted() {
    let code = "
data = b'x' * (10 << 20)
open('f', 'wb').write(data)
for _ in range(2): open('f', 'rb').read()
";
    let result = python(code, &[]);
    let (read, written) = (number(&result, "io_read"), number(&result, "io_write"));
    let mib = 1_048_576.0;
    assert!((10.0 * mib..10.5 * mib).contains(&written), "written {written}");
    assert!((20.0 * mib..25.0 * mib).contains(&read), "read {read}");
}

#[test]
fn the_usage_of_children_counts() {
    let code = "
import os
for _ in range(3):
    if os.fork() == 0:
        end = os.times().user + 0.15
        while os.times().user < end: pass
        open(f'/tmp/{os.getpid()}', 'wb').write(b'x' * (1 << 20))
        os._exit(0)
for _ in range(3): os.wait()
";
    let result = python(code, &["--timeout", "20s"]);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    assert!(number(&result, "cpu_time") > 0.4, "{result:#}");
    assert!(number(&result, "io_write") > 3.0 * 1_048_576.0);
    assert!((4.0..=5.0).contains(&number(&result, "processes_peak")));
}

#[test]
fn phases_add_up_to_the_total() {
    let result = python("print(1)", &[]);
    let phases = &result["metrics"]["phases"];
    assert_eq!(phases["run"], result["metrics"]["wall_time"]);
    assert!(phases["prepare"].as_f64().unwrap() > 0.0);
    assert_eq!((&phases["queue"], &phases["compile"]), (&0.0.into(), &0.0.into()));
}
