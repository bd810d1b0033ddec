//! The command line under test, programs for it to run, and checks for leftovers on the host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::{build_dir, data_dir, repository, scratch_dir};

/// The path of the `sandbox-run` under test.
pub fn binary() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| build_dir().join("sandbox-run").to_str().unwrap().to_owned())
}

/// Set to a default time limit on a slow host.
const SLOW_MACHINE: &str = "SANDBOX_TEST_TIMEOUT";

/// A command with these arguments and no settings from the environment.
pub fn sandbox<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null());
    without_settings(&mut command);
    if let Ok(timeout) = std::env::var(SLOW_MACHINE) {
        command.env("SANDBOX_TIMEOUT", timeout);
    }
    command
}

/// Removes the developer's settings from a command.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SANDBOX_") || name.starts_with("HTTP_")) {
        command.env_remove(name);
    }
    // When coverage is measured, %c keeps the counters in a shared mapping of the file, so that keeper and init, which
    // are forks and are killed, count as well. Without the process id (%p), all processes of a program share the file.
    if let Ok(file) = std::env::var("LLVM_PROFILE_FILE") {
        command.env("LLVM_PROFILE_FILE", file.replace("%p", "%c"));
    }
}

/// Runs a command to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    sandbox(args).output().unwrap()
}

/// Runs a command with this standard input.
pub fn run_with_input<S: AsRef<std::ffi::OsStr>>(args: &[S], input: &[u8]) -> Output {
    feed(sandbox(args), input)
}

fn feed(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // A program that does not read everything closes the pipe.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

/// Runs a command in a directory, with this standard input, and with the tests' cache.
pub fn run_with_input_in<S: AsRef<std::ffi::OsStr>>(dir: &Path, args: &[S], input: &[u8]) -> Output {
    let mut command = sandbox(args);
    command.current_dir(dir).env("SANDBOX_DATA_DIR", data_dir());
    feed(command, input)
}

/// Runs Python code and returns the result.
pub fn python(code: &str, flags: &[&str]) -> Value {
    let mut args = vec!["--lang", "python", "--json", "--code", code];
    args.extend_from_slice(flags);
    result(&run(&args))
}

/// The result in a command's output.
pub fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("no result ({error}): {}", String::from_utf8_lossy(&output.stderr)))
}

/// A program in `fixtures`, compiled to a static binary.
pub fn fixture() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Where there is no compiler, it was built before.
        std::env::var_os("SANDBOX_TEST_PROGRAM").map_or_else(|| build("program"), PathBuf::from)
    })
}

fn build(name: &str) -> PathBuf {
    let source = repository().join(format!("crates/sandbox-testing/fixtures/{name}.rs"));
    // A unique name for each test process: they may run concurrently.
    let target = scratch_dir().join(format!("{name}-{}", std::process::id()));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"])
        .arg(&target)
        .arg(&source)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target
}

/// A command that runs the binary as in an unprivileged container, as `root` or as another `user`, with this data
/// directory.
pub fn in_container<S: AsRef<std::ffi::OsStr>>(user: &str, data: &Path, args: &[S]) -> Command {
    let mut command = program_in_container(user, data, Path::new(binary()));
    command.args(args);
    command
}

/// The same for another program.
pub fn program_in_container(user: &str, data: &Path, program: &Path) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mut command =
        Command::new(BUILT.get_or_init(|| {
            std::env::var_os("SANDBOX_TEST_CONTAINER").map_or_else(|| build("container"), PathBuf::from)
        }));
    command.arg(user).arg(program).stdin(Stdio::null()).current_dir("/").env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("SANDBOX_DATA_DIR", data).env("TMPDIR", data);
    command
}

/// Keeps a report of the attack suite for `scripts/what-holds`, which writes the table of what holds where.
pub fn keep_report(host: &str, report: &Value) {
    let file = scratch_dir().join(format!("attack-{host}.json"));
    std::fs::write(file, report.to_string()).unwrap();
}

/// Runs the fixture with these commands and returns the result.
pub fn program(words: &[&str], flags: &[&str]) -> Value {
    let path = fixture().to_str().unwrap();
    let mut args = vec!["exec", "--json"];
    args.extend_from_slice(flags);
    args.extend_from_slice(&["--", path]);
    args.extend_from_slice(words);
    result(&run(&args))
}

/// Cgroups that sandbox-run created, whose name contains `part`.
pub fn groups(part: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, depth: usize, part: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("sandbox-run-") && name.contains(part) {
                found.push(entry.path());
            } else if depth > 0 {
                walk(&entry.path(), depth - 1, part, found);
            }
        }
    }
    let mut found = vec![];
    walk(Path::new("/sys/fs/cgroup"), 5, part, &mut found);
    found
}

/// Where a keeper that this process starts creates its cgroups: one directory for each controller on v1, the top on v2.
pub fn group_parents() -> Vec<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut parents = vec![];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next().unwrap(), parts.next().unwrap());
        for controller in controllers.split(',').filter(|c| ["memory", "pids", "cpu", "cpuacct"].contains(c)) {
            parents.push(Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')));
        }
    }
    if parents.is_empty() {
        parents.push("/sys/fs/cgroup".into());
    }
    parents
}

/// Processes, as (id, parent, name, command line), including zombies.
pub fn processes() -> Vec<(u32, u32, String, String)> {
    let mut found = vec![];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')) else { continue };
        let mut fields = rest.split_ascii_whitespace();
        let parent = fields.nth(1).unwrap_or_default();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        found.push((pid, parent.parse().unwrap_or(0), name.to_owned(), line));
    }
    found
}

/// A command that runs the binary as an ordinary user. The user need not be able to reach its directory: the binary is
/// opened here and named by its descriptor.
pub fn as_ordinary_user<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let script = "exec setpriv --reuid 4321 --regid 4321 --clear-groups --inh-caps=-all /proc/self/fd/9 \"$@\" \
                  9<\"$BINARY\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(args).stdin(Stdio::null()).current_dir("/").env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("BINARY", binary());
    command
}
