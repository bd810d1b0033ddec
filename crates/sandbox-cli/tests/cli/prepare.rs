//! `sandbox-run prepare`: toolchains are prepared once, ahead or by the first run, and nothing incomplete is kept.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sandbox_testing::command::{binary, result, sandbox};
use sandbox_testing::staged_languages;
use serde_json::Value;
use tempfile::TempDir;

/// A data directory and definitions of languages that only a test has.
struct Place {
    data: TempDir,
    languages: TempDir,
}

impl Place {
    fn new(languages: &[(&str, &str)]) -> Self {
        Self { data: tempfile::tempdir().unwrap(), languages: staged_languages(languages) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = sandbox(args);
        command.env("SANDBOX_DATA_DIR", self.data.path()).env("SANDBOX_RUNTIMES", self.languages.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Everything that is kept of what was prepared.
    fn kept(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.data.path().join("environments"));
        entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn statuses(output: &Output) -> Vec<(String, String)> {
    let list = result(output);
    let of = |listed: &Value, key: &str| listed[key].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|listed| (of(listed, "language"), of(listed, "status"))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(language, status)| ((*language).to_owned(), (*status).to_owned())).collect()
}

#[test]
fn a_toolchain_is_prepared_once() {
    let place = Place::new(&[("slow", "sleep 1; echo made > \"$OUT/state\"")]);
    let first = place.run(&["prepare", "slow", "bash"]);
    let (stdout, stderr) = (text(&first.stdout), text(&first.stderr));
    assert!(first.status.success(), "{stderr}");
    assert!(stderr.contains("slow: preparing the tables of slow (once)"), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("✓ slow ") && lines[0].contains("prepared the tables of slow in "), "{stdout}");
    assert!(lines[1].starts_with("✓ bash ") && lines[1].ends_with("nothing to prepare"), "{stdout}");
    let again = place.run(&["prepare", "slow", "SLOW"]);
    assert!(text(&again.stdout).ends_with("already prepared: the tables of slow\n"), "{again:?}");
    assert_eq!(text(&again.stdout).lines().count(), 1, "named twice, prepared once: {again:?}");
    let json = place.run(&["prepare", "--json", "slow", "bash"]);
    assert_eq!(statuses(&json), pairs(&[("slow", "already_prepared"), ("bash", "nothing_to_prepare")]));
    let run = result(&place.run(&["--lang", "slow", "--json", "--code", "BEGIN { print 1 }"]));
    assert_eq!(run["verdict"], "ok", "{run:#}");
    assert_eq!(run["metrics"]["phases"].get("toolchain"), None, "it had nothing to prepare: {run:#}");
}

#[test]
fn a_terminal_shows_how_far_the_work_is() {
    let script = "echo 'table 1 of 2'; sleep 1; printf '\\033]0;owned\\007table 2 of 2\\n' >&2; sleep 1; \
                  echo made > \"$OUT/state\"";
    let place = Place::new(&[("slow", script)]);
    let line = format!("stty cols 80; exec {} prepare slow", binary());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    terminal.env("SANDBOX_DATA_DIR", place.data.path()).env("SANDBOX_RUNTIMES", place.languages.path());
    let output = terminal.output().unwrap();
    let shown = text(&output.stdout);
    for part in
        ["slow: preparing the tables of slow (once) · 0s", " · table 1 of 2", " · ]0;ownedtable 2 of 2", "✓ slow"]
    {
        assert!(shown.contains(part), "{part}: {shown:?}");
    }
    assert!(!shown.contains(['\u{7}']) && !shown.contains("\u{1b}]0"), "{shown:?}");
    // In a pipe there is one plain line for each step.
    let place = Place::new(&[("slow", script)]);
    let output = place.run(&["prepare", "slow"]);
    assert_eq!(text(&output.stderr), "slow: preparing the tables of slow (once)\n");
}

#[test]
fn the_first_run_prepares_and_its_time_limit_does_not_count_that() {
    let place = Place::new(&[("slow", "sleep 3; echo made > \"$OUT/state\"")]);
    let args = ["--lang", "slow", "--timeout", "2s", "--code", "BEGIN { print 1 }"];
    let output = place.run(&[&args[..], &["--format", "stream-json"]].concat());
    let events: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(events[1]["step"], "prepare", "{events:?}");
    assert_eq!(events[1]["what"], "preparing the tables of slow (once)");
    let result = &events.last().unwrap()["result"];
    assert_eq!(result["verdict"], "ok", "{result:#}");
    let phases = &result["metrics"]["phases"];
    let seconds = |phase: &str| phases[phase].as_f64().unwrap();
    assert!(seconds("toolchain") >= 3.0 && seconds("compile") < seconds("toolchain"), "{phases}");
}

#[test]
fn failures_are_explained_and_do_not_stop_the_others() {
    let script = "echo 'error: the mirror is away' >&2; exit 3";
    let place = Place::new(&[("broken", script), ("fine", "echo made > \"$OUT/state\"")]);
    let output = place.run(&["prepare", "broken", "fine"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: the mirror is away"), "{stderr}");
    let first = stdout.lines().next().unwrap();
    assert!(first.starts_with("✗ broken ") && first.ends_with("the mirror is away"), "{stdout}");
    assert!(stdout.contains("prepared the tables of fine in "), "{stdout}");
    let json = place.run(&["prepare", "--json", "broken", "fine"]);
    assert_eq!(
        (json.status.code(), statuses(&json)),
        (Some(1), pairs(&[("broken", "failed"), ("fine", "already_prepared")]))
    );
    assert_eq!(result(&json)[0]["error"], "the mirror is away", "{json:?}");
    assert_eq!(place.kept().len(), 2, "one entry and its lock: {:?}", place.kept());
}

#[test]
fn languages_must_exist() {
    let place = Place::new(&[("slow", "sleep 60")]);
    let output = place.run(&["prepare", "slow", "pyhton"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean 'python'?"), "{output:?}");
    assert!(place.kept().is_empty(), "nothing was begun");
}

#[test]
fn an_interrupted_preparation_leaves_nothing() {
    let place = Place::new(&[("slow", "echo half > \"$OUT/state\"; sleep 60"), ("other", "true")]);
    let mut child =
        place.command(&["prepare", "slow", "other"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("preparing the tables of slow"), "{line}");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("cancelled after") && !stdout.contains("other"), "{stdout}");
    assert!(place.kept().is_empty(), "{:?}", place.kept());
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn two_that_prepare_at_once_share_the_work() {
    let place = Place::new(&[("slow", "sleep 3; echo made > \"$OUT/state\"")]);
    let start = || {
        let mut command = place.command(&["prepare", "--json", "slow"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start(), start()].map(|child| child.wait_with_output().unwrap());
    for output in &both {
        assert_eq!(statuses(output), pairs(&[("slow", "prepared")]), "{output:?}");
    }
    let waited = both.iter().filter(|output| text(&output.stderr).contains("waiting for work in progress")).count();
    assert_eq!(waited, 1, "{both:?}");
    let entries = place.kept().into_iter().filter(|path| Path::new(path).extension().is_none()).count();
    assert_eq!(entries, 1, "{:?}", place.kept());
}
