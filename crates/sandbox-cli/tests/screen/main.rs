//! Everything that a person sees of the command: help, errors, summaries and `doctor`, each in a file of `snapshots`.
//!
//! `make bless` rewrites the files.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should panic")]

use std::process::{Command, Output};

use sandbox_testing::command::{fixture, sandbox};
use sandbox_testing::redact::{redact_line, redact_text};
use sandbox_testing::{data_dir, needs, staged_languages};

/// Compares the output with the file of this name.
fn check(name: &str, printed: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, printed));
}

/// A command for a terminal of 100 columns without colours.
fn command(args: &[&str]) -> Command {
    let mut command = sandbox(args);
    command.env("COLUMNS", "100").env("NO_COLOR", "1").env("SANDBOX_DATA_DIR", data_dir());
    command
}

/// The output of a command, and its exit code.
fn screen(args: &[&str], output: &Output) -> String {
    let quoted = |arg: &&str| if arg.contains([' ', '\n']) { format!("'{arg}'") } else { (*arg).to_owned() };
    let words: Vec<String> = args.iter().map(quoted).collect();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let code = output.status.code().map_or("none".to_owned(), |code| code.to_string());
    format!("$ sandbox-run {}\n{stdout}--- stderr\n{stderr}--- exit code {code}\n", words.join(" "))
}

fn run(args: &[&str]) -> String {
    screen(args, &command(args).output().unwrap())
}

/// The names under `Commands:` in a help text.
fn subcommands(help: &str) -> Vec<String> {
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Checks the help of a command and of its subcommands.
fn check_help(path: &[&str]) {
    let output = command(&[path, &["--help"]].concat()).output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    check(&[&["help"], path].concat().join("-"), &help);
    for name in subcommands(&help) {
        check_help(&[path, &[name.as_str()]].concat());
    }
}

#[test]
fn the_help_of_every_command_matches() {
    check_help(&[]);
    let short = command(&["-h"]).output().unwrap();
    check("help-short", &String::from_utf8(short.stdout).unwrap());
}

/// Command lines that are refused, by their mistake.
const REFUSED: [(&str, &[&str]); 24] = [
    ("unknown-flag", &["--lnag", "python", "--code", "1"]),
    ("unknown-command", &["doktor"]),
    ("missing-value", &["--lang"]),
    ("unknown-language", &["--lang", "pyhton", "--code", "1"]),
    ("no-language", &["--code", "1"]),
    ("language-of-unknown-file", &["--file", "/etc/hostname"]),
    ("missing-file", &["--lang", "python", "--file", "/nowhere/main.py"]),
    ("code-and-file", &["--lang", "python", "--code", "1", "--file", "/etc/hostname"]),
    ("empty-code", &["--lang", "python", "--code", ""]),
    ("bad-memory", &["--lang", "python", "--code", "1", "--memory", "lots"]),
    ("small-memory", &["--lang", "python", "--code", "1", "--memory", "1k"]),
    ("bad-timeout", &["--lang", "python", "--code", "1", "--timeout", "soon"]),
    ("large-timeout", &["--lang", "python", "--code", "1", "--timeout", "48h"]),
    ("bad-processes", &["--lang", "python", "--code", "1", "--pids", "0"]),
    ("bad-network", &["--lang", "python", "--code", "1", "--network", "some"]),
    ("bad-host", &["--lang", "python", "--code", "1", "--allow-host", "http://"]),
    ("host-without-network", &["--lang", "python", "--code", "1", "--network", "none", "--allow-host", "example.com"]),
    ("bad-layer", &["--lang", "python", "--code", "1", "--require", "moat"]),
    ("bad-environment", &["--lang", "python", "--code", "1", "--env", "=x"]),
    ("bad-package", &["--lang", "python", "--code", "1", "--package=--evil"]),
    ("bad-volume", &["--lang", "python", "--code", "1", "--volume", "relative"]),
    ("missing-image", &["--image", "nowhere", "--", "true"]),
    ("missing-program", &["exec", "--", "/nowhere/program"]),
    ("bad-limit-as-json", &["--lang", "python", "--code", "1", "--memory", "lots", "--json"]),
];

#[test]
fn errors_of_the_command_line_match() {
    for (name, args) in REFUSED {
        let printed = run(args);
        assert!(!printed.ends_with("--- exit code 0\n"), "{printed}");
        check(&format!("error-{name}"), &printed);
    }
}

#[test]
fn errors_of_settings_and_requests_match() {
    for (name, variable, value) in [
        ("timeout", "SANDBOX_TIMEOUT", "soon"),
        ("backend", "SANDBOX_BACKEND", "moon"),
        ("isolation", "SANDBOX_ISOLATION", "some"),
    ] {
        let args = ["--lang", "python", "--code", "1"];
        let output = command(&args).env(variable, value).output().unwrap();
        check(&format!("error-setting-{name}"), &screen(&args, &output));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("vars.json"), "{").unwrap();
    for (name, args) in [
        ("json", ["--lang", "python", "--code", "1", "--template", "harness", "--vars", "vars.json"]),
        ("template", ["--lang", "python", "--code", "1", "--template", "nothing", "--var", "x=1"]),
    ] {
        let output = command(&args).current_dir(dir.path()).output().unwrap();
        check(&format!("error-bad-{name}"), &screen(&args, &output));
    }
}

#[test]
fn summaries_of_runs_match() {
    let program = fixture().to_str().unwrap();
    let python = |code| ["--lang", "python", "--timeout", "30s", "--code", code];
    for (name, args) in [
        ("ok", &python("print(6 * 7)")[..]),
        ("exit-code", &python("import sys; sys.exit(3)")),
        ("runtime-error", &python("print(undefined)")),
        ("syntax-error", &python("print(")),
        ("signal", &python("import os; os.kill(os.getpid(), 9)")),
        ("no-network", &python("import socket; socket.create_connection(('192.0.2.1', 80))")),
        (
            "refused-host",
            &["--lang", "python", "--allow-host", "example.com", "--timeout", "30s", "--code", REFUSED_HOST],
        ),
        ("timeout", &["--lang", "python", "--timeout", "1s", "--code", "import time; time.sleep(60)"]),
        ("memory-limit", &["exec", "--memory", "64m", "--", program, "memory", "200"]),
        ("process-limit", &["exec", "--pids", "9", "--", program, "threads", "99"]),
        ("output-limit", &["exec", "--output-limit", "1k", "--", "yes"]),
        ("disk-limit", &["exec", "--disk", "1m", "--", "dd", "if=/dev/zero", "of=/tmp/x", "bs=64k", "status=none"]),
        ("compile-error", &["--lang", "c", "--timeout", "30s", "--code", "int main(void) { return x; }"]),
    ] {
        let output = command(args).output().unwrap();
        // Only short output of the program and its interpreter is the same everywhere.
        let stdout = if output.stdout.len() < 100 { output.stdout } else { b"...\n".to_vec() };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let summary = stderr.lines().rfind(|line| line.starts_with(['✓', '✗'])).unwrap();
        let shown = Output { status: output.status, stdout, stderr: (redact_line(summary) + "\n").into_bytes() };
        check(&format!("summary-{name}"), &screen(args, &shown).replace(program, "PROGRAM"));
    }
}

#[test]
fn prepare_shows_what_comes_of_each_language() {
    let scripts = [("fine", "echo made > \"$OUT/state\""), ("broken", "echo 'error: the mirror is away' >&2; exit 3")];
    let (languages, data) = (staged_languages(&scripts), tempfile::tempdir().unwrap());
    for (name, args) in [
        ("first", &["prepare", "fine", "broken", "bash"][..]),
        ("again", &["prepare", "fine"]),
        ("json", &["prepare", "--json", "fine", "broken", "bash"]),
        ("unknown", &["prepare", "fien"]),
    ] {
        let mut command = command(args);
        command.env("SANDBOX_DATA_DIR", data.path()).env("SANDBOX_RUNTIMES", languages.path());
        let shown = screen(args, &command.output().unwrap());
        check(&format!("prepare-{name}"), &redact_text(&shown));
    }
}

/// Code that requests a host which is not allowed.
const REFUSED_HOST: &str = "import urllib.request as u
try: u.urlopen('http://example.net/')
except Exception as error: print(error.code, error.read().decode())";

/// `doctor` without the facts of this host: kernel, toolchains, and unlimited kernel resources.
#[test]
fn doctor_reports_every_layer() {
    if !needs::root() {
        return;
    }
    let output = command(&["doctor"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if !needs::that("a host with every layer", text.contains("Every layer works")) {
        return;
    }
    let mut shown = String::new();
    for section in text.split("\n\n") {
        let mut lines = section.lines();
        let title = lines.next().unwrap_or_default();
        match title.split(' ').next() {
            Some("Host") => shown.push_str("Host  KERNEL, root, CGROUPS\n"),
            Some("Shared") => shown.push_str("POOLS\n"),
            Some("Languages") => {
                let named = |line: &&str| line.starts_with("  ✓");
                let names = lines.filter(named).filter_map(|line| line.split_whitespace().nth(1));
                shown.push_str(&format!("{title}\n{}", names.map(|name| format!("  ✓ {name}\n")).collect::<String>()));
            }
            _ => shown.push_str(&format!("{}\n", section.trim_end())),
        }
        shown.push('\n');
    }
    check("doctor", &shown);
}
