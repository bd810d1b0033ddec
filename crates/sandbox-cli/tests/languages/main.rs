//! Every language through the command line, with the real toolchains: its features, and typical programs.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod added;
mod arguments;
mod packages;
mod projects;

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use sandbox_testing::command::{result, run_with_input_in};
use sandbox_testing::features::{Case, Harness, LanguageDir, Runner};
use serde_json::Value;

fn main() {
    let shipped = LanguageDir::shipped();
    let mut trials = every_language(&shipped, &[]);
    trials.extend(shipped.names().into_iter().flat_map(|language| programs(&shipped, &language)));
    let added = LanguageDir::added();
    let flags = ["--runtimes".to_owned(), added.path().display().to_string()];
    trials.extend(every_language(&added, &flags));
    let groups = [
        ("added", added::TESTS),
        ("arguments", arguments::TESTS),
        ("packages", packages::TESTS),
        ("projects", projects::TESTS),
    ];
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

/// What every language of a directory must be able to do, for a user who gives these flags.
fn every_language(languages: &LanguageDir, flags: &[String]) -> Vec<Trial> {
    let own = flags.to_vec();
    let runner: Arc<Runner> = Arc::new(move |case| run(case, &own));
    let mut trials = languages.trials(&runner);
    trials.extend(languages.names().into_iter().map(|language| {
        let (flags, snippets) = (flags.to_vec(), languages.features(&language).harness);
        Trial::test(format!("{language}::harness_template"), move || {
            harness_template(&language, &snippets, &flags);
            Ok(())
        })
    }));
    trials
}

/// Runs a case as a user would.
fn run(case: &Case, flags: &[String]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in &case.files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let mut args = vec!["--json".to_owned(), "--lang".to_owned(), case.language.clone()];
    args.extend_from_slice(flags);
    match &case.code {
        Some(code) => {
            args.extend(["--code".to_owned(), code.clone()]);
            args.extend(case.files.iter().map(|(name, _)| format!("--input={name}")));
        }
        None => args.push("--file=.".to_owned()),
    }
    let mut flag = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
    case.packages.iter().for_each(|package| flag("--package", package));
    case.timeout.iter().for_each(|timeout| flag("--timeout", timeout));
    case.memory.iter().for_each(|memory| flag("--memory", memory));
    flag("--stdin", "-");
    args.push("--".to_owned());
    args.extend(case.args.iter().cloned());
    result(&run_with_input_in(dir.path(), &args, case.stdin.as_bytes()))
}

/// The programs in a language's folder, each with its expected output.
fn programs(languages: &LanguageDir, language: &str) -> Vec<Trial> {
    let dir = languages.tests(language).join("programs");
    let mut trials = vec![];
    for entry in std::fs::read_dir(dir).unwrap() {
        let expected = entry.unwrap().path();
        if expected.extension().is_none_or(|ending| ending != "out") {
            continue;
        }
        let name = expected.file_stem().unwrap().to_str().unwrap().to_owned();
        let language = language.to_owned();
        let trial = Trial::test(format!("{language}::program::{name}"), move || {
            program(&language, &expected);
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
fn harness_template(language: &str, snippets: &Harness, flags: &[String]) {
    let Harness { function, good, cheating } = snippets;
    let run = |code: &str, cases: &str| {
        let (function, cases) = (format!("function={function}"), format!("cases:={cases}"));
        let args = ["--json", "--lang", language, "--template", "harness", "--timeout", "20s", "--code", code];
        let variables = ["--var", &function, "--var", &cases];
        let args: Vec<&str> = args.into_iter().chain(variables).chain(flags.iter().map(String::as_str)).collect();
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
    assert!(!cheated["stdout"].as_str().unwrap().contains("\"passed\":true"), "{cheated:#}");
    assert_eq!(cheated["error"], "the program ended before its template did", "{cheated:#}");
}
