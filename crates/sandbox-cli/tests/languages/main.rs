//! Every language through the command line, with the real toolchains: its features, and typical programs.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod packages;
mod projects;

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use sandbox_testing::command::{result, run_with_input_in};
use sandbox_testing::features::{Case, LANGUAGES, Runner, tests_dir};
use serde_json::Value;

fn main() {
    let runner: Arc<Runner> = Arc::new(run);
    let mut trials = sandbox_testing::features::trials(&runner);
    trials.extend(LANGUAGES.into_iter().flat_map(programs));
    trials.extend(LANGUAGES.into_iter().map(|language| {
        Trial::test(format!("{language}::harness_template"), move || {
            harness_template(language);
            Ok(())
        })
    }));
    let groups = [("packages", packages::TESTS), ("projects", projects::TESTS)];
    for (group, tests) in groups {
        trials.extend(tests.iter().map(|(name, test)| {
            Trial::test(format!("{group}::{name}"), move || {
                test();
                Ok(())
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Runs a case as a user would.
fn run(case: &Case) -> Value {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in &case.files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let mut args = vec!["--json".to_owned(), "--lang".to_owned(), case.language.clone()];
    let mut flag = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
    match &case.code {
        Some(code) => {
            flag("--code", code);
            case.files.iter().for_each(|(name, _)| flag("--input", name));
        }
        None => flag("--file", "."),
    }
    case.packages.iter().for_each(|package| flag("--package", package));
    case.timeout.iter().for_each(|timeout| flag("--timeout", timeout));
    case.memory.iter().for_each(|memory| flag("--memory", memory));
    flag("--stdin", "-");
    args.push("--".to_owned());
    args.extend(case.args.iter().cloned());
    result(&run_with_input_in(dir.path(), &args, case.stdin.as_bytes()))
}

/// The programs in a language's folder, each with its expected output.
fn programs(language: &'static str) -> Vec<Trial> {
    let dir = tests_dir().join("programs").join(language);
    let mut trials = vec![];
    for entry in std::fs::read_dir(dir).unwrap() {
        let expected = entry.unwrap().path();
        if expected.extension().is_none_or(|ending| ending != "out") {
            continue;
        }
        let name = expected.file_stem().unwrap().to_str().unwrap().to_owned();
        let trial = Trial::test(format!("{language}::program::{name}"), move || {
            program(language, &expected);
            Ok(())
        });
        trials.push(trial);
    }
    assert!(trials.len() >= 10, "{language} has only {} programs", trials.len());
    trials
}

fn program(language: &str, expected: &Path) {
    let dir = expected.parent().unwrap();
    let stem = expected.file_stem().unwrap().to_str().unwrap();
    let is_source = |path: &Path| {
        path.file_stem().is_some_and(|other| other == stem)
            && path.extension().is_some_and(|ending| ending != "out" && ending != "in")
    };
    let mut files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let source = files.find(|path| is_source(path)).unwrap();
    let input = std::fs::read(expected.with_extension("in")).unwrap_or_default();
    let file = source.file_name().unwrap().to_str().unwrap();
    let args = ["--json", "--lang", language, "--file", file, "--timeout", "20s", "--stdin", "-"];
    let result = result(&run_with_input_in(dir, &args, &input));
    assert_eq!(result["verdict"], "ok", "{result:#}");
    assert_eq!(result["stdout"].as_str().unwrap(), std::fs::read_to_string(expected).unwrap());
}

/// The harness of the product: cases that pass, cases that fail, and a snippet that cheats.
fn harness_template(language: &str) {
    let (function, good, cheating) = match language {
        "python" => ("add", "def add(a, b):\n    return a + b", "import os\ndef add(a, b):\n    os._exit(0)"),
        "javascript" => ("add", "const add = (a, b) => a + b", "const add = () => process.exit(0)"),
        "typescript" => (
            "add",
            "function add(a: number, b: number): number { return a + b }",
            "function add(a: number, b: number): number { process.exit(0) }",
        ),
        "go" => {
            ("add", "func add(a, b int) int { return a + b }", "func add(a, b int) int { harnessOS.Exit(0); return 0 }")
        }
        "rust" => (
            "add",
            "fn add(a: i32, b: i32) -> i32 { a + b }",
            "fn add(_: i32, _: i32) -> i32 { std::process::exit(0) }",
        ),
        "java" => (
            "Solution.add",
            "class Solution { static int add(int a, int b) { return a + b; } }",
            "class Solution { static int add(int a, int b) { System.exit(0); return 0; } }",
        ),
        "c" => ("add", "int add(int a, int b) { return a + b; }", "int add(int a, int b) { exit(0); }"),
        "cpp" => ("add", "int add(int a, int b) { return a + b; }", "int add(int, int) { std::exit(0); }"),
        "bash" => ("add", "add() { echo $(($1 + $2)); }", "exit 0"),
        other => panic!("no snippet for {other}"),
    };
    let run = |code: &str, cases: &str| {
        let (function, cases) = (format!("function={function}"), format!("cases:={cases}"));
        let args = [
            "--json",
            "--lang",
            language,
            "--template",
            "harness",
            "--var",
            &function,
            "--var",
            &cases,
            "--code",
            code,
            "--timeout",
            "20s",
        ];
        result(&run_with_input_in(Path::new("/"), &args, b""))
    };
    let reports = |result: &Value| -> Vec<Value> {
        result["stdout"].as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let passing = run(good, r#"[{"args": [1, 2], "expected": 3}, {"args": [-1, 1], "expected": 0}]"#);
    assert_eq!(passing["verdict"], "ok", "{passing:#}");
    assert_eq!(reports(&passing).iter().map(|r| r["passed"].clone()).collect::<Vec<_>>(), [true, true]);
    let failing = run(good, r#"[{"args": [1, 2], "expected": 3}, {"args": [2, 2], "expected": 5}]"#);
    assert_eq!((&failing["verdict"], &failing["exit_code"]), (&"runtime_error".into(), &1.into()), "{failing:#}");
    assert_eq!(failing["error"], "1 of 2 cases failed");
    assert_eq!(reports(&failing).iter().map(|r| r["passed"].clone()).collect::<Vec<_>>(), [true, false]);
    let cheated = run(cheating, r#"[{"args": [1, 2], "expected": 3}]"#);
    assert_eq!(cheated["success"], false, "{cheated:#}");
    if language == "bash" {
        // There, a function runs in a separate process, so the snippet ends the program before any case.
        assert_eq!(cheated["stdout"], "");
    }
    assert_eq!(cheated["error"], "the program ended before its template did", "{cheated:#}");
}
