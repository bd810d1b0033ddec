//! Output formats, for people and for programs.

use sandbox_testing::command::{binary, fixture, program, python, run, run_with_input, sandbox};
use serde_json::Value;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_result_has_every_field() {
    let result = python("print(2+2)", &[]);
    for (field, value) in [
        ("status", Value::from("success")),
        ("verdict", "ok".into()),
        ("success", true.into()),
        ("language", "python".into()),
        ("stdout", "4\n".into()),
        ("stderr", "".into()),
        ("stdout_truncated", false.into()),
        ("stderr_truncated", false.into()),
        ("exit_code", 0.into()),
        ("signal", Value::Null),
        ("result", "4".into()),
        ("error", Value::Null),
        ("limit", Value::Null),
        ("compile", Value::Null),
    ] {
        assert_eq!(result[field], value, "{field}");
    }
    assert!(result["version"].as_str().unwrap().starts_with("3."));
    assert!(result["execution_time"].as_f64().unwrap() > 0.0);
    assert!(result["memory_used"].as_u64().unwrap() > 1 << 20);
    assert_eq!(result["metrics"]["phases"].as_object().unwrap().len(), 6);
    assert!(result["files"].is_object());
}

#[test]
fn errors_include_their_type() {
    let result = python("print(undefined_variable)", &[]);
    assert_eq!(result["error"], "NameError: name 'undefined_variable' is not defined");
    assert_eq!(
        (&result["verdict"], &result["exit_code"], &result["result"]),
        (&"runtime_error".into(), &1.into(), &Value::Null)
    );
    assert_eq!(python("def", &[])["error"], "SyntaxError: invalid syntax");
}

#[test]
fn exit_codes_of_programs_are_passed_on() {
    for code in [0, 1, 3, 77, 255] {
        let output = run(&["--lang", "python", "--quiet", "--code", &format!("raise SystemExit({code})")]);
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn signals_are_reported_and_become_exit_codes() {
    for (number, name) in [(11, "SIGSEGV"), (6, "SIGABRT"), (9, "SIGKILL"), (8, "SIGFPE")] {
        let result = program(&["raise", &number.to_string()], &[]);
        assert_eq!((&result["signal"], &result["exit_code"]), (&name.into(), &Value::Null));
        assert_eq!(result["verdict"], "runtime_error");
        let path = fixture().to_str().unwrap();
        let output = run(&["exec", "--quiet", "--", path, "raise", &number.to_string()]);
        assert_eq!(output.status.code(), Some(128 + number));
    }
}

#[test]
fn limits_become_exit_codes() {
    let code = |args: &[&str]| run(args).status.code();
    assert_eq!(code(&["-l", "python", "-q", "-t", "300ms", "-c", "while True: pass"]), Some(124));
    assert_eq!(code(&["-l", "python", "-q", "-m", "32m", "-c", "bytearray(100 << 20)"]), Some(137));
}

#[test]
fn text_keeps_pipes_clean() {
    let output = run(&["--lang", "python", "--code", "import sys; print('out'); print('err', file=sys.stderr)"]);
    assert_eq!(text(&output.stdout), "out\n");
    let stderr = text(&output.stderr);
    let (own, summary) = stderr.split_once('\n').unwrap();
    assert_eq!(own, "err");
    assert!(summary.starts_with("✓ ok · python 3."), "{summary}");
    assert!(!summary.contains('\x1b'), "no colours outside a terminal: {summary:?}");
    let quiet = run(&["--lang", "python", "--quiet", "--code", "print('out')"]);
    assert_eq!((text(&quiet.stdout), text(&quiet.stderr)), ("out\n".to_owned(), String::new()));
}

#[test]
fn bytes_pass_unchanged_through_pipes() {
    let code = "import sys; sys.stdout.buffer.write(bytes(range(256)))";
    let output = run(&["--lang", "python", "--quiet", "--code", code]);
    assert_eq!(output.stdout, (0..=255).collect::<Vec<u8>>());
    let result = python(code, &[]);
    assert!(result["stdout_base64"].as_str().unwrap().starts_with("AAECAwQF"));
}

#[test]
fn a_terminal_is_protected() {
    let binary = binary();
    // `script` gives the command a terminal; its output is what a person would see.
    let seen = |raw: &str| {
        let code = r"print('\x1b]0;owned\x07\x1b[31mred')";
        let line = format!("{binary} -l python {raw} --code \"{code}\"");
        let output = std::process::Command::new("script")
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .args(["-qec", &line, "/dev/null"])
            .output()
            .unwrap();
        text(&output.stdout)
    };
    let safe = seen("");
    let error = std::process::Command::new("script")
        .env("TERM", "xterm")
        .args([
            "-qec",
            &format!("{binary} -l python --code \"import sys; sys.stderr.write('\\x1b[2Jred')\" > /dev/null"),
            "/dev/null",
        ])
        .output()
        .unwrap();
    assert!(text(&error.stdout).contains("␛[2Jred\r\n"), "standard error is a terminal too: {:?}", text(&error.stdout));
    assert!(safe.contains("␛]0;owned␇\x1b[31mred\r\n\x1b[0m"), "{safe:?}");
    assert!(safe.contains("\x1b[1m\x1b[32m✓ ok"), "the summary is coloured on a terminal: {safe:?}");
    assert!(seen("--raw").contains("\x1b]0;owned\x07"));
}

#[test]
fn events_are_one_json_object_per_line_with_the_result_last() {
    let code = "import sys; print('grüße'); print('e', file=sys.stderr)";
    let output = run(&["--lang", "python", "--format", "stream-json", "--code", code]);
    let events: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["event"], "start");
    assert_eq!(events[0]["language"], "python");
    let of = |stream: &str| -> String {
        events.iter().filter(|e| e["event"] == stream).map(|e| e["data"].as_str().unwrap()).collect()
    };
    assert_eq!((of("stdout"), of("stderr")), ("grüße\n".to_owned(), "e\n".to_owned()));
    let last = events.last().unwrap();
    assert_eq!(last["event"], "result");
    assert_eq!(last["result"]["stdout"], "grüße\n");
}

#[test]
fn code_comes_from_flag_file_or_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hello.py");
    std::fs::write(&file, "import sys\nprint('file', sys.argv[1:], __file__)").unwrap();
    let output = run(&["--quiet", "--file", file.to_str().unwrap(), "--", "a", "--b"]);
    assert_eq!(text(&output.stdout), "file ['a', '--b'] /sandbox/hello.py\n");
    let output = run_with_input(&["--lang", "py", "--quiet"], b"print('stdin')");
    assert_eq!(text(&output.stdout), "stdin\n");
}

#[test]
fn programs_get_input_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::write(&data, "some data").unwrap();
    let output = run(&["-l", "python", "-q", "--stdin", data.to_str().unwrap(), "-c", "print(input().upper())"]);
    assert_eq!(text(&output.stdout), "SOME DATA\n");
    let output = run(&["-l", "python", "-q", "-c", "import sys; print(repr(sys.stdin.read()))"]);
    assert_eq!(text(&output.stdout), "''\n");
}

#[test]
fn the_environment_is_not_inherited() {
    let code = "import os; print(sorted(os.environ.items()))";
    let mut command = sandbox(&["-l", "python", "-q", "--env", "A=1", "--env", "HOME=/tmp", "-c", code]);
    let output = command.env("SECRET", "hidden").output().unwrap();
    let seen = text(&output.stdout);
    assert!(seen.contains("('A', '1')") && seen.contains("('HOME', '/tmp')"), "{seen}");
    assert!(!seen.contains("SECRET") && !seen.contains("hidden"), "{seen}");
}

#[test]
fn imports_of_the_standard_library_work() {
    let code = "
import sys, os, json, re, math, threading, subprocess, tempfile, socket, ssl, hashlib, sqlite3, multiprocessing, asyncio, ctypes
with tempfile.NamedTemporaryFile() as f: f.write(b'x')
print(json.dumps({'v': sys.version_info[0], 'n': len(re.findall('a', 'banana')), 'c': os.cpu_count() > 0}))
print(subprocess.run(['echo', 'sub'], capture_output=True, text=True).stdout.strip())
with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))
async def f(): return await asyncio.sleep(0, 'async')
print(asyncio.run(f()))
";
    let result = python(code, &["--timeout", "60s"]);
    assert_eq!(result["stdout"], "{\"v\": 3, \"n\": 3, \"c\": true}\nsub\n[1, 2]\nasync\n", "{result:#}");
}

#[test]
fn help_and_completions_are_printed() {
    let help = text(&run(&["--help"]).stdout);
    for word in ["--lang", "--timeout", "Examples:", "Exit code:", "doctor"] {
        assert!(help.contains(word), "{word}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&run(&["completions", shell]).stdout).contains("sandbox-run"), "{shell}");
    }
    assert!(text(&run(&["--version"]).stdout).starts_with("sandbox-run 0."));
    let manual = text(&run(&["man"]).stdout);
    for section in ["NAME", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT"] {
        assert!(manual.contains(&format!(".SH {section}\n")), "{section}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(run(&["man", dir.path().to_str().unwrap()]).status.success());
    assert!(dir.path().join("sandbox-run-image-import.1").is_file());
}

#[test]
fn doctor_reports_which_layers_work() {
    let output = run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(report["policy_met"] != true)));
    assert_eq!(report["layers"].as_array().unwrap().len(), 12);
    let missing = report["layers"].as_array().unwrap().iter().filter(|layer| layer["works"] == false);
    assert!(missing.clone().all(|layer| layer["fix"].is_string() && layer["why"].is_string()));
    let shown = text(&run(&["doctor"]).stdout);
    assert!(shown.contains("Isolation") && shown.contains("python"), "{shown}");
}

#[test]
fn doctor_reports_what_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let redis = format!("unix://{}", dir.path().join("redis.sock").display());
    let mut command = sandbox(&["doctor", "--json"]);
    command.env("SANDBOX_DATA_DIR", dir.path().join("data")).env("REDIS_URL", &redis).env("SANDBOX_BACKEND", "oci");
    command.env("SANDBOX_OCI_RUNTIME", "no-such-runtime");
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(report["redis"]["state"], "missing");
    assert_eq!(report["backend"]["what"], "no-such-runtime was not found");
    assert_eq!(report["storage"][0]["name"], "data directory");
    let prepared = report["prepared"].as_array().unwrap();
    assert!(prepared.iter().all(|check| check["state"] != "ok" && check["fix"].is_string()), "{prepared:?}");
    let packages = report["packages"].as_array().unwrap();
    assert!(packages.iter().any(|check| check["name"] == "python"), "{packages:?}");
}
