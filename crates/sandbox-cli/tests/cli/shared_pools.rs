//! Resources that the kernel counts per user are charged to the cell's user, never to the user that started the
//! sandbox.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use sandbox_testing::command::sandbox;
use sandbox_testing::needs;

/// Takes as many message queues, timers and inotify instances as possible, reports their number, and holds them until
/// its input ends.
const TAKE: &str = "
import ctypes, os, sys
c = ctypes.CDLL(None, use_errno=True)
def count(take, most):
    n = 0
    while n < most and take(n) >= 0: n += 1
    return n
queues = count(lambda n: c.mq_open(b'/q%d' % n, os.O_CREAT | os.O_RDWR, 0o600, None), 64)
timers = count(lambda n: c.timer_create(1, None, ctypes.byref(ctypes.c_void_p())), 100_000)
watches = count(lambda n: c.inotify_init(), 200)
print(queues, timers, watches, flush=True)
sys.stdin.read()
";

/// Reports what another process of the same user gets meanwhile.
const CHECK: &str = "
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
name = b'/sandbox-test-%d' % os.getpid()
queue = c.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
c.mq_unlink(name)
timer = c.timer_create(1, None, ctypes.byref(ctypes.c_void_p()))
print(queue >= 0, timer >= 0, c.inotify_init() >= 0)
";

#[test]
fn limits_of_the_host_user_are_not_used_up() {
    if !needs::root() {
        return;
    }
    let mut cell =
        sandbox(&["--lang", "python", "--code", TAKE, "--stdin", "-", "--timeout", "60s", "--open-files", "512"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut out = BufReader::new(cell.stdout.take().unwrap());
    let mut taken = String::new();
    out.read_line(&mut taken).unwrap();
    let check = Command::new("python3").args(["-c", CHECK]).output().unwrap();
    drop(cell.stdin.take());
    let mut errors = String::new();
    cell.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(cell.wait().unwrap().success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&check.stdout).trim(), "True True True", "{taken} were taken");
    let taken: Vec<u64> = taken.split_whitespace().map(|n| n.parse().unwrap()).collect();
    // Landlock refuses queues; without it, they belong to the cell.
    assert!(taken[0] <= 10, "message queues: {taken:?}");
    assert!((1..=1024).contains(&taken[1]), "timers: {taken:?}");
    assert_eq!(taken[2], 0, "inotify instances: {taken:?}");
}

#[test]
fn a_crash_does_not_run_the_hosts_crash_handler() {
    // With a limit of 1 the kernel aborts the dump before it starts a handler; a program cannot change it to 0.
    let code = "
import resource as r
r.setrlimit(r.RLIMIT_CORE, (0, 0))
print(r.getrlimit(r.RLIMIT_CORE))
";
    let result = sandbox_testing::command::python(code, &[]);
    assert_eq!(result["stdout"], "(1, 1)\n", "{result:#}");
}

/// The number of negative dentries.
fn names_not_found() -> i64 {
    let state = std::fs::read_to_string("/proc/sys/fs/dentry-state").unwrap();
    state.split_whitespace().nth(4).unwrap().parse().unwrap()
}

#[test]
fn negative_dentries_are_freed_with_the_cell() {
    if !needs::root() {
        return;
    }
    let before = names_not_found();
    let code = "
import os, time
# Names that no earlier run has looked up.
new = time.time_ns()
for i in range(100_000): os.access(f'/usr/lib/{new}-{i:0180}', os.F_OK)
print(open('/proc/sys/fs/dentry-state').read().split()[4])
";
    let result = sandbox_testing::command::python(code, &["--timeout", "60s"]);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    let inside: i64 = result["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(inside - before > 60_000, "the kernel remembered {} names", inside - before);
    sandbox_testing::eventually("the names are forgotten", || names_not_found() - before < 30_000);
}
