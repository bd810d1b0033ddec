//! Reduced isolation: as in a container that refuses namespaces and mounts, as root and as an ordinary user.

use std::path::Path;
use std::process::Output;

use sandbox_testing::command::{in_container, processes, result, run};
use sandbox_testing::{eventually, needs};
use serde_json::{Value, json};

/// The users of the container. Root can give each cell a dedicated user; another user cannot.
const USERS: [&str; 2] = ["root", "user"];

/// A directory that both users can use, for all files of the test.
fn data() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    dir
}

fn reduced(user: &str, data: &Path, args: &[&str]) -> Output {
    in_container(user, data, &[&["--isolation", "reduced", "--json"], args].concat()).output().unwrap()
}

/// Runs code and returns the result. Nothing of it may be left.
fn code(user: &str, language: &str, code: &str, flags: &[&str]) -> Value {
    let data = data();
    let output = reduced(user, data.path(), &[&["--lang", language, "--code", code], flags].concat());
    let left: Vec<_> = std::fs::read_dir(data.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("sandbox-run-cells")), "{left:?}");
    result(&output)
}

#[test]
fn reduced_isolation_has_to_be_enabled() {
    if !needs::root() {
        return;
    }
    for user in USERS {
        let output = in_container(user, data().path(), &["--lang", "python", "--code", "1"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.contains("'user' is required and not available"), "{text}");
        assert!(text.contains("--isolation reduced (SANDBOX_ISOLATION=reduced)"), "{text}");
        // A required layer is not given up for it.
        let output = reduced(user, data().path(), &["--require", "net", "--lang", "python", "--code", "1"]);
        assert_eq!(output.status.code(), Some(125));
    }
}

#[test]
fn full_isolation_is_used_where_it_is_available() {
    let output = run(&["--isolation", "reduced", "--json", "--lang", "python", "--code", "print(1)"]);
    let layers = result(&output)["isolation"].as_array().unwrap().len();
    assert!(layers >= 9, "{}", result(&output));
    let terminal = run(&["exec", "--isolation", "reduced", "--tty", "--quiet", "--", "tty"]);
    assert_eq!(terminal.stdout, b"/dev/pts/0\r\n");
}

#[test]
fn languages_run() {
    if !needs::root() {
        return;
    }
    let programs = [
        ("python", "print('hello 1')"),
        ("javascript", "console.log('hello', 1); 6 * 7"),
        ("c", "#include <stdio.h>\nint main() { puts(\"hello 1\"); }"),
        ("bash", "echo hello 1"),
    ];
    for user in USERS {
        for (language, program) in programs {
            let result = code(user, language, program, &["--timeout", "20s"]);
            assert_eq!(result["verdict"], "ok", "{user} {result}");
            assert!(result["stdout"].as_str().unwrap().starts_with("hello"), "{user} {result}");
            assert_eq!(result["isolation"], json!(["seccomp", "landlock"]), "{user} {language}");
        }
        let result = code(user, "python", "6 * 7", &["--timeout", "20s"]);
        assert_eq!(result["result"], "42", "{user} {result}");
    }
}

#[test]
fn limits_hold() {
    if !needs::root() {
        return;
    }
    let fork = "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n        time.sleep(20)\ntime.sleep(20)";
    let disk = "for n in range(100):\n    open(str(n), 'wb').write(bytes(4 << 20))";
    let files = "import os\nos.chdir(os.environ['TMPDIR'])\nfor n in range(4000):\n    open(str(n), 'w')";
    // Ends before the next sample, and leaves the files.
    let leave =
        "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(20)\n        os._exit(0)";
    let cases: [(&str, &str, &[&str]); 9] = [
        ("timeout", "while True: pass", &["--timeout", "400ms"]),
        ("timeout", "while True: pass", &["--cpu-time", "400ms", "--timeout", "20s"]),
        ("memory_limit", "held = bytearray(400 << 20)\nimport time\ntime.sleep(9)", &["--timeout", "10s"]),
        ("process_limit", fork, &["--pids", "10", "--timeout", "10s"]),
        ("process_limit", leave, &["--pids", "10", "--timeout", "10s"]),
        ("output_limit", "while True: print('y' * 1000)", &["--timeout", "10s"]),
        ("disk_limit", disk, &["--disk", "16m", "--timeout", "20s"]),
        ("disk_limit", files, &["--inodes", "1000", "--timeout", "20s"]),
        ("disk_limit", "open('x', 'wb').write(bytes(3 << 20))", &["--file-size", "1m", "--timeout", "10s"]),
    ];
    for user in USERS {
        for (verdict, program, flags) in cases {
            let result = code(user, "python", program, flags);
            assert_eq!(result["verdict"], verdict, "{user} {program}: {result}");
        }
    }
}

#[test]
fn volumes_have_separate_sizes() {
    if !needs::root() {
        return;
    }
    for user in USERS {
        let data = data();
        let write = |volume: &str| {
            let script = "test ! -f \"$D/1\" || echo kept; for n in 1 2 3; do head -c 1m /dev/zero > \"$D/$n\"; done; \
                          sleep 0.1";
            let flags = ["--volume", volume, "--env", "D=/data", "--disk", "1m", "--lang", "bash", "--code", script];
            result(&reduced(user, data.path(), &flags))
        };
        assert_eq!(write("small:/data:2m")["verdict"], "disk_limit", "{user}");
        assert_eq!(write("large:/data:4m")["stdout"], "", "{user}");
        assert_eq!(write("large:/data:4m")["stdout"], "kept\n", "{user}");
    }
}

#[test]
fn input_and_output_files_work() {
    if !needs::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.txt");
    std::fs::write(&input, "from outside").unwrap();
    let program = "import os\ntext = open('/sandbox/in.txt'.replace('/sandbox', os.getcwd())).read()\n\
                   os.makedirs('a/b')\nopen('a/b/out', 'w').write(text.upper())\n\
                   os.symlink('/etc/passwd', 'link')\nos.symlink('/etc', 'a/dir')\nos.mkfifo('pipe')\n\
                   open('closed', 'w').write('x'); os.close(os.open('closed2', os.O_CREAT | os.O_WRONLY, 0))";
    for user in USERS {
        let result = code(user, "python", program, &["--input", input.to_str().unwrap()]);
        assert_eq!(result["verdict"], "ok", "{user} {result}");
        let files = result["files"].as_object().unwrap();
        assert_eq!(files["a/b/out"]["content"], "FROM OUTSIDE", "{user} {result}");
        for absent in ["link", "a/dir/passwd", "pipe", "in.txt"] {
            assert!(!files.contains_key(absent), "{user} {absent}");
        }
    }
}

#[test]
fn paths_mean_the_same_as_with_full_isolation() {
    if !needs::root() {
        return;
    }
    let script = "echo x > \"$1\" && cat \"$2/f\" && test \"$1\" -ef f && test \"$TMPDIR\" -ef \"$T\" && echo same";
    for user in USERS {
        let flags = ["--env", "T=/tmp", "--", "/sandbox/f", "/sandbox"];
        let result = code(user, "bash", script, &flags);
        assert_eq!(result["stdout"], "x\nsame\n", "{user} {result}");
    }
}

#[test]
fn programs_reach_only_their_directories() {
    if !needs::root() {
        return;
    }
    let bystander = data();
    let file = bystander.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    for path in [bystander.path(), &file] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let program = format!(
        "import os, socket, ctypes\n\
         def attempt(name, act, *arguments):\n    \
             try:\n        act(*arguments)\n        print('REACHED', name)\n    \
             except OSError: pass\n\
         parent = os.getppid()\n\
         attempt('read', open, '{0}')\nattempt('write', open, '{0}', 'a')\nattempt('make', open, '{0}2', 'w')\n\
         attempt('list', os.listdir, '{1}')\nattempt('remove', os.unlink, '{0}')\nattempt('cut', os.truncate, '{0}', 0)\n\
         attempt('move', os.rename, '{0}', 'mine')\nattempt('link', os.link, '{0}', 'mine')\n\
         attempt('passwd', open, '/etc/passwd')\nattempt('up', os.listdir, '..')\n\
         attempt('signal', os.kill, parent, 0)\nattempt('environ', open, f'/proc/{{parent}}/environ')\n\
         attempt('cmdline', open, f'/proc/{{parent}}/cmdline')\nattempt('processes', os.listdir, '/proc')\n\
         own = os.getpid()\n\
         for name in 'net/tcp', 'net/unix', 'net/fib_trie', 'mountinfo', 'mounts', 'cgroup', f'task/{{own}}/net/unix':\n    \
             attempt(name, open, f'/proc/{{own}}/{{name}}')\n\
         attempt('unix', socket.socket, socket.AF_UNIX)\nattempt('inet', socket.socket, socket.AF_INET)\n\
         attempt('datagrams', socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         attempt('shm', open, '/dev/shm/x', 'w')\nattempt('root', os.chroot, '.')\nattempt('tty', open, '/dev/tty')\n\
         libc = ctypes.CDLL(None)\n\
         if libc.shmget(77, 4096, 0o1666) >= 0: print('REACHED shmget')\n\
         if libc.ptrace(16, parent, 0, 0) >= 0: print('REACHED ptrace')\n\
         print(len(os.listdir('/proc/self/fd')) > 2, len(open('/proc/self/maps').read()) > 10)\n\
         print(open('/proc/self/status').read().count('\\n') > 10, len(open('/proc/meminfo').read()) > 10)\n",
        file.display(),
        bystander.path().display()
    );
    for user in USERS {
        let result = code(user, "python", &program, &[]);
        assert_eq!(result["stdout"], "True True\nTrue True\n", "{user} {result}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
    // Without a dedicated user, the program owns files outside; it must not be able to change their modes or content.
    std::os::unix::fs::chown(&file, Some(4322), Some(4322)).unwrap();
    let program =
        format!("import os\ntry: os.chmod('{0}', 0)\nexcept PermissionError: print('refused')", file.display());
    assert_eq!(code("user", "python", &program, &[])["stdout"], "refused\n");
}

#[test]
fn nothing_outlives_a_run() {
    if !needs::root() {
        return;
    }
    let daemons = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                   for _ in range(5):\n    \
                       if os.fork() == 0:\n        os.setsid()\n        \
                           if os.fork() == 0: os.execlp('sleep', 'sleep', 'NAP')\n        os._exit(0)\n";
    let lives = |nap: &str| processes().iter().any(|(.., line)| line.trim() == format!("sleep {nap}"));
    for (user, nap) in USERS.into_iter().zip(["7781", "7782"]) {
        let result = code(user, "python", &daemons.replace("NAP", nap), &["--timeout", "10s"]);
        assert_eq!(result["verdict"], "ok", "{result}");
        assert!(!lives(nap));
        // The same if the command is killed, and every process has to notice that itself. A helper of the keeper removes
        // that many files.
        let data = data();
        let files = "for n in range(300): open(str(n), 'w').close()\n";
        let program = format!("{files}{}\ntime.sleep(30)", daemons.replace("NAP", nap));
        let args = ["--isolation", "reduced", "--timeout", "40s", "--lang", "python", "--code", &program];
        let mut child = in_container(user, data.path(), &args).spawn().unwrap();
        eventually("the daemons run", || lives(nap));
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("the daemons are gone", || !lives(nap));
        let cells = || std::fs::read_dir(data.path()).unwrap().flatten().map(|entry| entry.file_name());
        eventually("the directory is gone", || {
            !cells().any(|name| name.to_string_lossy().starts_with("sandbox-run-cells"))
        });
    }
}

#[test]
fn nothing_outlives_a_keeper() {
    if !needs::root() {
        return;
    }
    let data = data();
    let script = "setsid sleep 7783 & sleep 7783";
    let args = ["--isolation", "reduced", "--timeout", "40s", "--lang", "bash", "--code", script];
    let mut child = in_container("user", data.path(), &args).spawn().unwrap();
    let lives = || processes().iter().any(|(.., line)| line.trim() == "sleep 7783");
    eventually("the programs run", lives);
    let all = processes();
    let keeper = all.iter().find(|(_, parent, name, _)| *parent == child.id() && name == "sandbox-keeper").unwrap().0;
    let killed = std::process::Command::new("kill").args(["-KILL", &keeper.to_string()]).status().unwrap();
    assert!(killed.success());
    child.wait().unwrap();
    eventually("the programs are gone", || !lives());
}

#[test]
fn unsupported_requests_are_refused() {
    if !needs::root() {
        return;
    }
    for user in USERS {
        let data = data();
        let refused = |args: &[&str], why: &str| {
            let output = reduced(user, data.path(), args);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && text.contains(why), "{user} {args:?}: {text}");
        };
        refused(&["--network", "localhost", "--lang", "bash", "--code", "true"], "there is no network namespace");
        refused(&["--tty", "--lang", "bash", "--code", "true"], "a terminal needs a mount namespace");
        refused(&["--cpus", "0.5", "--lang", "bash", "--code", "true"], "isolation layer 'cpu' is required");
    }
}

#[test]
fn doctor_explains_reduced_isolation() {
    if !needs::root() {
        return;
    }
    for user in USERS {
        let data = data();
        let doctor = |isolation: &str, args: &[&str]| {
            let mut command = in_container(user, data.path(), &[&["doctor"], args].concat());
            command.env("SANDBOX_ISOLATION", isolation).output().unwrap()
        };
        let output = doctor("full", &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains("With --isolation reduced"), "{text}");
        assert!(text.contains("✓ landlock") && text.contains("✗ pid"), "{text}");
        let output = doctor("reduced", &["--json"]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{value}");
        assert_eq!((&value["policy_met"], &value["namespaces"]), (&json!(true), &json!(false)));
    }
}
