//! A thousand runs in a row and fifty at once leave nothing behind and have the right verdicts.
//!
//! In a separate test binary, so that nothing else runs while it counts.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use sandbox_testing::command::{fixture, groups, processes, program, python};
use sandbox_testing::eventually;

/// Everything on the host that a run could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    processes: usize,
    groups: Vec<PathBuf>,
    mounts: usize,
    files: BTreeSet<PathBuf>,
    descriptors: usize,
}

fn traces() -> Traces {
    let files = ["/tmp", "/dev/shm", "/run", "/var/tmp"]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("sandbox"))
        .collect();
    Traces {
        processes: processes().iter().filter(|(_, _, name, _)| name.starts_with("sandbox-")).count(),
        groups: groups(""),
        mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        files,
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
    }
}

#[test]
fn a_thousand_runs_in_a_row_and_fifty_at_once_leave_nothing() {
    fixture();
    let before = traces();
    // An emulated machine is some thirty times slower and runs fewer.
    let runs = std::env::var("SANDBOX_TEST_RUNS").map_or(1000, |runs| runs.parse().unwrap());
    for n in 0..runs {
        let result = program(&["exit", &(n % 7).to_string()], &[]);
        assert_eq!(result["exit_code"], n % 7, "run {n}: {result:#}");
        let verdict = if n % 7 == 0 { "ok" } else { "runtime_error" };
        assert_eq!(result["verdict"], verdict, "run {n}");
    }

    let threads: Vec<_> = (0..50)
        .map(|n| {
            std::thread::spawn(move || match n % 5 {
                0 => (python(&format!("print({n})"), &["-t", "60s"])["verdict"].clone(), "ok"),
                1 => (python("import time; time.sleep(99)", &["-t", "1s"])["verdict"].clone(), "timeout"),
                2 => (program(&["memory", "100"], &["-m", "32m", "-t", "60s"])["verdict"].clone(), "memory_limit"),
                3 => (python("1/0", &["-t", "60s"])["verdict"].clone(), "runtime_error"),
                _ => (program(&["threads", "99"], &["--pids", "9", "-t", "60s"])["verdict"].clone(), "process_limit"),
            })
        })
        .collect();
    for (n, thread) in threads.into_iter().enumerate() {
        let (verdict, expected) = thread.join().unwrap();
        assert_eq!(verdict, expected, "run {n} of fifty");
    }
    // A keeper is still shutting down for a moment after its command has ended.
    eventually("nothing is left", || traces() == before);
}
