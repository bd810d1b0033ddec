//! The features that every language must support, checked in the same way through the command line and through the
//! library. `languages/NAME/tests/features.toml` contains a program for each feature.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;

use crate::{data_dir, repository};

/// A directory of languages, each a directory with a definition and tests.
#[derive(Debug, Clone)]
pub struct LanguageDir(PathBuf);

impl LanguageDir {
    /// The languages that come with the program.
    #[must_use]
    pub fn shipped() -> Self {
        Self(repository().join("languages"))
    }

    /// A language that the program does not know: its definition has to be read with `--runtimes`.
    #[must_use]
    pub fn added() -> Self {
        Self(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/languages"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names of the languages.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The directory with the tests of a language.
    #[must_use]
    pub fn tests(&self, language: &str) -> PathBuf {
        self.0.join(language).join("tests")
    }

    /// The programs of a language's features, and what they print.
    #[must_use]
    pub fn features(&self, language: &str) -> Features {
        let file = self.tests(language).join("features.toml");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let features: Features = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let definition = std::fs::read_to_string(self.0.join(language).join("language.toml")).unwrap();
        let definition: toml::Table = toml::from_str(&definition).unwrap();
        let extension = definition["extensions"][0].as_str().unwrap().to_owned();
        Features { extension, ..features }
    }

    /// A test for each language and feature.
    #[must_use]
    pub fn trials(&self, runner: &Arc<Runner>) -> Vec<Trial> {
        let mut trials = vec![];
        for language in self.names() {
            let features = Arc::new(self.features(&language));
            for (name, check) in CHECKS {
                if *name == "package" && features.package.is_none() {
                    continue;
                }
                let (runner, features, language) = (Arc::clone(runner), Arc::clone(&features), language.clone());
                trials.push(Trial::test(format!("{language}::{name}"), move || {
                    check(&language, &features, &*runner);
                    Ok(())
                }));
            }
        }
        trials
    }
}

/// A run that a test requests.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// The language.
    pub language: String,
    /// The code, unless it is one of the files.
    pub code: Option<String>,
    /// Names and contents of files.
    pub files: Vec<(String, String)>,
    /// Standard input.
    pub stdin: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Packages to install.
    pub packages: Vec<String>,
    /// The time limit.
    pub timeout: Option<&'static str>,
    /// The memory limit.
    pub memory: Option<&'static str>,
}

/// Runs a case and returns its result.
pub type Runner = dyn Fn(&Case) -> Value + Send + Sync;

/// A program for each feature of a language.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// The extension of source files.
    #[serde(skip)]
    extension: String,
    hello: String,
    echo: String,
    args: String,
    file_io: String,
    exit: String,
    timeout: String,
    memory: String,
    unicode: String,
    runtime_error: Failing,
    compile_error: Failing,
    several: Several,
    package: Option<Package>,
    /// Snippets for the template `harness`.
    pub harness: Harness,
}

/// Snippets that define a function which adds two numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Harness {
    /// The name of the function.
    pub function: String,
    /// A snippet that does it.
    pub good: String,
    /// A snippet that ends the program instead.
    pub cheating: String,
}

#[derive(Debug, Deserialize)]
struct Failing {
    code: String,
    #[serde(default)]
    verdict: Option<String>,
    error: String,
    stderr: String,
}

#[derive(Debug, Deserialize)]
struct Several {
    files: BTreeMap<String, String>,
    stdout: String,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    code: String,
    stdout: String,
    bad: String,
    bad_error: String,
}

/// A check of the features of a language.
type FeatureCheck = fn(&str, &Features, &Runner);

const CHECKS: &[(&str, FeatureCheck)] = &[
    ("hello", hello),
    ("stdin", stdin),
    ("arguments", arguments),
    ("file_io", file_io),
    ("several_files", several_files),
    ("file_names", file_names),
    ("package", package),
    ("runtime_error", runtime_error),
    ("compile_error", compile_error),
    ("timeout", timeout),
    ("memory_limit", memory_limit),
    ("exit_code", exit_code),
    ("unicode", unicode),
];

fn case(language: &str, code: &str) -> Case {
    Case { language: language.to_owned(), code: Some(code.to_owned()), timeout: Some("20s"), ..Case::default() }
}

fn succeeded(result: &Value) -> &str {
    assert_eq!(result["verdict"], "ok", "{result:#}");
    result["stdout"].as_str().unwrap()
}

fn hello(language: &str, features: &Features, run: &Runner) {
    let result = run(&case(language, &features.hello));
    assert_eq!(succeeded(&result), "hello\n");
    assert_eq!((&result["exit_code"], &result["language"]), (&0.into(), &language.into()));
    assert!(result["version"].as_str().unwrap().contains('.'));
    // The second time, nothing is compiled.
    if !result["compile"].is_null() {
        let again = run(&case(language, &features.hello));
        assert_eq!((succeeded(&again), &again["compile"]["cached"]), ("hello\n", &true.into()));
    }
}

fn stdin(language: &str, features: &Features, run: &Runner) {
    let result = run(&Case { stdin: "abc\nxyz\n".to_owned(), ..case(language, &features.echo) });
    assert_eq!(succeeded(&result), "cba\nzyx\n");
}

fn arguments(language: &str, features: &Features, run: &Runner) {
    let args = ["one", "--two", "th ree", "$4", "-ü 世界"].map(str::to_owned).to_vec();
    assert_eq!(succeeded(&run(&Case { args, ..case(language, &features.args) })), "one|--two|th ree|$4|-ü 世界\n");
}

fn file_io(language: &str, features: &Features, run: &Runner) {
    let files = vec![("in.txt".to_owned(), "some text\n".to_owned())];
    let result = run(&Case { files, ..case(language, &features.file_io) });
    succeeded(&result);
    let out = &result["files"]["out.txt"];
    assert_eq!((&out["content"], &out["encoding"]), (&"SOME TEXT\n".into(), &"utf-8".into()));
    assert_eq!(result["files"].as_object().unwrap().len(), 1, "input and source are not collected: {result:#}");
}

fn several_files(language: &str, features: &Features, run: &Runner) {
    let files = features.several.files.clone().into_iter().collect();
    let result = run(&Case { code: None, files, ..case(language, "") });
    assert_eq!(succeeded(&result), features.several.stdout);
}

/// Names as people and programs give them, which must be neither split nor taken for options.
fn file_names(language: &str, features: &Features, run: &Runner) {
    let ending = &features.extension;
    let data = || ("-data/in put ü.txt".to_owned(), "text".to_owned());
    for name in ["my prog ünï", "-prog", "@prog", "-dir/with space/文件 $x'\"&;"] {
        let files = vec![(format!("{name}.{ending}"), features.hello.clone()), data()];
        let result = run(&Case { code: None, files, ..case(language, "") });
        assert_eq!(succeeded(&result), "hello\n", "{name}");
    }
    let files = vec![("in.txt".to_owned(), "some text\n".to_owned()), data()];
    let result = run(&Case { files, ..case(language, &features.file_io) });
    assert_eq!((succeeded(&result), result["files"].as_object().unwrap().len()), ("", 1), "{result:#}");
}

fn package(language: &str, features: &Features, run: &Runner) {
    let package = features.package.as_ref().unwrap();
    let with = |name: &str| run(&Case { packages: vec![name.to_owned()], ..case(language, &package.code) });
    assert_eq!(succeeded(&with(&package.name)), package.stdout);
    // Installed once and reused afterwards: a reinstalled environment would be another directory of the same name.
    let installed = environments();
    assert_eq!(succeeded(&with(&package.name)), package.stdout);
    let after = environments();
    assert!(!installed.is_empty() && installed.is_subset(&after), "{installed:?} {after:?}");
    let bad = with(&package.bad);
    assert_eq!(bad["verdict"], "package_error", "{bad:#}");
    let error = bad["error"].as_str().unwrap();
    assert!(error.contains(&package.bad_error), "{error}");
    assert!(!bad["stderr"].as_str().unwrap().is_empty(), "the installer's message");
}

/// The installed environments, each with its inode number.
fn environments() -> BTreeSet<(OsString, u64)> {
    let entries = std::fs::read_dir(data_dir().join("environments")).into_iter().flatten().flatten();
    // Environments that other tests are installing have an extension.
    let finished = |path: &Path| path.extension().is_none() && path.join("content").is_dir();
    let directories = entries.filter(|entry| finished(&entry.path()));
    directories.map(|entry| (entry.file_name(), entry.metadata().unwrap().ino())).collect()
}

fn failed(result: &Value, verdict: &str, expected: &Failing) {
    assert_eq!(result["verdict"], verdict, "{result:#}");
    assert_eq!(result["error"], expected.error.as_str(), "{result:#}");
    assert!(result["stderr"].as_str().unwrap().contains(&expected.stderr), "{result:#}");
    assert!(result["result"].is_null() && result["success"] == false);
}

fn runtime_error(language: &str, features: &Features, run: &Runner) {
    failed(&run(&case(language, &features.runtime_error.code)), "runtime_error", &features.runtime_error);
}

fn compile_error(language: &str, features: &Features, run: &Runner) {
    let expected = &features.compile_error;
    let result = run(&case(language, &expected.code));
    failed(&result, expected.verdict.as_deref().unwrap(), expected);
    if result["verdict"] == "compile_error" {
        assert_eq!(result["compile"]["success"], false);
        assert_eq!(result["compile"]["stderr"], result["stderr"]);
    }
}

fn timeout(language: &str, features: &Features, run: &Runner) {
    let result = run(&Case { timeout: Some("1s"), ..case(language, &features.timeout) });
    assert_eq!(result["verdict"], "timeout", "{result:#}");
    assert_eq!(result["limit"]["kind"], "wall_time");
}

fn memory_limit(language: &str, features: &Features, run: &Runner) {
    let result = run(&Case { memory: Some("96m"), ..case(language, &features.memory) });
    assert_eq!(result["verdict"], "memory_limit", "{result:#}");
    assert_eq!((&result["limit"]["kind"], &result["limit"]["cap"]), (&"memory".into(), &(96 << 20).into()));
}

fn exit_code(language: &str, features: &Features, run: &Runner) {
    let result = run(&case(language, &features.exit));
    assert_eq!((&result["verdict"], &result["exit_code"]), (&"runtime_error".into(), &3.into()), "{result:#}");
}

fn unicode(language: &str, features: &Features, run: &Runner) {
    let result = run(&Case { stdin: "héllo, 世界 🌍\n".to_owned(), ..case(language, &features.unicode) });
    assert_eq!(succeeded(&result), "héllo, 世界 🌍 11\n");
}
