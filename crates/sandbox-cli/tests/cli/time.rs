//! Deadlines hold whatever a program does, and interrupting the command ends the program too.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use sandbox_testing::command::{groups, processes, python, result, sandbox};
use sandbox_testing::eventually;

/// Runs code that tries to outlive its deadline, which leaves enough time to start on a slow host.
fn outlive(code: &str) -> serde_json::Value {
    let began = Instant::now();
    // Enough processes that no attempt reaches that limit first.
    let result = python(code, &["--timeout", "3s", "--pids", "10000"]);
    // 3 s, 200 ms of grace, and room for a busy host; each attempt would last a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "took {:?}", began.elapsed());
    assert_eq!(result["verdict"], "timeout", "{result:#}");
    assert_eq!(result["limit"]["kind"], "wall_time");
    result
}

#[test]
fn sleeping() {
    let result = outlive("import time; print('begun'); time.sleep(60)");
    assert_eq!(result["signal"], "SIGTERM");
    assert_eq!(result["stdout"], "begun\n", "earlier output is not lost");
}

#[test]
fn ignoring_every_signal_does_not_help() {
    let code = "
import signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
print('deaf')
while True: time.sleep(60)
";
    let result = outlive(code);
    assert_eq!(result["signal"], "SIGKILL");
    assert_eq!(result["stdout"], "deaf\n");
}

#[test]
fn stopping_the_process_group_does_not_help() {
    assert_eq!(outlive("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")["signal"], "SIGTERM");
    outlive("import os, signal; os.kill(0, signal.SIGSTOP)");
    outlive("import os, signal, time\nif os.fork() == 0: time.sleep(60)\nos.kill(-1, signal.SIGSTOP)\ntime.sleep(60)");
}

#[test]
fn leaving_the_session_does_not_help() {
    let code = "
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: time.sleep(60)
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True: time.sleep(60)
";
    outlive(code);
}

#[test]
fn closing_all_standard_streams_does_not_help() {
    outlive("import os, time\nfor fd in (0, 1, 2): os.close(fd)\ntime.sleep(60)");
}

#[test]
fn forking_all_the_time_does_not_help() {
    let code = "
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0: os._exit(0)
";
    outlive(code);
}

#[test]
fn a_program_can_exit_in_the_grace_period() {
    let code = "
import signal, sys, time
def end(*_):
    print('saved'); sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(60)
";
    // A busy host may not let the program run in the 200 ms that it has. Then it ends as it would without them.
    let saved = (0..5).any(|_| {
        let result = outlive(code);
        let saved = result["exit_code"] == 0 && result["stdout"] == "saved\n";
        assert!(saved || result["signal"] == "SIGKILL", "{result:#}");
        saved
    });
    assert!(saved, "it never could");
}

#[test]
fn a_daemon_neither_outlives_nor_delays_the_program() {
    let code = "
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
print('done')
";
    let began = Instant::now();
    let result = python(code, &["--timeout", "50s"]);
    assert!(began.elapsed() < Duration::from_secs(40));
    assert_eq!((&result["verdict"], &result["stdout"]), (&"ok".into(), &"done\n".into()));
}

fn send(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

/// Starts a run, sends the command a signal once the program runs, and returns its output and its keeper's id.
fn interrupt(signal: Signal) -> (std::process::Output, u32) {
    // In one write, so that no output is pending when the signal arrives.
    let code = "import os, time\nos.write(1, b'running\\n')\ntime.sleep(60)";
    let args = ["--lang", "python", "--timeout", "1m", "--format", "stream-json", "--code", code];
    let mut child = sandbox(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("running") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the program never ran");
    }
    let keeper = processes().iter().find(|(_, parent, name, _)| *parent == id && name == "sandbox-keeper").map(|p| p.0);
    send(id, signal);
    let mut rest = vec![];
    stdout.read_to_end(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    (std::process::Output { stdout: rest, ..output }, keeper.unwrap())
}

/// Nothing of a keeper is left: no process below it, no cgroup.
fn assert_gone(keeper: u32) {
    eventually("the keeper and its cells are gone", || {
        let all = processes();
        !all.iter().any(|(pid, parent, ..)| *pid == keeper || *parent == keeper)
            && groups(&format!("-{keeper}-")).is_empty()
    });
}

#[test]
fn an_interrupted_command_reports_it_and_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (output, keeper) = interrupt(signal);
        assert_eq!(output.status.code(), Some(code), "{signal:?}");
        let last = output.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
        let event: serde_json::Value = serde_json::from_slice(last).unwrap();
        assert_eq!(event["result"]["verdict"], "cancelled");
        assert_eq!(event["result"]["stdout"], "running\n", "earlier output is not lost");
        assert_gone(keeper);
    }
}

#[test]
fn an_interruption_is_reported_at_any_moment() {
    use std::os::unix::process::ExitStatusExt;
    // From before the command can catch the signal, through every step of creating the cell, to the running program.
    for n in 0..60 {
        let mut child = sandbox(&["exec", "--json", "-t", "20s", "--", "sleep", "30"])
            // The signal may arrive while a coverage profile is incomplete and unreadable.
            .env("LLVM_PROFILE_FILE", "/dev/null")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(n * 200));
        // Not SIGINT, which a command that a shell starts in the background ignores until it blocks it.
        send(child.id(), Signal::TERM);
        let status = child.wait().unwrap();
        assert!(status.code() == Some(143) || status.signal() == Some(15), "after {n}: {status:?}");
    }
}

#[test]
fn a_killed_command_leaves_nothing() {
    let (output, keeper) = interrupt(Signal::KILL);
    assert_eq!(output.status.code(), None);
    assert_gone(keeper);
}

#[test]
fn the_cells_of_a_killed_keeper_end() {
    let code = "import time\ntime.sleep(60)";
    let child = sandbox(&["--lang", "python", "--timeout", "1m", "--json", "--code", code])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let mut found = None;
    eventually("a program", || {
        let all = processes();
        let keeper = all.iter().find(|(_, parent, name, _)| *parent == id && name == "sandbox-keeper");
        let Some(keeper) = keeper.map(|p| p.0) else { return false };
        let Some(init) = all.iter().find(|(_, parent, ..)| *parent == keeper).map(|p| p.0) else { return false };
        let program = all.iter().find(|(_, parent, _, line)| *parent == init && line.contains("main.py"));
        found = program.map(|p| (keeper, init, p.0));
        found.is_some()
    });
    let (keeper, init, program) = found.unwrap();
    send(keeper, Signal::KILL);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(result(&output)["verdict"], "internal_error");
    eventually("init and program are gone", || !processes().iter().any(|(pid, ..)| *pid == init || *pid == program));
    // No process is left to remove the cgroups; the next keeper does, once they are old enough. Tests do not wait.
    for group in groups(&format!("-{keeper}-")) {
        eventually("the group is empty", || remove_group(&group) || !group.exists());
    }
}

/// Removes a cgroup and its descendants, if they contain no process.
fn remove_group(group: &std::path::Path) -> bool {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_group(&entry.path());
        }
    }
    std::fs::remove_dir(group).is_ok()
}
