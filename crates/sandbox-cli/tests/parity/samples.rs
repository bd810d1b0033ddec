//! Programs whose results must be the same with every backend.

/// A program and its expected outcome.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) language: &'static str,
    pub(crate) code: &'static str,
    pub(crate) flags: &'static [&'static str],
    pub(crate) stdin: &'static str,
    pub(crate) verdict: &'static str,
    /// The expected limit, if any.
    pub(crate) limit: Option<&'static str>,
    /// Whether output is compared too: how much a program writes before it is killed is not deterministic.
    pub(crate) output: bool,
    /// Whether it can run in an existing container, which has no access to programs that were compiled on the host.
    pub(crate) shared: bool,
}

const PLAIN: Sample = Sample {
    name: "",
    language: "python",
    code: "",
    flags: &[],
    stdin: "",
    verdict: "ok",
    limit: None,
    output: true,
    shared: true,
};

pub(crate) const SAMPLES: &[Sample] = &[
    Sample { name: "output and last value", code: "print('hello')\n6 * 7", ..PLAIN },
    Sample {
        name: "exit code and standard error",
        code: "import sys; sys.stderr.write('oh\\n'); sys.exit(3)",
        verdict: "runtime_error",
        ..PLAIN
    },
    Sample { name: "exception", code: "1 / 0", verdict: "runtime_error", ..PLAIN },
    Sample {
        name: "killed by a signal",
        code: "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        verdict: "runtime_error",
        ..PLAIN
    },
    Sample { name: "standard input", code: "print(len(input()))", stdin: "some text\n", ..PLAIN },
    Sample {
        name: "arguments and variables",
        code: "import os, sys; print(sys.argv[1:], os.environ['K'])",
        flags: &["--env", "K=V", "--", "a b", "c"],
        ..PLAIN
    },
    Sample {
        name: "files",
        code: "import os; os.mkdir('d'); open('d/x', 'w').write('text'); os.symlink('x', 'd/l'); print(os.listdir('.'))",
        ..PLAIN
    },
    Sample { name: "a megabyte of output", code: "print('x' * 900_000)", ..PLAIN },
    Sample {
        name: "time",
        code: "import time; print('begun', flush=True); time.sleep(60)",
        flags: &["--timeout", "1s"],
        verdict: "timeout",
        limit: Some("wall_time"),
        ..PLAIN
    },
    Sample {
        name: "time, and signals ignored",
        code: "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        flags: &["--timeout", "1s"],
        verdict: "timeout",
        limit: Some("wall_time"),
        ..PLAIN
    },
    Sample {
        name: "CPU time",
        code: "while True: pass",
        flags: &["--cpu-time", "500ms", "--timeout", "20s"],
        verdict: "timeout",
        limit: Some("cpu_time"),
        output: false,
        ..PLAIN
    },
    Sample {
        name: "memory",
        code: "x = []\nwhile True: x.append(bytearray(1 << 20))",
        flags: &["--memory", "64m", "--timeout", "20s"],
        verdict: "memory_limit",
        limit: Some("memory"),
        output: false,
        ..PLAIN
    },
    Sample {
        name: "output",
        code: "while True: print('x' * 1000)",
        flags: &["--timeout", "20s"],
        verdict: "output_limit",
        limit: Some("output"),
        output: false,
        ..PLAIN
    },
    Sample {
        name: "disk",
        code: "f = open('x', 'wb')\nwhile True: f.write(b'x' * 100_000)",
        flags: &["--disk", "8m", "--timeout", "20s"],
        verdict: "disk_limit",
        limit: Some("disk"),
        output: false,
        ..PLAIN
    },
    Sample {
        name: "processes",
        code: "import os, time\nfor _ in range(50):\n    if os.fork() == 0: time.sleep(5); os._exit(0)",
        flags: &["--pids", "8", "--timeout", "20s"],
        verdict: "process_limit",
        limit: Some("processes"),
        output: false,
        ..PLAIN
    },
    Sample {
        name: "processes that it leaves running",
        code: "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True); print('left')",
        ..PLAIN
    },
    Sample {
        name: "no network",
        code: "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError: print('refused')",
        ..PLAIN
    },
    Sample {
        name: "the host is read-only",
        code: "import os\nfor p in ('/x', '/usr/x', '/etc/passwd', '/proc/sys/kernel/hostname'):\n    try: open(p, 'w'); print(p)\n    except OSError: pass",
        ..PLAIN
    },
    Sample {
        name: "no mount, no namespace, no trace",
        code: "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.unshare(0x10000000), libc.mount(b'x', b'/tmp', b'tmpfs', 0, None), libc.ptrace(16, os.getppid(), 0, 0))",
        ..PLAIN
    },
    Sample {
        name: "a shell",
        language: "bash",
        code: "cd \"$TMPDIR\" && echo $((6 * 7)) > x && cat x; exit 4",
        verdict: "runtime_error",
        ..PLAIN
    },
    Sample {
        name: "a compiled program",
        language: "c",
        code: "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 0; }",
        shared: false,
        ..PLAIN
    },
    Sample {
        name: "a program that does not compile",
        language: "c",
        code: "int main(void) { return x; }",
        verdict: "compile_error",
        shared: false,
        ..PLAIN
    },
];
