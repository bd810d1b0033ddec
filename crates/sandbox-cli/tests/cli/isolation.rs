//! What a program in a cell can and cannot see and do. The attack suite complements these tests.

use sandbox_testing::command::{program, python, run};
use sandbox_testing::needs;

fn stdout(code: &str) -> String {
    let result = python(code, &[]);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    result["stdout"].as_str().unwrap().trim().to_owned()
}

#[test]
fn every_layer_is_active_as_root() {
    if !needs::root() {
        return;
    }
    let result = python("print(1)", &[]);
    let layers: Vec<_> = result["isolation"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
    assert_eq!(
        layers,
        ["user", "pid", "mount", "net", "ipc", "uts", "cgroup", "seccomp", "landlock", "memory", "pids", "cpu"]
    );
}

#[test]
fn programs_run_unprivileged() {
    let code = "
import os
print(os.getuid(), os.geteuid(), os.getgid(), os.getgroups())
for line in open('/proc/self/status'):
    if line.startswith(('Cap', 'NoNewPrivs', 'Seccomp:')): print(*line.split())
";
    let expected = "1000 1000 1000 [1000]\nCapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n\
                    CapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2";
    let seen = stdout(code).replace("[]", "[1000]");
    assert_eq!(seen, expected);
}

/// A call with three arguments leaves in the fourth what happens to be there.
#[test]
fn only_files_that_are_created_cannot_be_set_id() {
    let code = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*words): return 'fails' if libc.syscall(*words) < 0 else 'works'
OPENAT, FCHMOD, CWD = {'x86_64': (257, 91), 'aarch64': (56, 52)}[os.uname().machine] + (-100,)
print(syscall(OPENAT, CWD, b'/etc/passwd', os.O_RDONLY, 0o6755), syscall(OPENAT, CWD, b'new', os.O_CREAT | os.O_WRONLY, 0o755))
if os.uname().machine == 'x86_64': print(syscall(2, b'/etc/passwd', os.O_RDONLY, 0o4755))
else: print('works')
print(syscall(OPENAT, CWD, b'other', os.O_CREAT | os.O_WRONLY, 0o4755), syscall(OPENAT, CWD, b'.', os.O_TMPFILE | os.O_RDWR, 0o2755))
print(syscall(FCHMOD, os.open('new', os.O_RDONLY), 0o4755), os.path.exists('other'))
";
    assert_eq!(stdout(code), "works works\nworks\nfails fails\nfails False");
}

#[test]
fn programs_cannot_raise_their_priority() {
    let code = "
import os, resource as r
print([r.getrlimit(n) for n in (r.RLIMIT_CORE, r.RLIMIT_NICE, r.RLIMIT_RTPRIO)], open('/proc/self/oom_score_adj').read().strip())
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); print('real time')
except PermissionError: print('refused')
";
    assert_eq!(stdout(code), "[(1, 1), (0, 0), (0, 0)] 1000\nrefused");
}

#[test]
fn only_the_standard_streams_are_open() {
    assert_eq!(
        stdout("import os; fds = os.listdir('/proc/self/fd'); print(sorted(map(int, fds))[:3], len(fds))"),
        "[0, 1, 2] 4"
    );
}

#[test]
fn other_processes_are_invisible() {
    assert_eq!(stdout("import os; print([p for p in os.listdir('/proc') if p.isdigit()])"), "['2']");
    assert_eq!(stdout("import os; print(os.getpid(), os.getppid(), os.uname().nodename)"), "2 1 sandbox");
    assert_eq!(stdout("import os\ntry: os.kill(1, 9)\nexcept PermissionError: print('refused')"), "refused");
}

#[test]
fn the_cell_has_a_private_root_file_system() {
    assert_eq!(
        stdout("import os; print(sorted(os.listdir('/')))"),
        "['bin', 'dev', 'etc', 'home', 'lib', 'lib64', 'mnt', 'opt', 'proc', 'run', 'sandbox', 'sbin', 'tmp', 'usr', 'var']"
    );
    for path in
        ["/etc/shadow", "/root", "/sys", "/boot", "/var/log", "/proc/1/environ", "/etc/machine-id", "/run/docker.sock"]
    {
        assert_eq!(stdout(&format!("import os; print(os.path.exists('{path}'))")), "False", "{path}");
    }
    assert_eq!(
        stdout("print(open('/proc/cmdline').read() + open('/proc/kallsyms').read() + open('/proc/locks').read())"),
        ""
    );
}

#[test]
fn system_directories_are_read_only() {
    let code = "
import os
for path in ['/x', '/usr/x', '/etc/passwd', '/usr/bin/env', '/proc/sys/kernel/core_pattern', '/proc/self/oom_score_adj', '/opt/x', '/dev/x']:
    try: open(path, 'a'); print('WRITABLE', path)
    except OSError: pass
print('end')
";
    assert_eq!(stdout(code), "end");
}

#[test]
fn dangerous_calls_are_refused() {
    let code = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
calls = dict(mount=165, umount2=166, pivot_root=155, chroot=161, unshare=272, setns=308, ptrace=101, bpf=321, perf_event_open=298,
             keyctl=250, io_uring_setup=425, userfaultfd=323, init_module=175, kexec_load=246, reboot=169, swapon=167,
             settimeofday=164, open_by_handle_at=304, process_vm_readv=310, open_tree=428, fsopen=430, mount_setattr=442,
             clone3=435, add_key=248, syslog=103, acct=163, iopl=172)
for name, number in calls.items():
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    if result != -1 or ctypes.get_errno() not in (1, 38): print('ALLOWED', name, result, ctypes.get_errno())
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000):
    if libc.unshare(flag) != -1: print('ALLOWED unshare', hex(flag))
import socket
for family in (40, 16, 17, 38, 29):
    try: socket.socket(family, socket.SOCK_RAW, 3 if family == 16 else 0); print('ALLOWED', family)
    except OSError: pass
print('end')
";
    assert_eq!(stdout(code), "end");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_system_call_is_fatal() {
    let result = program(&["int80"], &[]);
    assert_eq!((&result["signal"], &result["stdout"]), (&"SIGSYS".into(), &"".into()));
}

#[test]
fn there_is_no_network_by_default() {
    let code = "
import socket, errno
def attempt(address):
    try: socket.create_connection(address, timeout=2); return 'connected'
    except OSError as error: return errno.errorcode.get(error.errno, type(error).__name__)
print(attempt(('127.0.0.1', 9)), attempt(('192.0.2.1', 80)))
";
    assert_eq!(stdout(code), "ENETUNREACH ENETUNREACH");
    let result = python(code, &["--network", "localhost"]);
    assert_eq!(result["result"], "ECONNREFUSED ENETUNREACH");
}

#[test]
fn localhost_mode_has_a_private_loopback() {
    let code = "
import socket, threading
server = socket.create_server(('127.0.0.1', 8080))
threading.Thread(target=lambda: server.accept()[0].sendall(b'hello'), daemon=True).start()
print(socket.create_connection(('localhost', 8080)).recv(10).decode())
";
    let result = python(code, &["--network", "localhost", "--timeout", "60s"]);
    assert_eq!(result["result"], "hello", "{result:#}");
}

#[test]
fn requiring_a_layer_that_works_changes_nothing() {
    if !needs::root() {
        return;
    }
    assert_eq!(python("print(1)", &["--require", "all"])["verdict"], "ok");
}

#[test]
fn any_program_can_run_in_a_cell() {
    let output = run(&["exec", "--quiet", "--", "sh", "-c", "echo $0 $1; pwd; exit 5", "a", "b"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a b\n/sandbox\n");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(program(&["hello"], &[])["stdout"], "hello\n");
}

#[test]
fn two_runs_share_nothing() {
    let write = "
for place in ('/sandbox', '/tmp', '/dev/shm', '/home/sandbox'):
    open(f'{place}/left', 'w').write('secret')
from multiprocessing import shared_memory
shared_memory.SharedMemory('left-behind', create=True, size=10)
";
    assert_eq!(python(write, &[])["verdict"], "ok");
    let look = "
import os
found = [os.path.join(p, n) for p in ('/sandbox', '/tmp', '/dev/shm', '/home/sandbox') for n in os.listdir(p)]
print([f for f in found if f != '/sandbox/main.py'])
";
    assert_eq!(stdout(look), "[]");
}
