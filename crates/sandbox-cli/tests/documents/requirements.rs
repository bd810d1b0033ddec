//! The list of requirements is complete, and every test that it or the promises about jobs name exists.

use std::path::{Path, PathBuf};

use regex_lite::Regex;

use sandbox_testing::repository;

/// The number of requirements of each kind, in the order of the document.
const ALL: [(&str, usize); 4] = [("S", 9), ("M", 27), ("A", 7), ("P", 6)];

#[test]
fn every_requirement_is_listed_with_existing_tests() {
    let document = std::fs::read_to_string(repository().join("docs/REQUIREMENTS.md")).unwrap();
    let row = Regex::new(r"(?m)^\| ([A-Z]\d+) \| .* \| ([^|]*) \|$").unwrap();
    let rows: Vec<(String, String)> =
        row.captures_iter(&document).map(|row| (row[1].to_owned(), row[2].to_owned())).collect();
    let all = ALL.iter().flat_map(|(kind, number)| (1..=*number).map(move |at| format!("{kind}{at}")));
    assert_eq!(rows.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), all.collect::<Vec<_>>());

    let name = Regex::new(r"`([^`]+)`").unwrap();
    let mut missing = vec![];
    for (id, shown_by) in &rows {
        assert!(shown_by.contains(['`', '[']), "{id}: nothing verifies it");
        let names = name.captures_iter(shown_by).map(|found| found[1].to_owned());
        missing.extend(names.filter(|name| !exists(name)).map(|name| format!("{id}: {name}")));
    }
    assert!(missing.is_empty(), "these do not exist:\n{}", missing.join("\n"));
}

#[test]
fn every_promise_about_jobs_names_existing_tests() {
    let document = std::fs::read_to_string(repository().join("docs/RELIABILITY.md")).unwrap();
    let name = Regex::new("`([a-z_]+(?:::[a-z0-9_]+)+)`").unwrap();
    let names: Vec<&str> = name.captures_iter(&document).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(names.len() > 50, "{names:?}");
    let missing: Vec<&&str> =
        names.iter().filter(|name| !name.ends_with("::tests") && !job_test_exists(name)).collect();
    assert!(missing.is_empty(), "these do not exist: {missing:#?}");
    let promise = Regex::new(r"(?m)^\| .*\. \| ([^|]*) \|$").unwrap();
    for row in promise.captures_iter(&document) {
        assert!(name.is_match(&row[1]), "no test shows this: {}", &row[0]);
    }
}

/// Whether one of the crates with jobs has a test of this name, without the name of its crate or binary.
fn job_test_exists(name: &str) -> bool {
    let Some((modules, test)) = name.rsplit_once("::") else { return false };
    let file = |modules: &str| modules.replace("::", "/") + ".rs";
    // Tests are in a module of their file, or in a file of their own.
    let files = [Some(modules), modules.strip_suffix("::tests")].into_iter().flatten().map(file);
    let has = |file: String| {
        let roots = ["sandbox-jobs/src", "sandbox-server/src", "sandbox-server/tests/server"];
        roots.iter().any(|root| has_function(&repository().join("crates").join(root).join(&file), test))
    };
    files.into_iter().any(has)
}

fn exists(name: &str) -> bool {
    if let Some(target) = name.strip_prefix("make ") {
        let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
        makefile.lines().any(|line| line.starts_with(&format!("{target}:")))
    } else {
        repository().join(name).exists() || test_exists(&name.split("::").collect::<Vec<_>>())
    }
}

/// Whether there is a test of this name, or a file of tests.
fn test_exists(parts: &[&str]) -> bool {
    let Some((binary, rest)) = parts.split_first() else { return false };
    sources(binary).iter().any(|source| match rest {
        [] => source.exists(),
        [module, test @ ..] => {
            let file = source.with_file_name(format!("{module}.rs"));
            match test {
                [] => file.exists() || has_function(source, module),
                [test] => has_function(&file, test),
                _ => false,
            }
        }
    })
}

/// The source files of a test binary, or of a library with tests.
fn sources(binary: &str) -> Vec<PathBuf> {
    let crates = std::fs::read_dir(repository().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let candidates = |dir: PathBuf| {
        let library = dir.file_name().is_some_and(|name| name.to_string_lossy().replace('-', "_") == binary);
        let tests = dir.join("tests");
        let own = library.then(|| dir.join("src/lib.rs"));
        [Some(tests.join(format!("{binary}/main.rs"))), Some(tests.join(format!("{binary}.rs"))), own]
    };
    crates.flat_map(candidates).flatten().filter(|file| file.exists()).collect()
}

fn has_function(file: &Path, name: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|source| source.contains(&format!("fn {name}(")))
}

#[test]
fn missing_tests_are_noticed() {
    for name in ["make nothing", "crates/none", "cli::time::none", "cli::none", "none::time", "none"] {
        assert!(!exists(name), "{name}");
    }
    for name in ["redis::none", "redis::tests::none", "none::none", "none"] {
        assert!(!job_test_exists(name), "{name}");
    }
    for name in ["make test", "crates/sandbox-cli", "Makefile", "cli::time::sleeping", "cli::time", "leaks"] {
        assert!(exists(name), "{name}");
    }
}
