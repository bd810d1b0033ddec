//! Every limit is enforced, has a verdict, and is reported with its value.

use sandbox_testing::command::{program, python, result, run};
use sandbox_testing::needs;
use serde_json::Value;

fn assert_limit(result: &Value, verdict: &str, kind: &str) {
    assert_eq!(result["verdict"], verdict, "{result:#}");
    assert_eq!(result["limit"]["kind"], kind, "{result:#}");
    let (cap, used) = (result["limit"]["cap"].as_f64().unwrap(), result["limit"]["used"].as_f64().unwrap());
    assert!(used >= cap * 0.99, "used {used} of {cap}");
    assert_eq!(result["success"], false);
    assert_eq!(result["status"], "error");
    assert!(result["error"].as_str().is_some_and(|error| !error.is_empty()));
}

#[test]
fn the_memory_of_one_process_is_limited() {
    let result = program(&["memory", "200"], &["--memory", "64m"]);
    assert_limit(&result, "memory_limit", "memory");
    assert_eq!(result["limit"]["cap"], 64 << 20);
    assert_eq!(result["exit_code"], Value::Null);
    assert_eq!(result["signal"], "SIGKILL");
}

#[test]
fn the_memory_of_many_processes_is_limited_together() {
    // Sixteen processes with 16 MiB each, none of which is large. The parent survives and would exit after a minute.
    let result = program(&["memory-in-children", "16", "16"], &["--memory", "64m", "--timeout", "5m"]);
    assert_limit(&result, "memory_limit", "memory");
    assert_eq!(
        (&result["exit_code"], &result["signal"]),
        (&Value::Null, &"SIGKILL".into()),
        "it did not exit by itself"
    );
}

#[test]
fn memory_includes_files_in_the_writable_directories() {
    let code = "open('/tmp/x', 'wb').write(b'x' * (60 << 20)); bytearray(60 << 20)";
    assert_limit(&python(code, &["--memory", "96m"]), "memory_limit", "memory");
}

#[test]
fn a_fork_bomb_is_stopped() {
    let result = program(&["fork-bomb"], &["--pids", "20", "--timeout", "1s"]);
    assert_limit(&result, "process_limit", "processes");
    assert_eq!(result["limit"]["cap"], 20);
}

#[test]
fn a_thread_bomb_is_stopped() {
    let result = program(&["threads", "500"], &["--pids", "30"]);
    assert_limit(&result, "process_limit", "processes");
    assert_eq!(result["metrics"]["processes_peak"], 30);
}

#[test]
fn as_many_processes_as_allowed_can_run() {
    let result = program(&["threads", "29"], &["--pids", "30"]);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    assert_eq!(result["metrics"]["processes_peak"], 30);
}

#[test]
fn disk_usage_is_limited_across_all_directories() {
    for place in ["/sandbox", "/tmp", "/dev/shm", "/home/sandbox", "/var/tmp"] {
        let code = format!("open('{place}/x', 'wb').write(b'x' * (20 << 20))");
        let result = python(&code, &["--disk", "8m"]);
        assert_limit(&result, "disk_limit", "disk");
        assert_eq!(result["limit"]["cap"], 8 << 20, "{place}");
    }
}

#[test]
fn disk_inodes() {
    let result = python("for i in range(1000): open(str(i), 'w').close()", &["--inodes", "100"]);
    assert_limit(&result, "disk_limit", "inodes");
    assert_eq!(result["limit"]["used"], 100);
}

#[test]
fn only_the_cells_directories_are_writable() {
    let code = "
import os
for top, dirs, files in os.walk('/'):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ('/proc', '/usr')]
    if os.access(top, os.W_OK): print(top)
";
    let result = python(code, &["--timeout", "60s"]);
    let mut places: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    places.sort_unstable();
    assert_eq!(places, ["/dev/shm", "/home/sandbox", "/run/result", "/sandbox", "/tmp"]);
}

#[test]
fn a_program_that_handles_a_full_disk_succeeds() {
    let code = "
import os
try:
    open('x', 'wb').write(b'x' * (20 << 20))
except OSError as error:
    print(error.errno)
";
    let result = python(code, &["--disk", "8m"]);
    assert_eq!((&result["verdict"], &result["result"], &result["limit"]), (&"ok".into(), &"28".into(), &Value::Null));
}

#[test]
fn the_output_of_each_stream_is_limited() {
    for stream in ["stdout", "stderr"] {
        let code = format!("import sys\nwhile True: sys.{stream}.write('x' * 1000)");
        let result = python(&code, &["--output-limit", "64k", "--timeout", "1m"]);
        assert_limit(&result, "output_limit", "output");
        assert_eq!(result[stream].as_str().unwrap().len(), 64 << 10);
        assert_eq!(result[format!("{stream}_truncated")], true);
    }
}

#[test]
fn output_up_to_the_limit_is_accepted() {
    let result =
        python("import sys; sys.stdout.write('x' * 65536); sys.stderr.write('y' * 65536)", &["--output-limit", "64k"]);
    assert_eq!(result["verdict"], "ok");
    assert_eq!((&result["stdout_truncated"], &result["stderr_truncated"]), (&false.into(), &false.into()));
}

#[test]
fn open_files() {
    let result = python("files = [open('/dev/null') for _ in range(1000)]", &["--open-files", "50"]);
    assert_eq!(result["verdict"], "runtime_error");
    assert_eq!(result["limit"]["kind"], "open_files");
    assert_eq!(result["limit"]["cap"], 50);
    let counted = python(
        "import os\ntry:\n while True: last = os.open('/dev/null', 0)\nexcept OSError: print(last)",
        &["--open-files", "50"],
    );
    assert_eq!(counted["result"], "49", "the highest descriptor is one below the limit");
}

#[test]
fn stack() {
    let code = "import resource; resource.getrlimit(resource.RLIMIT_STACK)[0]";
    assert_eq!(python(code, &[])["result"], (8 << 20).to_string());
    assert_eq!(python(code, &["--stack", "1m"])["result"], (1 << 20).to_string());
    let raised = "import resource as r; r.setrlimit(r.RLIMIT_STACK, (1 << 26, -1)); r.getrlimit(r.RLIMIT_STACK)[0]";
    assert_eq!(python(raised, &[])["result"], (1 << 26).to_string(), "a program may raise it");
    // A stack that may grow beyond the memory limit does not.
    let deep = "int down(int n) { volatile char page[65536]; for (int at = 0; at < 65536; at += 4096) page[at] = 1; return n ? down(n - 1) + page[0] : 0; }";
    let deep = |megabytes: u32| format!("{deep}\nint main(void) {{ return down(16 * {megabytes}) < 0; }}");
    let c = |megabytes: u32, flags: &[&str]| {
        let code = deep(megabytes);
        result(&run(&[&["--json", "--timeout", "20s", "--lang", "c", "--code", &code], flags].concat()))
    };
    let overflow = c(32, &[]);
    assert_eq!((&overflow["verdict"], &overflow["signal"]), (&"runtime_error".into(), &"SIGSEGV".into()));
    assert_eq!(c(32, &["--stack", "64m"])["verdict"], "ok");
    assert_eq!(c(128, &["--stack", "1g", "--memory", "64m"])["verdict"], "memory_limit");
}

#[test]
fn file_size() {
    let code = "open('x', 'wb').write(b'x' * (4 << 20))";
    let result = python(code, &["--file-size", "1m"]);
    assert_limit(&result, "disk_limit", "file_size");
    let signalled = python(
        &format!("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); {code}"),
        &["--file-size", "1m"],
    );
    assert_limit(&signalled, "disk_limit", "file_size");
    assert_eq!(signalled["signal"], "SIGXFSZ");
}

#[test]
fn the_cpu_time_of_one_and_of_many_threads_is_limited() {
    for threads in ["1", "8"] {
        let result = program(&["spin", threads], &["--cpu-time", "300ms", "--cpus", "2", "--timeout", "20s"]);
        assert_limit(&result, "timeout", "cpu_time");
        // Without the limit it would be twenty and forty seconds. A busy host checks late.
        assert!((0.3..10.0).contains(&result["metrics"]["cpu_time"].as_f64().unwrap()), "{result:#}");
    }
}

#[test]
fn sleeping_uses_no_cpu_time() {
    // It is nearly nothing even where starting a program is slow.
    let result = result(&run(&["exec", "--json", "--cpu-time", "1s", "--timeout", "20s", "--", "sleep", "1.5"]));
    assert_eq!(result["verdict"], "ok", "{result:#}");
}

#[test]
fn the_cpu_share_is_enforced() {
    if !needs::root() {
        return;
    }
    // Half a CPU in any number of threads; less if the host is busy.
    let result = program(&["spin", "4"], &["--cpus", "0.5", "--timeout", "2s"]);
    let time = |name: &str| result["metrics"][name].as_f64().unwrap();
    let share = time("cpu_time") / time("wall_time");
    assert!(share > 0.0 && share < 0.75, "{share} of a CPU");
}

#[test]
fn many_spinning_threads_with_a_small_cpu_share_end_at_the_deadline() {
    let result = program(&["spin", "60"], &["--cpus", "0.1", "--timeout", "500ms"]);
    assert_eq!(result["verdict"], "timeout");
}

#[test]
fn the_operators_caps_and_defaults_apply() {
    let run = |name: &str, value: &str, flags: &[&str]| {
        let mut args = vec!["--lang", "python", "--json", "--code", "print(1)"];
        args.extend_from_slice(flags);
        sandbox_testing::command::sandbox(&args).env(name, value).output().unwrap()
    };
    let refused = run("SANDBOX_MAX_MEMORY", "128m", &["--memory", "1g"]);
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("memory limit 1 GiB is above the maximum of 128 MiB (SANDBOX_MAX_MEMORY)"), "{text}");
    let slow = run("SANDBOX_TIMEOUT", "1ms", &[]);
    assert_eq!(slow.status.code(), Some(124));
    let wrong = run("SANDBOX_TIMEOUT", "soon", &[]);
    assert_eq!(wrong.status.code(), Some(2));
}
