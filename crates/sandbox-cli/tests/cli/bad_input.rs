//! Invalid input: a one-line message with the fix, exit code 2, nothing created.

use sandbox_testing::command::{result, run, run_with_input, sandbox};

/// The error message of a command, which must be a single line.
fn complaint(output: &std::process::Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    let line = stderr.trim_end();
    line.strip_prefix("sandbox-run: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[test]
fn invalid_limits_are_refused() {
    let flags = [
        "timeout",
        "cpu-time",
        "memory",
        "cpus",
        "disk",
        "inodes",
        "processes",
        "output-limit",
        "open-files",
        "file-size",
    ];
    let values =
        ["0", "-1", "NaN", "inf", "-inf", "1e99", "", " ", "lots", "99999999999999999999", "0x10", "1,5", "\u{0661}"];
    for flag in flags {
        for value in values {
            let output = run(&["--lang", "python", "--code", "1", &format!("--{flag}"), value]);
            let line = complaint(&output);
            assert!(line.contains("limit"), "--{flag} {value:?}: {line}");
        }
    }
}

#[test]
fn messages_include_the_fix() {
    let line = |args: &[&str]| complaint(&run(args));
    let with = |flag: &str, value: &str| line(&["--lang", "python", "--code", "1", flag, value]);
    assert_eq!(
        with("--timeout", "soon"),
        "--timeout: invalid time limit \"soon\": expected seconds (3, 0.5) or a duration such as 500ms, 3s, 1m30s"
    );
    assert_eq!(with("--memory", "1k"), "--memory: memory limit 1 KiB is below the minimum of 4 MiB");
    assert_eq!(with("--timeout", "48h"), "--timeout: time limit 48h is above the maximum of 24h");
    assert_eq!(with("--pids", "1.5"), "--pids: invalid process limit \"1.5\": expected a whole number");
    assert_eq!(
        with("--env", "novalue"),
        "environment variable 'novalue' is not set here; give it a value with --env novalue=VALUE"
    );
    assert!(with("--require", "moat").starts_with("unknown isolation layer 'moat': expected one of user, pid"));
    assert_eq!(line(&["--lang", "pyhton", "--code", "1"]), "unknown language 'pyhton'; did you mean 'python'?");
    assert_eq!(line(&["--code", "1"]), "no language; set it with --lang, such as --lang python");
    assert_eq!(line(&["--lang", "python", "--code", "1", "--file", "x.py"]), "--code and --file cannot be combined");
    assert_eq!(line(&["--file", "/nowhere/x.py"]), "cannot read '/nowhere/x.py': no such file or directory");
    assert_eq!(line(&["--lang", "python", "--file", "/"]), "cannot read '/': it is the root directory");
    assert_eq!(line(&["--file", "notes.txt"]), "cannot read 'notes.txt': no such file or directory");
    assert_eq!(line(&["--lang", "python", "--code", ""]), "the code is empty");
    assert_eq!(
        line(&["--lang", "python", "--code", "1", "--stdin", "/nowhere"]),
        "cannot read '/nowhere': no such file or directory"
    );
    assert_eq!(
        line(&["exec", "--", "no-such-program"]),
        "cannot run no-such-program in the cell: no such file or directory"
    );
    assert_eq!(line(&["exec", "--", "/nowhere/x"]), "cannot run '/nowhere/x': no such file or directory");
}

#[test]
fn code_that_is_not_text_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let binary = file("binary.py", b"print(1)\xff");
    assert_eq!(
        complaint(&run(&["--file", &binary])),
        format!("the code in '{binary}' is not UTF-8 (byte 8); save it as UTF-8")
    );
    let nul = file("nul.py", b"print(1)\0");
    assert_eq!(complaint(&run(&["--file", &nul])), "the code contains a NUL byte");
    let long = file("long.py", &vec![b'#'; 10_000_000]);
    assert_eq!(
        complaint(&run(&["--file", &long])),
        "the code has 10000000 bytes, the maximum is 4194304; pass data as files"
    );
    assert_eq!(
        complaint(&run_with_input(&["--lang", "python"], b"\xfe\xff")),
        "the code in standard input is not UTF-8 (byte 0); save it as UTF-8"
    );
}

#[test]
fn standard_input_cannot_be_both_code_and_input() {
    let output = run_with_input(&["--lang", "python", "--stdin", "-"], b"print(1)");
    assert!(complaint(&output).starts_with("standard input cannot be both"));
}

#[test]
fn too_long_arguments_are_refused() {
    let long = "x".repeat(120_000);
    let output = run(&["--lang", "python", "--code", "1", "--", &long, &long]);
    assert!(complaint(&output).starts_with("arguments and environment have 240004 bytes in total"));
}

#[test]
fn unknown_flags_are_usage_errors() {
    let output = run(&["--no-such-flag"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-such-flag"));
}

#[test]
fn all_invalid_settings_are_reported_together() {
    let output = sandbox(&["--lang", "python", "--code", "1"])
        .env("SANDBOX_MEMORY", "lots")
        .env("SANDBOX_MAX_PROCESSES", "-3")
        .output()
        .unwrap();
    let line = complaint(&output);
    assert!(line.contains("SANDBOX_MEMORY: ") && line.contains("SANDBOX_MAX_PROCESSES: "), "{line}");
}

#[test]
fn a_missing_toolchain_is_reported_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let definition = "name = \"lua\"\nsource = \"main.lua\"\n[find]\ncommands = [\"no-such-lua\"]\ndescribe = \"\"\n\
                      missing = \"install Lua 5.4\"\n[run]\nargv = [\"{executable}\", \"{entry}\"]\n";
    std::fs::write(dir.path().join("lua.toml"), definition).unwrap();
    let runtimes = dir.path().to_str().unwrap();
    let output = run(&["--runtimes", runtimes, "--lang", "lua", "--code", "1"]);
    let complaint = "sandbox-run: a toolchain for lua was not found on this host\nhint: install Lua 5.4\n";
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(2), complaint));
    let result = result(&run(&["--runtimes", runtimes, "--lang", "lua", "--code", "1", "--json"]));
    assert_eq!(result["error"], "a toolchain for lua was not found on this host");
    assert_eq!(result["hint"], "install Lua 5.4");
    let list = run(&["languages", "--runtimes", runtimes]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("install Lua 5.4"));
}
