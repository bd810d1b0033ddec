//! Input and output files.

use std::path::Path;

use sandbox_testing::command::{result, run, sandbox};
use serde_json::Value;

fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn python(code: &str, flags: &[&str]) -> Value {
    sandbox_testing::command::python(code, flags)
}

#[test]
fn new_and_changed_files_are_collected() {
    let dir = tempfile::tempdir().unwrap();
    let data = write(dir.path(), "data.csv", "a,b\n");
    let code = "
import os
open('data.csv', 'a').write('1,2\\n')
os.makedirs('out/deep')
open('out/deep/é.txt', 'w').write('text')
open('binary', 'wb').write(bytes([0, 255]))
open('tool.sh', 'w').write('#!/bin/sh')
os.chmod('tool.sh', 0o755)
open('/tmp/elsewhere', 'w').write('x')
";
    let result = python(code, &["--input", &data]);
    let files = result["files"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["binary", "data.csv", "out/deep/é.txt", "tool.sh"]);
    assert_eq!(files["data.csv"]["content"], "a,b\n1,2\n");
    assert_eq!((&files["binary"]["encoding"], &files["binary"]["content"]), (&"base64".into(), &"AP8=".into()));
    assert_eq!((&files["tool.sh"]["executable"], &files["data.csv"]["executable"]), (&true.into(), &Value::Null));
    assert!(result["files_omitted"].is_null());
}

#[test]
fn input_files_and_directories_get_the_given_names() {
    let dir = tempfile::tempdir().unwrap();
    let one = write(dir.path(), "one.txt", "1");
    write(dir.path(), "tree/a/b.txt", "2");
    let tree = dir.path().join("tree").to_str().unwrap().to_owned();
    let code = "import os; print(sorted(os.path.join(t, f)[2:] for t, _, fs in os.walk('.') for f in fs))";
    let result = python(code, &["--input", &format!("{one}:in/renamed.txt"), "--input", &tree, "--input", &one]);
    assert_eq!(result["stdout"], "['in/renamed.txt', 'main.py', 'one.txt', 'tree/a/b.txt']\n", "{result:#}");
    assert_eq!(result["files"], serde_json::json!({}), "unchanged files are not collected");
}

#[test]
fn names_that_stay_inside_are_normalized() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "x", "1");
    let code = "import os; print(sorted(os.listdir()), open('x').read(), open('a/b c').read())";
    let args =
        ["--input", &format!("{file}:folder/../x"), "--input", &format!("{file}:./a//b c"), "--entry", "a/../-é.py"];
    let result = python(code, &args);
    assert_eq!(result["stdout"], "['-é.py', 'a', 'x'] 1 1\n", "{result:#}");
}

#[test]
fn links_of_a_project_are_made_in_the_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("project");
    write(&root, "data/real.txt", "text");
    write(&root, "target/built.txt", "built");
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    link("data/real.txt", "alias");
    link("data", "d");
    link("..", "data/up");
    link(root.canonicalize().unwrap().join("data/real.txt").to_str().unwrap(), "absolute");
    link("nowhere", "dangling");
    // Build results are no part of the project, so that a link to one becomes a file.
    write(&root, "Cargo.toml", "");
    link("target/built.txt", "copy");
    let run = |args: &[&str]| result(&sandbox(args).current_dir(&root).output().unwrap());
    let result = run(&[
        "--json",
        "--lang",
        "bash",
        "--input",
        ".:p",
        "--code",
        "cd p; ls -l alias d data/up absolute copy | grep -o ' [^ ]*\\( -> .*\\)*$'; cat copy alias d/real.txt data/up/absolute",
    ]);
    let expected =
        " absolute -> data/real.txt\n alias -> data/real.txt\n copy\n d -> data\n data/up -> ..\nbuilttexttexttext";
    assert_eq!(result["stdout"], expected, "{result:#}");
    assert_eq!((&result["files"], &result["files_omitted"]), (&serde_json::json!({}), &Value::Null), "{result:#}");
    for (target, name) in
        [("/etc/passwd", "l"), ("../outside", "l"), ("data/../../outside", "l"), ("up/../outside", "data/l")]
    {
        write(dir.path(), "outside", "");
        link(target, name);
        let output = sandbox(&["--lang", "python", "--file", "."]).current_dir(&root).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{target}: {complaint}");
        assert!(complaint.contains("it is a link to a file outside the directory"), "{target}: {complaint}");
        std::fs::remove_file(root.join(name)).unwrap();
    }
}

#[test]
fn unsafe_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "x", "1");
    for (name, why) in [
        ("/etc/x", "is absolute"),
        ("../x", "climbs out"),
        ("a/../../x", "climbs out"),
        ("", "is empty"),
        ("main.py", "duplicate file 'main.py'"),
        ("main.py/x", "'main.py' is both a file and a directory"),
    ] {
        let input = format!("{file}:{name}");
        let output = run(&["--lang", "python", "--code", "1", "--input", &input]);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {complaint}");
        assert!(complaint.contains(why) && complaint.lines().count() == 1, "{name}: {complaint}");
    }
    let output = run(&["--lang", "python", "--code", "1", "--input", "/no/such/file"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read '/no/such/file': no such file"));
}

#[test]
fn files_are_written_to_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/results");
    let code = "import os; os.mkdir('d'); open('d/f', 'w').write('x'); os.symlink('/etc/passwd', 'l')";
    let args = ["--lang", "python", "--code", code, "--output-dir", out.to_str().unwrap()];
    let output = run(&args);
    assert!(output.status.success());
    assert_eq!(std::fs::read_to_string(out.join("d/f")).unwrap(), "x");
    assert!(!out.join("l").exists(), "links are not collected");
    let summary = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(summary.contains("1 file left out (l: it is not a regular file)"), "{summary}");
    // A file where a directory should be.
    let blocked = write(dir.path(), "blocked/d", "not a directory");
    let args =
        ["--lang", "python", "--code", code, "--output-dir", Path::new(&blocked).parent().unwrap().to_str().unwrap()];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("blocked/d/f': not a directory"));
}

#[test]
fn files_beyond_the_limits_are_left_out_and_listed() {
    let code = "
for n in range(30): open(f'f{n:02}', 'w').write('x')
open('large', 'wb').write(bytes(3_000_000))
";
    let mut command = sandbox(&["--lang", "python", "--json", "--code", code]);
    let output = command.env("SANDBOX_FILES", "10").env("SANDBOX_OUTPUT_SIZE", "1m").output().unwrap();
    let result = result(&output);
    assert_eq!(result["files"].as_object().unwrap().len(), 10);
    assert_eq!(result["files_omitted_count"], 21);
    let omitted = result["files_omitted"].as_array().unwrap();
    assert_eq!(omitted[0], serde_json::json!({"path": "f10", "why": "too_many"}));
    let mut command = sandbox(&["--lang", "python", "--json", "--code", code]);
    let output = command.env("SANDBOX_OUTPUT_SIZE", "1m").output().unwrap();
    let result = sandbox_testing::command::result(&output);
    assert_eq!(result["files_omitted"], serde_json::json!([{"path": "large", "why": "too_large"}]));
}

#[test]
fn files_that_do_not_fit_are_named_and_the_run_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let code = "open('small', 'w').write('x'); open('big', 'wb').write(bytes(3_000_000))";
    let save = |flags: &[&str]| {
        let args = ["--lang", "python", "--code", code, "--output-dir", out, "--force"];
        let output = run(&[&args[..], flags].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, stderr) = save(&["--output-size", "2m"]);
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(status, Some(125), "{stderr}");
    assert!(lines[0].starts_with("✓ ok") && lines[0].ends_with("1 file left out"), "{stderr}");
    assert_eq!(
        lines[1..],
        [
            "sandbox-run: 1 file was left out: 'big': the files are too large together",
            "hint: raise the output files limit, for example with --output-size 4m"
        ]
    );
    assert!(dir.path().join("small").exists() && !dir.path().join("big").exists());
    let (status, stderr) = save(&["--output-size", "2m", "--quiet"]);
    assert_eq!(status, Some(125));
    assert_eq!(stderr, "sandbox-run: 1 file was left out: 'big': the files are too large together\n");
    let (status, stderr) = save(&["--output-size", "4m"]);
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(std::fs::metadata(dir.path().join("big")).unwrap().len(), 3_000_000);
    // Without --output-dir, omitted files are not an error; JSON lists them.
    let result = python(code, &["--output-size", "2m"]);
    assert_eq!(result["files_omitted"], serde_json::json!([{"path": "big", "why": "too_large"}]));
    assert_eq!(result["hint"], "raise the output files limit, for example with --output-size 4m");
}

#[test]
fn the_operator_bounds_the_size_of_output_files() {
    let args = ["--lang", "python", "--code", "1", "--output-size", "32m"];
    let output = sandbox(&args).env("SANDBOX_MAX_OUTPUT_SIZE", "20m").output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        complaint,
        "sandbox-run: --output-size: output files limit 32 MiB is above the maximum of 20 MiB (SANDBOX_MAX_OUTPUT_SIZE)\n"
    );
}

#[test]
fn too_many_files_are_named_with_the_variable() {
    let dir = tempfile::tempdir().unwrap();
    let code = "for n in range(8): open(f'f{n}', 'w')";
    let args = ["--lang", "python", "--code", code, "--output-dir", dir.path().to_str().unwrap()];
    let output = sandbox(&args).env("SANDBOX_FILES", "3").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    let files = "'f3': there are too many files; 'f4': there are too many files; 'f5': there are too many files";
    assert!(stderr.contains(&format!("sandbox-run: 5 files were left out: {files}; and 2 more\n")), "{stderr}");
    assert!(stderr.ends_with("hint: a result has at most 3 files; the operator can raise that with SANDBOX_FILES\n"));
}

#[test]
fn a_link_in_the_output_directory_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("new"), dir.path().join("file")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("sub")).unwrap();
    let code = "import os; os.mkdir('sub'); open('sub/x', 'w'); open('file', 'w')";
    let out = dir.path().to_str().unwrap();
    for flags in [&[][..], &["--force", "--all"]] {
        let output = run(&[&["--lang", "python", "--code", code, "--output-dir", out][..], flags].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        for name in ["file", "sub/x"] {
            let line = format!("'{out}/{name}': exists and is a symbolic link; not followed");
            assert!(stderr.contains(&line), "{stderr}");
        }
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_output_directory_is_checked_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (write(dir.path(), "file", ""), dir.path().join("link"));
    std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
    for (path, why) in [
        (file.as_str(), "it is not a directory"),
        (&format!("{file}/below"), "not a directory"),
        (link.to_str().unwrap(), "it is a symbolic link that leads to no directory"),
        ("/proc/new", "no such file or directory"),
    ] {
        let output = run(&["--lang", "python", "--code", "print('ran')", "--output-dir", path]);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{complaint}");
        assert_eq!(complaint, format!("sandbox-run: cannot write to '{path}': {why}\n"));
    }
}

#[test]
fn files_of_killed_runs_are_collected() {
    let result = python("open('kept', 'w').write('x')\nwhile True: pass", &["--timeout", "500ms"]);
    assert_eq!((&result["verdict"], &result["files"]["kept"]["content"]), (&"timeout".into(), &"x".into()));
    let result =
        python("open('kept', 'w').write('x')\nx = [bytearray(1 << 20) for _ in range(1000)]", &["--memory", "64m"]);
    assert_eq!((&result["verdict"], &result["files"]["kept"]["content"]), (&"memory_limit".into(), &"x".into()));
}

#[test]
fn files_of_system_programs_are_collected() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "in", "text\n");
    let output = run(&["exec", "--json", "--input", &file, "--", "sh", "-c", "cp in out"]);
    assert_eq!(result(&output)["files"]["out"]["content"], "text\n");
}

#[test]
fn the_working_directory_can_be_changed() {
    let code = "import os; print(os.getcwd()); open('made', 'w').write('x')";
    let result = python(code, &["--workdir", "sub/dir"]);
    assert_eq!(result["stdout"], "/sandbox/sub/dir\n", "{result:#}");
    assert_eq!(result["files"].as_object().unwrap().keys().collect::<Vec<_>>(), ["sub/dir/made"]);
    let absolute = python("import os; print(os.getcwd())", &["--workdir", "/tmp"]);
    assert_eq!(absolute["stdout"], "/tmp\n");
    for (dir, why) in [("..", "expected a plain path"), ("/no/such", "cannot enter the working directory")] {
        let output = run(&["--lang", "python", "--code", "1", "--workdir", dir]);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint.contains(why), "{complaint}");
    }
}

#[test]
fn a_strict_umask_does_not_block_programs() {
    let data = tempfile::tempdir().unwrap();
    let command = r#"umask 077; exec "$0" --quiet --lang c --code '#include <stdio.h>
int main(void) { puts("here"); }'"#;
    let output = std::process::Command::new("sh")
        .args(["-c", command, sandbox_testing::command::binary()])
        .env("SANDBOX_DATA_DIR", data.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, "here\n", "{stderr}");
}
