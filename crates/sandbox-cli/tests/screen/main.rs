//! Everything that a person sees of the command: help, errors, summaries, lists and `doctor`, each in a file of `snapshots`.
//!
//! `make bless` rewrites the files.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should panic")]

use std::io::Seek;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use regex_lite::Regex;
use rustix::process::{Pid, Signal, kill_process};
use sandbox_testing::command::{fixture, in_container, sandbox};
use sandbox_testing::package_index::TestIndex;
use sandbox_testing::redact::{redact_line, redact_text};
use sandbox_testing::{data_dir, eventually, needs, shell_image, staged_languages};

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
const REFUSED: [(&str, &[&str]); 29] = [
    ("unknown-flag", &["--lnag", "python", "--code", "1"]),
    ("unlike-flag", &["--formula", "x"]),
    ("unknown-command", &["doktor"]),
    ("no-such-file", &["script.py", "argument"]),
    ("unlike-language", &["--lang", "cobol", "--code", "1"]),
    ("module-without-name", &["--module"]),
    ("unknown-flag-as-json", &["--json", "--lnag", "script.py"]),
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
        let shown = Output { status: output.status, stdout, stderr: summary(&output.stderr).into_bytes() };
        check(&format!("summary-{name}"), &screen(args, &shown).replace(program, "PROGRAM"));
    }
}

/// The summary in a run's standard error, and what follows it.
fn summary(stderr: &[u8]) -> String {
    let stderr = String::from_utf8_lossy(stderr).into_owned();
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with(['✓', '✗']));
    let summary = redact_line(lines.next().unwrap_or_else(|| panic!("{stderr}")));
    [summary].into_iter().chain(lines.map(str::to_owned)).map(|line| line + "\n").collect()
}

/// The summary in the output of a run, as a screen.
fn summary_screen(args: &[&str], output: &Output) -> String {
    let shown = Output { status: output.status, stdout: vec![], stderr: summary(&output.stderr).into_bytes() };
    screen(args, &shown)
}

#[test]
fn summary_of_a_cancelled_run_matches() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["--lang", "python", "--timeout", "60s", "--code", "print('on', flush=True); import time; time.sleep(60)"];
    let log = dir.path().join("log");
    let mut command = command(&args);
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&log).unwrap()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    eventually("the program runs", || std::fs::read_to_string(&log).unwrap() == "on\n");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    check("summary-cancelled", &summary_screen(&args, &child.wait_with_output().unwrap()));
}

#[test]
fn summary_of_a_package_error_matches() {
    let index = TestIndex::start();
    let args = ["--lang", "python", "--package", "no-such-package", "--timeout", "30s", "--code", "1"];
    let mut command = command(&args);
    command.env("SANDBOX_PYTHON_INDEX", index.address());
    check("summary-package-error", &summary_screen(&args, &command.output().unwrap()));
}

/// A language whose toolchain no host has.
const MISSING: &str = r#"
name = "missing"
extensions = []
source = "main"
entries = ["main"]
[find]
commands = ["there-is-no-such-command"]
describe = "true"
missing = "install nothing"
[run]
argv = ["/build/program"]
"#;

#[test]
fn lists_match() {
    let scripts = [("fine", "echo made > \"$OUT/state\"")];
    let (languages, data) = (staged_languages(&scripts), tempfile::tempdir().unwrap());
    std::fs::write(languages.path().join("missing.toml"), MISSING).unwrap();
    let archive = data.path().join("image.tar");
    let mut image = shell_image(&[]);
    image.rewind().unwrap();
    std::io::copy(&mut image, &mut std::fs::File::create(&archive).unwrap()).unwrap();
    let run = |args: &[&str]| {
        let mut command = command(args);
        command.env("SANDBOX_DATA_DIR", data.path()).env("SANDBOX_RUNTIMES", languages.path());
        screen(args, &command.output().unwrap()).replace(data.path().to_str().unwrap(), "DATA")
    };
    check("cache-list-empty", &run(&["cache", "list"]));
    check("image-list-empty", &run(&["image", "list"]));
    for args in [&["prepare", "fine"][..], &["image", "import", archive.to_str().unwrap(), "--name", "shell"]] {
        let printed = run(args);
        assert!(printed.ends_with("--- exit code 0\n"), "{printed}");
    }
    check("cache-list", &redact_text(&run(&["cache", "list"])));
    // The number of libraries of the shell depends on the host.
    let files = Regex::new(r"\d+ files?").unwrap();
    check("image-list", &files.replace(&redact_text(&run(&["image", "list"])), "FILES"));
    // Which languages have a toolchain, and where, depends on the host.
    let own = |line: &&str| {
        ["fine", "missing", "$", "---"].iter().any(|start| line.starts_with(start)) || line.contains("nothing")
    };
    let list: String = run(&["languages"]).lines().filter(own).map(|line| format!("{line}\n")).collect();
    let awk = list.split_whitespace().find(|word| word.ends_with("awk")).unwrap().to_owned();
    check("languages", &redact_text(&list).replace(&awk, "TOOLCHAIN"));
}

/// A directory that every user of a container can use.
fn shared_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    dir
}

/// A command in a container that refuses namespaces and mounts.
fn run_in_container(data: &Path, isolation: &str, args: &[&str]) -> Output {
    let mut command = in_container("user", data, args);
    // A build that measures coverage cannot write its counters there, and would complain.
    command.env("LLVM_PROFILE_FILE", "/dev/null");
    command.env("COLUMNS", "100").env("NO_COLOR", "1").env("SANDBOX_ISOLATION", isolation).output().unwrap()
}

#[test]
fn error_of_a_missing_layer_matches() {
    if !needs::root() {
        return;
    }
    let (data, args) = (shared_dir(), ["--lang", "python", "--code", "1"]);
    check("error-missing-layer", &screen(&args, &run_in_container(data.path(), "full", &args)));
}

#[test]
fn doctor_with_reduced_isolation_matches() {
    if !needs::root() {
        return;
    }
    let data = shared_dir();
    for isolation in ["full", "reduced"] {
        let output = run_in_container(data.path(), isolation, &["doctor"]);
        let shown = without_host_facts(&String::from_utf8(output.stdout).unwrap());
        let (layers, languages) = shown.split_once("\nLanguages\n").unwrap();
        let conclusion = languages.split_once("\n\nServer\n").unwrap().1;
        check(&format!("doctor-container-{isolation}"), &format!("{layers}\nLANGUAGES\n\nServer\n{conclusion}"));
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

/// The output of `doctor` without the facts of this host: kernel, toolchains, files, and unlimited kernel resources.
fn without_host_facts(text: &str) -> String {
    let mut shown = String::new();
    for section in text.split("\n\n") {
        let mut lines = section.lines();
        let title = lines.next().unwrap_or_default();
        match title.split(' ').next() {
            Some("Host") => shown.push_str("Host  KERNEL, USER, CGROUPS\n"),
            Some("Shared") => shown.push_str("POOLS\n"),
            Some("Prepared") => shown.push_str("PREPARED\n"),
            Some("Languages" | "Packages" | "Storage") => {
                let names = lines.filter_map(|line| line.strip_prefix("  ✓ ")?.split("  ").next());
                shown.push_str(&format!("{title}\n{}", names.map(|name| format!("  ✓ {name}\n")).collect::<String>()));
            }
            _ => shown.push_str(&format!("{}\n", section.trim_end())),
        }
        shown.push('\n');
    }
    shown
}

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
    check("doctor", &without_host_facts(&text));
}

#[test]
fn report_of_a_stopped_attack_matches() {
    if !needs::root() {
        return;
    }
    check("attack-only", &redact_text(&run(&["attack", "--only", "deceive/forged-result.py"])));
}
