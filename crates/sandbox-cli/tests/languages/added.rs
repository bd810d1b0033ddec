//! A language that is only a directory: it is listed, found by its extension, and mistakes in its definition are
//! explained. Its programs are tested like those of every other language.

use std::path::Path;

use sandbox_testing::command::{result, run};
use sandbox_testing::features::LanguageDir;
use serde_json::Value;

/// The tests here.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("it_is_listed_with_the_others", it_is_listed_with_the_others),
    ("it_is_found_by_its_extension", it_is_found_by_its_extension),
    ("errors_name_the_file_and_the_key", errors_name_the_file_and_the_key),
];

fn runtimes() -> String {
    LanguageDir::added().path().display().to_string()
}

fn it_is_listed_with_the_others() {
    let list = result(&run(&["languages", "--json", "--runtimes", &runtimes()]));
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|language| language["name"].as_str().unwrap()).collect();
    let mut expected = LanguageDir::shipped().names();
    expected.push("awk".to_owned());
    expected.sort();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert_eq!(
        (names[0], &list[0]["missing"], &list[0]["aliases"]),
        ("awk", &Value::Array(vec![]), &"mawk".split(' ').collect::<Value>())
    );
    let text = run(&["languages", "--runtimes", &runtimes()]);
    assert!(String::from_utf8_lossy(&text.stdout).lines().next().unwrap().starts_with("awk"));
    let unknown = run(&["--lang", "mawwk", "--code", "1", "--runtimes", &runtimes()]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("did you mean 'mawk'?"), "{unknown:?}");
}

fn it_is_found_by_its_extension() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sum.awk");
    std::fs::write(&file, "{ sum += $1 }\nEND { print sum }\n").unwrap();
    std::fs::write(dir.path().join("numbers"), "3\n4\n").unwrap();
    let (file, numbers) = (file.display().to_string(), dir.path().join("numbers").display().to_string());
    let output = run(&["--file", &file, "--stdin", &numbers, "--quiet", "--runtimes", &runtimes()]);
    assert_eq!(
        (String::from_utf8_lossy(&output.stdout).as_ref(), output.status.code()),
        ("7\n", Some(0)),
        "{output:?}"
    );
}

fn errors_name_the_file_and_the_key() {
    let fixture = LanguageDir::added().path().join("awk");
    let definition = std::fs::read_to_string(fixture.join("language.toml")).unwrap();
    for (from, to, expected) in [
        ("harness.awk", "none.awk", "cannot read none.awk (templates.* in "),
        ("harness.awk", "../harness.awk", "templates.*: path \"../harness.awk\" climbs"),
        ("\"{text}\"", "text", "language.toml: literals.string: {text} is missing"),
        ("extensions = [\"awk\"]", "extensions = \"awk\"", "TOML parse error at line 4"),
        ("{entry}", "{file}", "language.toml: run.argv: unknown placeholder {file}"),
        ("aliases = [\"mawk\"]", "aliases = [\"sh\"]", "language.toml: the name 'sh' is already used by bash"),
    ] {
        assert!(definition.contains(from), "{from}");
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture, &dir.path().join("awk"), &definition.replace(from, to));
        let output = run(&["languages", "--runtimes", &dir.path().display().to_string()]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(expected) && output.status.code() == Some(2), "{expected}: {message}");
    }
}

fn copy(from: &Path, to: &Path, definition: &str) {
    std::fs::create_dir(to).unwrap();
    std::fs::copy(from.join("harness.awk"), to.join("harness.awk")).unwrap();
    std::fs::write(to.join("language.toml"), definition).unwrap();
}
