//! Whatever a program leaves, the caller gets a verdict in the requested format, and no file of the user is touched.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sandbox_testing::command::{result, run, sandbox};
use sandbox_testing::needs;
use serde_json::{Value, json};

use sandbox_testing::frozen::{Frozen, field, find};

/// Creates files with long names until a limit is reached.
const LONG_NAMES: &str = "
import os
n = 0
try:
    while True:
        os.close(os.open(f'{n:06}' + 'n' * 240, os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError:
    pass
";

fn python(code: &str, flags: &[&str]) -> Value {
    sandbox_testing::command::python(code, flags)
}

#[test]
fn names_that_fill_the_memory_do_not_prevent_the_collection() {
    let result = python(LONG_NAMES, &["--memory", "64m", "--inodes", "400000", "--timeout", "20s"]);
    if result["isolation"].as_array().unwrap().contains(&"memory".into()) {
        assert_eq!(result["verdict"], "memory_limit", "{:#}", result["error"]);
    }
    assert!(!result["files"].as_object().unwrap().is_empty(), "the first files are collected");
    let omitted = result["files_omitted"].as_array().unwrap();
    assert!(omitted.len() <= 100 && result["files_omitted_count"].as_u64().unwrap() > 100, "{omitted:?}");
    assert!(!omitted.contains(&json!({"path": ".", "why": "not_collected"})), "there was memory for the collection");
}

#[test]
fn a_collection_that_takes_too_long_is_truncated() {
    // Both have the same time limit, and collecting the second one's files takes longer than the rest of it.
    let code = format!("{LONG_NAMES}\nprint('done', flush=True)\nimport time; time.sleep(60)");
    let result = python(&code, &["--memory", "1g", "--inodes", "300000", "--timeout", "6s"]);
    assert_eq!(result["verdict"], "timeout", "{:#}", result["error"]);
    assert!(!result["files"].as_object().unwrap().is_empty(), "files that arrived in time are collected");
    // A fast host collects all of them. No host takes much longer than the time limit.
    let seconds = |phase: &str| result["metrics"]["phases"][phase].as_f64().unwrap();
    assert!(seconds("run") + seconds("collect") < 40.0, "{:#}", result["metrics"]);
}

#[test]
fn file_names_cannot_control_the_terminal() {
    let code = r"import os; os.symlink('/', '\x1b]0;owned\x07\n\u202e')";
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["--lang", "python", "--code", code, "--output-dir", dir.path().to_str().unwrap()]);
    let summary = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(summary.contains("(␛]0;owned␇␊\u{fffd}: it is not a regular file)"), "{summary}");
    let code = r"import os; os.mkdir('.\x1b[2J'); open('.\x1b[2J/a\nb', 'w').write('x')";
    let output = run(&["--lang", "python", "--code", code, "--output-dir", dir.path().to_str().unwrap()]);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("/.␛[2J/a␊b' is hidden"), "{complaint}");
    assert!(!complaint.contains(['\u{1b}', '\u{7}']), "{complaint}");
    // Parts of the request are printed too.
    let output = run(&["--lang", "py\x1b]0;x\x07", "--code", "1"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains(['\u{1b}', '\u{7}']));
    let output = run(&["--file", "/no/such/\x1b[2J"]);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("'/no/such/␛[2J'"), "{complaint}");
}

/// Creates an executable hook, a plain file and a tool.
const HOOK: &str = "
import os
os.makedirs('.git/hooks')
for name in ('.git/hooks/pre-commit', 'kept', 'tool'):
    open(name, 'w').write('#!/bin/sh\\n')
    os.chmod(name, 0o755)
";

fn save(dir: &Path, flags: &[&str]) -> (Option<i32>, Value, String) {
    let mut args = vec!["--lang", "python", "--json", "--code", HOOK, "--output-dir", dir.to_str().unwrap()];
    args.extend_from_slice(flags);
    let output = run(&args);
    (output.status.code(), result(&output), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn files_in_the_output_directory_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kept"), "mine").unwrap();
    let (code, result, complaint) = save(dir.path(), &[]);
    assert_eq!(code, Some(125), "{complaint}");
    let unsaved = json!([
        {"path": ".git/hooks/pre-commit", "why": "hidden"},
        {"path": "kept", "why": "exists"},
    ]);
    assert_eq!((&result["verdict"], &result["files_unsaved"]), (&"ok".into(), &unsaved));
    assert!(complaint.contains("2 files were not written") && complaint.contains("--force"));
    assert_eq!(std::fs::read_to_string(dir.path().join("kept")).unwrap(), "mine");
    assert!(!dir.path().join(".git").exists());
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
    assert_eq!(mode("tool") & 0o111, 0);

    // One replaces files, and the other shows everything as it is.
    let (code, result, complaint) = save(dir.path(), &["--all"]);
    let unsaved = json!([
        {"path": "kept", "why": "exists"},
        {"path": "tool", "why": "exists"},
    ]);
    assert_eq!((code, &result["files_unsaved"]), (Some(125), &unsaved), "{complaint}");
    assert_eq!(mode(".git/hooks/pre-commit") & 0o111, 0o111);
    std::fs::remove_dir_all(dir.path().join(".git")).unwrap();
    let (code, result, complaint) = save(dir.path(), &["--force"]);
    let unsaved = json!([{"path": ".git/hooks/pre-commit", "why": "hidden"}]);
    assert_eq!((code, &result["files_unsaved"]), (Some(125), &unsaved), "{complaint}");
    assert_eq!(mode("tool") & 0o111, 0);

    for flags in [&["--force", "--all"][..], &["--output-allow", "overwrite,hidden,executable"]] {
        std::fs::write(dir.path().join("kept"), "mine").unwrap();
        let (code, result, complaint) = save(dir.path(), flags);
        assert_eq!((code, &result["files_unsaved"]), (Some(0), &Value::Null), "{complaint}");
        assert_eq!(std::fs::read_to_string(dir.path().join("kept")).unwrap(), "#!/bin/sh\n");
        assert_eq!((mode(".git/hooks/pre-commit") & 0o111, mode("tool") & 0o111), (0o111, 0o111));
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (code, result, complaint) = save(&file, &[]);
    assert_eq!((code, &result["verdict"]), (Some(2), &"invalid_request".into()), "{complaint}");
    assert!(complaint.contains("cannot write to '") && complaint.lines().count() == 1, "{complaint}");
    assert_eq!(result["stdout"], "", "nothing ran");
}

#[test]
fn refused_requests_are_reported_in_json() {
    for (args, why) in [
        (&["--lang", "pyhton", "--code", "1"][..], "unknown language 'pyhton'"),
        (&["--lang", "python", "--code", "1", "--memory", "lots"], "memory"),
        (&["--lang", "python", "--code", "1", "--input", "/no/such"], "cannot read '/no/such'"),
        (&["--lang", "python", "--code", "1", "--no-such-flag"], "--no-such-flag"),
        (&["exec", "--", "no-such-program"], "cannot run no-such-program"),
        (&["--file", "/no/such.py"], "cannot read '/no/such.py'"),
    ] {
        for format in ["json", "stream-json"] {
            let mut words: Vec<&str> = args.to_vec();
            let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            words.splice(at..at, ["--format", format]);
            let output = run(&words);
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let last: Value =
                stdout.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
            let result = if format == "json" { last } else { last["result"].clone() };
            assert_eq!(output.status.code(), Some(2), "{words:?}");
            assert_eq!(
                (&result["verdict"], &result["success"]),
                (&"invalid_request".into(), &false.into()),
                "{words:?}"
            );
            assert!(result["error"].as_str().unwrap().contains(why), "{words:?}: {result}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(why), "standard error has the message too");
        }
    }
    let output =
        sandbox(&["--lang", "python", "--json", "--code", "1"]).env("SANDBOX_MEMORY", "lots").output().unwrap();
    assert_eq!(result(&output)["verdict"], "invalid_request");
}

/// Runs a program that sleeps beyond its time limit, while something happens to its process and its init.
fn disturbed<T>(mark: &str, stderr: Stdio, harm: impl FnOnce(u32, u32) -> T) -> (Option<i32>, Value, T) {
    let mark = format!("{mark}{}", std::process::id());
    let code = format!("echo begun; exec sleep {mark}");
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut command = sandbox(&["--lang", "bash", "--json", "--timeout", "1s", "--code", &code]);
    let child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    let (program, init) = find(&["sleep", &mark]);
    let harmed = harm(program, init);
    // Only a hang takes longer than this.
    let output = receiver.recv_timeout(Duration::from_secs(30)).expect("an answer");
    (output.status.code(), result(&output), harmed)
}

fn signal(signal: &str, pid: u32) {
    assert!(std::process::Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// A process that is stopped until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        signal("-STOP", pid);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").args(["-CONT", &self.0.to_string()]).status();
    }
}

#[test]
fn an_unresponsive_init_or_keeper_does_not_delay_the_caller() {
    if !needs::root() {
        return;
    }
    let (code, result, ()) = disturbed("61", Stdio::piped(), |_, init| signal("-STOP", init));
    assert_eq!((code, &result["verdict"], &result["stdout"]), (Some(124), &"timeout".into(), &"begun\n".into()));
    assert_eq!(result["files_omitted"], json!([{"path": ".", "why": "not_collected"}]));
    let (code, result, ()) = disturbed("62", Stdio::piped(), |_, init| signal("-KILL", init));
    assert_eq!((code, &result["verdict"], &result["stdout"]), (Some(125), &"internal_error".into(), &"begun\n".into()));
    // The keeper holds standard error, which it cannot close while it is stopped.
    let (code, result, stopped) = disturbed("64", Stdio::null(), |_, init| Stopped::new(field(init, "PPid:")));
    drop(stopped);
    assert_eq!((code, &result["verdict"], &result["stdout"]), (Some(124), &"timeout".into(), &"begun\n".into()));
}

#[test]
fn a_frozen_init_does_not_delay_the_caller() {
    if !needs::root() || !needs::freezer() {
        return;
    }
    let (code, result, frozen) = disturbed("63", Stdio::piped(), |program, init| Frozen::new(&[program, init]));
    assert_eq!((code, &result["verdict"], &result["stdout"]), (Some(124), &"timeout".into(), &"begun\n".into()));
    drop(frozen);
}
