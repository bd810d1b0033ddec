//! Hints: the line that says what to change after a failure.

use std::process::Output;

use sandbox_testing::command::{result, run, run_with_input, sandbox};
use sandbox_testing::data_dir;

/// The lines of standard error that begin with `hint:`.
fn hints(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    stderr.lines().filter_map(|line| line.strip_prefix("hint: ")).map(str::to_owned).collect()
}

/// Checks that a run ends in one line with this hint, and that its result has the same.
#[track_caller]
fn check(args: &[&str], hint: &str) {
    // What compilers need once is there, or is prepared for all tests.
    let run = |args: &[&str]| sandbox(args).env("SANDBOX_DATA_DIR", data_dir()).output().unwrap();
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{stderr}");
    assert_eq!(stderr.lines().last(), Some(format!("hint: {hint}").as_str()), "{stderr}");
    assert_eq!(hints(&output).len(), 1, "{stderr}");
    let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    let mut json = args.to_vec();
    json.insert(at, "--json");
    let output = run(&json);
    assert_eq!(result(&output)["hint"], hint, "{json:?}");
}

fn python(code: &str) -> [&str; 6] {
    ["--lang", "python", "--timeout", "30s", "--code", code]
}

#[test]
fn a_missing_module_names_its_package() {
    check(&python("import cv2"), "install the missing package with --package opencv-python");
    check(
        &python("import helper_of_mine.part"),
        "if 'helper_of_mine' belongs to a package, install it with --package helper_of_mine; if it is a file of yours, \
         add it with --input",
    );
    let javascript = |code| ["--lang", "javascript", "--timeout", "30s", "--code", code];
    check(&javascript("require('lodash/fp')"), "install the missing package with --package lodash");
    check(&javascript("import chalk from 'chalk'"), "install the missing package with --package chalk");
    let output = run(&javascript("require('./helper')"));
    assert_eq!((output.status.code(), hints(&output)), (Some(1), vec![]));
}

#[test]
fn a_missing_package_of_a_compiled_language_is_named() {
    let go = "package main\nimport \"github.com/google/uuid\"\nfunc main() { println(uuid.NewString()) }";
    check(&["--lang", "go", "--code", go], "install the missing package with --package github.com/google/uuid");
    let rust = "use rand::Rng;\nfn main() { let _: u8 = serde_json::from_str(\"1\").unwrap(); }";
    check(&["--lang", "rust", "--code", rust], "install the missing packages with --package rand --package serde_json");
    let java = "import com.google.gson.Gson; class Main { public static void main(String[] a) { new Gson(); } }";
    check(
        &["--lang", "java", "--code", java],
        "install the missing package with --package com.google.code.gson:gson:2.11.0",
    );
    let java = "import org.example.made.up.Thing; class Main { public static void main(String[] a) { } }";
    check(
        &["--lang", "java", "--code", java],
        "install the package that contains 'org.example.made.up', in the form --package com.google.code.gson:gson:2.11.0",
    );
}

#[test]
fn a_program_without_network_names_the_host() {
    let allow = |host: &str| format!("programs have no network by default; allow it with {host}");
    let code = "import urllib.request; urllib.request.urlopen('http://example.com/')";
    check(&python(code), &allow("--allow-host example.com"));
    let code = "import socket; socket.create_connection(('127.0.0.1', 80))";
    check(&python(code), &allow("--network localhost"));
    let code = "import socket; socket.create_connection(('.'.join('1234'), 80))";
    check(&python(code), &allow("--allow-host HOST, or --network full"));
    let code = "import urllib.request; urllib.request.urlopen('http://example.org/')";
    let mut args = python(code).to_vec();
    args.extend(["--allow-host", "example.com"]);
    check(&args, "allow the host with --allow-host example.org");
}

#[test]
fn empty_standard_input_is_told() {
    check(
        &python("input()"),
        "standard input is empty; pass a file with --stdin FILE, or the input of this command with --stdin -",
    );
    let mut args = python("input(); input()").to_vec();
    args.extend(["--stdin", "-"]);
    let output = run_with_input(&args, b"one line\n");
    assert_eq!((output.status.code(), hints(&output)), (Some(1), vec![]), "there was input, and it was read");
}

#[test]
fn limits_name_their_flags() {
    let with = |code, flags: &[&'static str]| [&python(code)[..], flags].concat();
    let raise = |what: &str| format!("raise the {what}");
    let big = "open('big', 'wb').write(b'x' * 9_000_000)";
    check(&with(big, &["--disk", "4m"]), &raise("disk limit, for example with --disk 8m"));
    check(&with(big, &["--file-size", "4m"]), &raise("file size limit, for example with --file-size 8m"));
    let slow = ["--lang", "python", "--timeout", "500ms", "--code", "while True: pass"];
    check(&slow, &raise("time limit, for example with --timeout 1s"));
    let threads = "import threading, time\nfor n in range(99): threading.Thread(target=time.sleep, args=[9]).start()";
    check(&with(threads, &["--processes", "9"]), &raise("process limit, for example with --processes 18"));
    check(
        &["exec", "--", "sh", "-c", "kill -9 $$"],
        "a process was killed; if memory ran out, raise the memory limit, for example with --memory 512m",
    );
}

#[test]
fn a_limit_at_its_maximum_names_the_variable() {
    let mut command = sandbox(&["--lang", "python", "--timeout", "500ms", "--code", "while True: pass"]);
    let output = command.env("SANDBOX_MAX_TIMEOUT", "500ms").output().unwrap();
    assert_eq!(hints(&output), ["the time limit is at its maximum, which SANDBOX_MAX_TIMEOUT sets"]);
}

#[test]
fn a_missing_toolchain_or_tool_names_the_debian_package() {
    let mut command = sandbox(&["--lang", "python", "--package", "six", "--code", "1"]);
    let output = command.env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").output().unwrap();
    // Where the tool is installed for all users, it is found.
    if output.status.code() == Some(2) {
        assert_eq!(hints(&output), ["install uv (Debian: apt-get install pipx && pipx install uv)"]);
    }
}

#[test]
fn hints_are_part_of_the_summary() {
    let mut args = python("import cv2").to_vec();
    args.push("--quiet");
    let stderr = String::from_utf8_lossy(&run(&args).stderr).into_owned();
    assert!(stderr.contains("ModuleNotFoundError") && !stderr.contains("hint:"), "{stderr}");
    let output = run(&python("try:\n    import cv2\nexcept ImportError as error:\n    raise SystemExit(0)"));
    assert_eq!((output.status.code(), hints(&output)), (Some(0), vec![]));
}

#[test]
fn hints_repeat_no_control_characters() {
    let code = r#"import sys; sys.stderr.write("ModuleNotFoundError: No module named '\x1b]0;x\x07'\n"); sys.exit(1)"#;
    let output = run(&python(code));
    assert_eq!((output.status.code(), hints(&output)), (Some(1), vec![]));
    let code = r#"import sys; sys.stderr.write("ModuleNotFoundError: No module named 'a$(reboot)'\n"); sys.exit(1)"#;
    assert_eq!(hints(&run(&python(code))), Vec::<String>::new());
}
