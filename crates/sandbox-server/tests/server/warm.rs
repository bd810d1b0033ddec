//! Warm starts: a run in a cell that was ready, with an interpreter that was warm, ends exactly as a cold one does.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Server;
use sandbox_testing::eventually;

/// A server that keeps everything ready, and one that keeps nothing.
struct Pair {
    warm: Server,
    cold: Server,
}

impl Pair {
    fn start() -> Self {
        Self { warm: Server::start(&[]), cold: Server::start(&["--cold"]) }
    }

    /// Runs a request both ways and compares. `start` is how the warm one has to get its cell.
    fn compare(&self, name: &str, start: &str, request: &Value) -> Value {
        let (_, cold) = self.cold.post(request);
        assert_eq!(cold["metrics"]["start"], "cold", "{name}: {cold:#}");
        // Another run may just have taken what was ready.
        for _ in 0..200 {
            let (_, warm) = self.warm.post(request);
            if warm["metrics"]["start"] != start {
                std::thread::sleep(std::time::Duration::from_millis(50));
                continue;
            }
            assert_eq!(essence(&warm), essence(&cold), "{name}");
            return warm;
        }
        panic!("{name}: never started {start}");
    }
}

/// A result without what is measured, which differs from run to run.
fn essence(result: &Value) -> Value {
    let mut essence = result.clone();
    let strip = |map: &mut Map<String, Value>, names: &[&str]| {
        for name in names {
            map.remove(*name);
        }
    };
    let map = essence.as_object_mut().unwrap();
    strip(map, &["metrics", "execution_time", "memory_used", "error"]);
    // In words it has the measured time in it.
    if result["limit"].is_null() {
        map.insert("error".to_owned(), result["error"].clone());
    }
    for (part, names) in [("compile", &["time", "memory_peak", "cached", "start"][..]), ("limit", &["used"])] {
        if let Some(map) = map.get_mut(part).and_then(Value::as_object_mut) {
            strip(map, names);
        }
    }
    essence
}

/// The programs of a language that all tests use: name, code, input.
fn programs(language: &str) -> Vec<(String, String, String)> {
    let dir = sandbox_testing::features::LanguageDir::shipped().tests(language).join("programs");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending != "out" && ending != "in"));
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let read = |path: &Path| std::fs::read_to_string(path);
    let input = |path: &Path| read(&path.with_extension("in")).unwrap_or_default();
    files.iter().map(|path| (name(path), read(path).unwrap(), input(path))).collect()
}

#[test]
fn limits_above_the_defaults_of_a_zygote_apply() {
    let servers = Pair::start();
    let code =
        "import resource\nprint([resource.getrlimit(r) for r in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)])";
    let request = json!({"code": code, "limits": {"file_size": "512m", "open_files": 1000, "wall_time": "20s"}});
    let warm = servers.compare("large limits", "warm", &request);
    assert_eq!(warm["stdout"], "[(536870912, 536870912), (1000, 1000)]\n");
}

#[test]
fn a_program_with_another_stack_starts_without_a_zygote() {
    let servers = Pair::start();
    let code = "import resource\nprint(resource.getrlimit(resource.RLIMIT_STACK)[0] >> 20)";
    let usual = servers.compare("usual stack", "warm", &json!({"code": code}));
    assert_eq!(usual["stdout"], "8\n");
    let larger = servers.compare("larger stack", "ready", &json!({"code": code, "limits": {"stack": "64m"}}));
    assert_eq!(larger["stdout"], "64\n");
}

#[test]
fn a_program_with_arguments_of_the_interpreter_starts_without_a_zygote() {
    let servers = Pair::start();
    let code = "import sys\nprint(sys.flags.optimize, sys.argv)\n6 * 7";
    let usual = servers.compare("no arguments", "warm", &json!({"code": code, "args": ["-O"]}));
    assert_eq!((&usual["stdout"], &usual["result"]), (&"0 ['main.py', '-O']\n".into(), &"42".into()));
    let request = json!({"code": code, "args": ["-O"], "interpreter_args": ["-OO"]});
    let with = servers.compare("arguments", "ready", &request);
    assert_eq!((&with["stdout"], &with["result"]), (&"2 ['main.py', '-O']\n".into(), &"42".into()));
    let (status, problem) = servers.warm.post(&json!({"code": "1", "interpreter_args": ["-c"]}));
    assert_eq!((status, &problem["field"]), (422, &"interpreter_args".into()), "{problem:#}");
}

#[test]
fn python_programs_end_alike() {
    let servers = Pair::start();
    let programs = programs("python");
    assert!(programs.len() >= 10);
    for (name, code, stdin) in programs {
        let request = json!({"code": code, "stdin": stdin, "limits": {"wall_time": "20s"}});
        let warm = servers.compare(&name, "warm", &request);
        assert_eq!(warm["verdict"], "ok", "{name}: {warm:#}");
    }
}

#[test]
fn python_is_the_same_interpreter_warm_or_cold() {
    let servers = Pair::start();
    let samples = [
        ("value", "x = 20\nx * 2 + 2"),
        (
            "names",
            "print(__name__, __file__, __doc__, __spec__, sorted(n for n in globals() if not n.startswith('__')))",
        ),
        ("argv", "import sys; print(sys.argv, sys.path[0], sys.flags, sys.executable, sys.orig_argv[2:] != [])"),
        ("environment", "import os; print(sorted(os.environ.items()), os.getcwd())"),
        (
            "process",
            "import os; print(os.getppid(), os.getuid(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())",
        ),
        ("descriptors", "import os; print(sorted(os.listdir('/proc/self/fd'), key=int)[:-1])"),
        (
            "limits",
            "import resource as r; print([r.getrlimit(n) for n in (r.RLIMIT_NOFILE, r.RLIMIT_FSIZE, r.RLIMIT_CORE)])",
        ),
        (
            "status",
            "print(''.join(l for l in open('/proc/self/status') if l.split(':')[0] in ('CapInh', 'CapPrm', 'CapEff', \
         'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'Uid', 'Gid', 'Groups', 'SigBlk', 'SigIgn', 'SigCgt', 'Threads')))",
        ),
        (
            "streams",
            "import sys; print([(s.name, s.encoding, s.errors, s.line_buffering, s.isatty()) for s in \
         (sys.stdin, sys.stdout, sys.stderr)])",
        ),
        ("depth", "def f(n):\n  try: return f(n + 1)\n  except RecursionError: return n\nprint(f(0))"),
        ("stack", "import inspect; print(len(inspect.stack()), inspect.stack()[0].function)"),
        ("exit", "import sys; sys.exit(7)"),
        ("exit text", "import sys; print('before'); sys.exit('a reason')"),
        ("exit odd", "raise SystemExit(-1)"),
        ("exit huge", "raise SystemExit(1 << 70)"),
        ("_exit", "import os; print('lost?', flush=True); os._exit(5)"),
        ("atexit", "import atexit; atexit.register(print, 'first'); atexit.register(print, 'second'); print('main')"),
        (
            "destructors",
            "class A:\n  def __init__(s, n): s.n = n\n  def __del__(s): print('gone', s.n)\na = A(1)\n_b = A(2)\nc = [A(3)]\nc.append(c)",
        ),
        (
            "threads",
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('thread'))).start()\nprint('main')",
        ),
        (
            "daemon",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('main')",
        ),
        (
            "pool",
            "from concurrent.futures import ThreadPoolExecutor as P\nwith P(4) as p: print(list(p.map(abs, range(-5, 0))))",
        ),
        (
            "multiprocessing",
            "import multiprocessing as m\nif __name__ == '__main__':\n  with m.Pool(2) as p: print(p.map(abs, range(-5, 0)))",
        ),
        (
            "spawned",
            "import multiprocessing as m\ndef f(q): q.put(41)\nif __name__ == '__main__':\n  c = m.get_context('spawn')\n  q = c.Queue()\n  p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join()",
        ),
        (
            "fork",
            "import os\npid = os.fork()\nif pid == 0: print('child'); raise SystemExit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
        ),
        (
            "subprocess",
            "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(6*7)'], capture_output=True, text=True))",
        ),
        ("asyncio", "import asyncio\nasync def f(): await asyncio.sleep(.01); return 5\nprint(asyncio.run(f()))"),
        ("signal", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
        (
            "handled signal",
            "import os, signal; signal.signal(signal.SIGUSR1, lambda *a: print('handled')); os.kill(os.getpid(), signal.SIGUSR1)",
        ),
        ("interrupt", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"),
        ("crash", "import ctypes; ctypes.string_at(0)"),
        ("error", "def f(): raise ValueError('no')\nf()"),
        ("chained", "try: 1/0\nexcept Exception as e: raise KeyError('x') from e"),
        ("syntax", "def f(:\n  pass"),
        ("hook", "import sys; sys.excepthook = lambda *a: print('hooked', a[0].__name__)\n1/0"),
        ("stderr", "import sys; print('e', file=sys.stderr); sys.stdout.write('no newline')"),
        ("bytes", "import sys; sys.stdout.buffer.write(bytes(range(256)))"),
        ("closed", "import sys; sys.stdout.close()"),
        ("modules", "import mod; print(mod.x, mod.__file__)"),
        ("files", "open('made.txt', 'w').write('x'); import os; os.mkdir('d'); open('d/f', 'wb').write(b'\\xff')"),
        ("timeout", "print('begun')\nwhile True: pass"),
        ("memory", "x = []\nwhile True: x.append(bytearray(1 << 20))"),
        ("output", "while True: print('x' * 1000)"),
        ("processes", "import os, time\nfor _ in range(200):\n  if os.fork() == 0: time.sleep(5); os._exit(0)"),
        ("disk", "open('big', 'wb').write(b'x' * (80 << 20))"),
    ];
    for (name, code) in samples {
        let wall_time = if name == "timeout" { "1s" } else { "30s" };
        let request = json!({"code": code, "args": ["a b", "ü"], "stdin": "first\nsecond\n",
            "env": {"EXTRA": "1"}, "files": {"mod.py": "x = 5"}, "limits": {"wall_time": wall_time, "memory": "160m"}});
        servers.compare(name, "warm", &request);
    }
}

#[test]
fn runs_that_a_zygote_cannot_serve_start_in_ready_cells() {
    let servers = Pair::start();
    for (name, request) in [
        (
            "an interpreter's variable",
            json!({"code": "import os; print(os.environ['PYTHONOPTIMIZE'])", "env": {"PYTHONOPTIMIZE": "1"}}),
        ),
        ("a time zone", json!({"code": "import time; print(time.tzname)", "env": {"TZ": "Asia/Tokyo"}})),
        ("restricted", json!({"code": "print(1)", "restricted": true})),
        ("little memory", json!({"code": "print(1)", "limits": {"memory": "24m"}})),
    ] {
        servers.compare(name, "ready", &request);
    }
    // Its cell would have to be of another kind: made on the spot at first, ready later.
    let request = json!({"code": "import os; print(os.statvfs('.').f_blocks > 0)", "limits": {"disk": "32m"}});
    servers.compare("another disk", "ready", &request);
}

#[test]
fn children_of_one_zygote_have_randomness_of_their_own() {
    let server = Server::start(&[]);
    let code = "import random, os, uuid, secrets, ssl, tempfile\n\
                print(random.random(), uuid.uuid4(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), next(tempfile._get_candidate_names()))";
    let mut seen = std::collections::HashSet::new();
    let mut warm = 0;
    super::eventually("ten warm runs", || {
        let (_, answer) = server.post(&json!({"code": code}));
        warm += i32::from(answer["metrics"]["start"] == "warm");
        for word in answer["stdout"].as_str().unwrap().split_whitespace() {
            assert!(seen.insert(word.to_owned()), "twice: {word}");
        }
        warm >= 10
    });
}

#[test]
fn compiled_programs_end_alike_in_ready_cells() {
    let servers = Pair::start();
    for language in ["c", "go", "rust", "java", "typescript", "bash"] {
        let (name, code, _) = programs(language).swap_remove(0);
        // Only one that was compiled before is sure to be quick enough for the default.
        let request = json!({"language": language, "code": code, "limits": {"wall_time": "20s"}});
        let (_, first) = servers.warm.post(&request);
        assert_eq!(first["verdict"], "ok", "{name}: {first:#}");
        let warm = servers.compare(&name, "ready", &request);
        assert_eq!(warm["stdout"], first["stdout"], "{name}");
        let broken = json!({"language": language, "code": "this is no program ("});
        let (_, cold) = servers.cold.post(&broken);
        let (_, warm) = servers.warm.post(&broken);
        assert_eq!(essence(&warm), essence(&cold), "{language}");
    }
}

#[test]
fn the_pool_is_counted() {
    let server = Server::start(&[]);
    let number = |name: &str| {
        let (_, text) = server.get("/metrics");
        let line = text.as_str().unwrap().lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.map_or(0.0, |line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
    };
    for _ in 0..200 {
        if number("sandbox_cells_ready") >= 1.0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(number("sandbox_cells_ready") >= 1.0);
    server.post(&json!({"code": "1"}));
    let starts: f64 =
        ["cold", "ready", "warm"].map(|s| number(&format!("sandbox_starts_total{{start=\"{s}\"}}"))).iter().sum();
    assert!((starts - 1.0).abs() < 0.5, "{starts}");
}

/// A copy of Python's definition with one change.
fn changed_python(from: &str, to: &str) -> tempfile::TempDir {
    changed_language("python", from, to)
}

/// A copy of a language's definition with one change.
pub(crate) fn changed_language(language: &str, from: &str, to: &str) -> tempfile::TempDir {
    let (dir, source) = (tempfile::tempdir().unwrap(), sandbox_testing::repository().join("languages").join(language));
    let copy = dir.path().join(language);
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(source).unwrap().map(|entry| entry.unwrap()) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    let definition = copy.join("language.toml");
    let text = std::fs::read_to_string(&definition).unwrap();
    assert!(text.contains(from));
    std::fs::write(definition, text.replace(from, to)).unwrap();
    dir
}

#[test]
fn languages_that_fail_the_self_test_start_cold() {
    // A child has the command line of its zygote.
    let dir = changed_python("import os, sys\nprint(", "import os, sys\nprint(open('/proc/self/cmdline').read(), ");
    let server = Server::start(&["--runtimes", dir.path().to_str().unwrap()]);
    let reason = || server.get("/health").1["warm_starts"]["python"].as_str().unwrap().to_owned();
    eventually("the test is over", || reason().contains("the output of the self-test is"));
    for _ in 0..20 {
        let (_, result) = server.post(&json!({"code": "print(1)"}));
        assert_eq!((&result["verdict"], &result["stdout"]), (&"ok".into(), &"1\n".into()), "{result:#}");
        assert_ne!(result["metrics"]["start"], "warm", "{result:#}");
    }
    eventually("JavaScript starts warm", || server.get("/health").1["warm_starts"]["javascript"] == "on");
}

#[test]
fn untested_versions_start_cold() {
    let dir = changed_python("tested = { from = \"3.10\"", "tested = { from = \"3.99\"");
    let server = Server::start(&["--runtimes", dir.path().to_str().unwrap()]);
    let reason = server.get("/health").1["warm_starts"]["python"].as_str().unwrap().to_owned();
    assert!(reason.contains("outside the tested versions 3.99 to 3."), "{reason}");
    let (_, result) = server.post(&json!({"code": "print(1)"}));
    assert_ne!(result["metrics"]["start"], "warm", "{result:#}");
}

#[test]
fn warm_starts_are_reported() {
    let server = Server::start(&[]);
    // A compiler is tested when one was missed.
    let expected = json!({"java": "not tested yet", "javascript": "on", "python": "on"});
    eventually("both interpreters start warm", || server.get("/health").1["warm_starts"] == expected);
    let cold = Server::start(&["--cold"]);
    assert_eq!(cold.get("/health").1["warm_starts"]["python"], "no interpreters or compilers are kept warm");
}

#[test]
fn a_volume_of_the_host_is_in_every_run() {
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("data"), "shared").unwrap();
    std::fs::set_permissions(shared.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = shared.path().to_str().unwrap();
    let server = Server::start_with(&[], &[("SANDBOX_VOLUME_PATHS", path)]);
    let request = json!({"code": "open('/shared/data').read()", "volumes": [format!("{path}:/shared")]});
    let without = json!({"code": "import os; os.path.exists('/shared')"});
    for _ in 0..3 {
        assert_eq!(server.post(&request).1["result"], "'shared'");
        // Until a cell is ready that the next run could take.
        let warm = || server.post(&without).1["metrics"]["start"] == "warm";
        eventually("another run starts warm", warm);
        assert_eq!(server.post(&without).1["result"], "False");
    }
}
