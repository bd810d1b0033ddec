//! The ways to say what to run, as people know them from interpreters, `uv run`, `docker run` and `cargo`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sandbox_testing::command::{binary, run, run_with_input, run_with_input_in, sandbox};
use sandbox_testing::package_index::TestIndex;
use sandbox_testing::{TestTerminal, needs, shell_image};
use serde_json::Value;

const ARGUMENTS: &str = "import sys; print(sys.argv[1:])";

/// A directory with these files.
fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// What a command prints in a directory, and on standard error.
fn printed(dir: &Path, args: &[&str]) -> String {
    let output = run_with_input_in(dir, args, b"");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    error.strip_prefix("sandbox-run: ").unwrap_or_else(|| panic!("{error}")).trim_end().to_owned()
}

#[test]
fn everything_after_the_file_belongs_to_the_program() {
    let dir = files(&[("script.py", ARGUMENTS), ("main.sh", "echo \"$@\""), ("doctor", ARGUMENTS)]);
    let run = |args: &[&str]| printed(dir.path(), args);
    assert_eq!(run(&["script.py", "a", "-l", "--json", "--", "b"]), "['a', '-l', '--json', '--', 'b']\n");
    assert_eq!(run(&["--timeout", "9s", "main.sh", "-t", "x"]), "-t x\n");
    assert_eq!(run(&["--lang", "python", "--file", "script.py", "--", "-x"]), "['-x']\n");
    assert_eq!(run(&["--lang", "python", "--code", ARGUMENTS, "x", "-y"]), "['x', '-y']\n");
    assert_eq!(run(&["--lang", "python", "./doctor", "x"]), "['x']\n");
    assert_eq!(run(&["exec", "echo", "-n", "--json"]), "--json");
    assert_eq!(run(&["exec", "--memory", "64m", "--", "echo", "-n", "x"]), "x");
}

#[test]
fn a_directory_and_an_archive_are_projects() {
    let main = "import sys, inner.deep; print(inner.deep.x, sys.argv[1:])";
    let dir = files(&[("p/main.py", main), ("p/inner/deep.py", "x = 7")]);
    let tool = |program: &str, args: &[&str]| {
        assert!(Command::new(program).args(args).current_dir(dir.path()).status().unwrap().success());
    };
    tool("tar", &["-cf", "p.tar", "p"]);
    tool("tar", &["-czf", "p.tgz", "-C", "p", "."]);
    tool("python3", &["-m", "zipfile", "-c", "p.zip", "p/"]);
    for name in ["p", "p/", "p.tar", "p.tgz", "p.zip"] {
        assert_eq!(printed(dir.path(), &[name, "-x"]), "7 ['-x']\n", "{name}");
    }
    assert_eq!(printed(dir.path(), &["--file", "p.zip", "--", "y"]), "7 ['y']\n");
}

#[test]
fn an_archive_cannot_leave_the_working_directory_or_bring_links() {
    let dir = files(&[("main.py", "1")]);
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link.py")).unwrap();
    let tar = |args: &[&str]| {
        assert!(Command::new("tar").args(args).current_dir(dir.path()).status().unwrap().success());
    };
    tar(&["-cf", "link.tar", "main.py", "link.py"]);
    tar(&["-cf", "up.tar", "--transform", "s,main,../main,", "-P", "main.py"]);
    let refuse = |name: &str| refused(&run_with_input_in(dir.path(), &[name], b""));
    let only = "an archive of a project may contain only files and directories";
    assert_eq!(refuse("link.tar"), format!("cannot read 'link.tar': 'link.py' is a link; {only}"));
    assert!(refuse("up.tar").contains("climbs out of the working directory"));
    std::fs::write(dir.path().join("damaged.zip"), b"PK\x03\x04").unwrap();
    assert_eq!(refuse("damaged.zip"), "cannot read 'damaged.zip': invalid archive: it is damaged, or not a zip file");
    assert!(!dir.path().parent().unwrap().join("main.py").exists());
}

#[test]
fn a_zip_archive_is_checked_like_any_other() {
    let dir = files(&[(
        "make.py",
        "import zipfile, stat
def make(name, *entries):
    with zipfile.ZipFile(name, 'w', zipfile.ZIP_DEFLATED) as archive:
        for entry, mode, text in entries:
            info = zipfile.ZipInfo(entry)
            info.create_system, info.external_attr = 3, mode << 16
            archive.writestr(info, text, zipfile.ZIP_DEFLATED)
    return open(name, 'rb').read()
good = make('good.zip', ('p/', stat.S_IFDIR | 0o755, ''), ('p/main.sh', 0o100644, './tool'), ('p/tool', 0o100755, '#!/bin/sh\\necho tool'))
make('link.zip', ('main.py', stat.S_IFLNK | 0o777, '/etc/passwd'))
make('up.zip', ('../main.py', 0o100644, '1'))
make('big.zip', ('main.py', 0o100644, b' ' * (64 << 20)))
big = open('big.zip', 'rb').read()
at = big.rindex(b'PK\\x01\\x02') + 24
open('lies.zip', 'wb').write(big[:at] + (100).to_bytes(4, 'little') + big[at + 4:])
at = good.index(b'PK\\x03\\x04', 40) + 40
open('flipped.zip', 'wb').write(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])",
    )]);
    assert!(Command::new("python3").arg("make.py").current_dir(dir.path()).status().unwrap().success());
    assert_eq!(printed(dir.path(), &["good.zip"]), "tool\n");
    for (name, expected) in [
        ("link.zip", "'main.py' is a link"),
        ("up.zip", "climbs out of the working directory"),
        ("lies.zip", "invalid archive: "),
        ("flipped.zip", "invalid archive: "),
    ] {
        let error = refused(&run_with_input_in(dir.path(), &[name], b""));
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn a_dash_is_code_on_standard_input() {
    for args in [&["--lang", "python", "-", "x"][..], &["--lang", "python", "--file", "-", "--", "x"]] {
        let output = run_with_input(args, ARGUMENTS.as_bytes());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "['x']\n", "{args:?}");
    }
    let script = format!("#!/usr/bin/env python3\n{ARGUMENTS}");
    assert_eq!(run_with_input(&["-", "y"], script.as_bytes()).stdout, b"['y']\n");
    let both = run_with_input(&["--lang", "python", "--stdin", "-", "-"], b"print(1)");
    assert!(refused(&both).starts_with("standard input cannot be both"));
    assert_eq!(refused(&run_with_input(&["-"], b"print(1)")), "no language; set it with --lang, such as --lang python");
}

/// A search path with the command under test.
fn path_with_binary() -> String {
    format!("{}:{}", Path::new(binary()).parent().unwrap().display(), std::env::var("PATH").unwrap())
}

#[test]
fn linux_runs_a_script_with_a_shebang() {
    let dir = files(&[
        ("script.py", &format!("#!/usr/bin/env sandbox-run\n{ARGUMENTS}")),
        ("hello.pl", "#!/usr/bin/env sandbox-run\nprint \"@ARGV line \", __LINE__, \"\\n\";"),
        ("plain", &format!("#!/usr/bin/env -S sandbox-run --quiet --lang python\n{ARGUMENTS}")),
    ]);
    let path = path_with_binary();
    for (name, expected) in [("script.py", "['-x', 'y']\n"), ("hello.pl", "-x y line 2\n"), ("plain", "['-x', 'y']\n")]
    {
        let script = dir.path().join(name);
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let output = Command::new(&script).args(["-x", "y"]).env("PATH", &path).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}: {error}");
        assert_eq!(error.is_empty(), name == "plain", "{error}");
    }
}

#[test]
fn a_script_without_an_extension_has_the_language_of_its_interpreter() {
    let dir = files(&[
        ("snake", &format!("#!/usr/bin/env python3\n{ARGUMENTS}")),
        ("shell", "#!/bin/sh -e\necho $#"),
        ("unknown", "#!/usr/bin/env cobol\n"),
        ("notes.txt", "words"),
    ]);
    assert_eq!(printed(dir.path(), &["snake", "-v"]), "['-v']\n");
    assert_eq!(printed(dir.path(), &["shell", "1", "2"]), "2\n");
    for name in ["unknown", "notes.txt"] {
        let error = refused(&run_with_input_in(dir.path(), &[name], b""));
        assert_eq!(error, format!("cannot determine the language of '{name}'; set it with --lang"));
    }
    let program = sandbox_testing::command::fixture().to_str().unwrap();
    let expected = format!("'{program}' is an executable, not code; run it with sandbox-run exec {program}");
    assert_eq!(refused(&run(&[program])), expected);
}

#[test]
fn a_module_runs_by_its_name() {
    let dir = files(&[
        ("tool/__init__.py", ""),
        ("tool/__main__.py", "import sys, tool; print(__name__, sys.argv[1:])"),
        ("single.py", "import sys; print(__package__, sys.argv[1:])"),
        ("data.json", "[1]"),
    ]);
    let run = |args: &[&str]| printed(dir.path(), args);
    assert_eq!(run(&["-m", "tool", "-q", "--json"]), "__main__ ['-q', '--json']\n");
    assert_eq!(run(&["--memory", "200m", "--module", "json.tool", "data.json"]), "[\n    1\n]\n");
    assert_eq!(run(&["-m", "200m", "-l", "python", "--module", "single", "x"]), " ['x']\n");
    let other = tempfile::tempdir().unwrap();
    let project = dir.path().to_str().unwrap();
    assert_eq!(printed(other.path(), &["--file", project, "-m", "tool"]), "__main__ []\n");
    // An empty directory has no modules of its own.
    assert!(printed(other.path(), &["-m", "platform"]).starts_with("Linux"));
    let error = refused(&run_with_input_in(other.path(), &["--lang", "perl", "-m", "x"], b""));
    assert_eq!(error, "perl does not support running a module by its name");
}

#[test]
fn packages_may_be_listed_with_commas_or_by_the_script() {
    let index = TestIndex::start();
    for name in ["demo", "other"] {
        index.offer(name, "");
    }
    let dir = files(&[
        (
            "inline.py",
            "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\n#   \"demo>=1,<2\",\n# ]\n# ///\nimport demo, sys\nprint(demo.value, sys.argv[1:])",
        ),
        ("future.py", "# /// script\n# requires-python = \">=99\"\n# ///\n"),
        ("broken.py", "import x\n# /// script\n# dependencies = [\n"),
        ("both.py", "import demo, other; print(demo.value + other.value)"),
    ]);
    let run = |args: &[&str]| {
        let mut command = sandbox(args);
        command.current_dir(dir.path()).env("SANDBOX_PYTHON_INDEX", index.address());
        command.env("SANDBOX_DATA_DIR", dir.path().join("kept")).output().unwrap()
    };
    let printed = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(printed(&["--timeout", "20s", "inline.py", "x"]), "42 ['x']\n");
    assert_eq!(printed(&["--timeout", "20s", "-p", "demo>=1,<2,other", "both.py"]), "84\n");
    let error = refused(&run(&["future.py"]));
    assert!(error.starts_with("future.py requires Python >=99; the toolchain is Python 3."), "{error}");
    assert!(
        refused(&run(&["broken.py"]))
            .starts_with("broken.py: invalid inline metadata (line 2): the block is not closed")
    );
}

#[test]
fn a_variable_may_be_passed_on_by_its_name() {
    let code = "import os; print(os.environ['GREETING'])";
    let with = |env: &str| {
        let mut command = sandbox(&["--lang", "python", "--quiet", "-e", env, "--code", code]);
        command.env("GREETING", "hello=1").output().unwrap()
    };
    assert_eq!(with("GREETING").stdout, b"hello=1\n");
    assert_eq!(with("GREETING=x").stdout, b"x\n");
    let expected = "environment variable 'GREETIN' is not set here; give it a value with --env GREETIN=VALUE";
    assert_eq!(refused(&with("GREETIN")), expected);
}

#[test]
fn json_is_printed_for_command_lines_that_are_refused() {
    for args in [
        &["--json", "--bogus"][..],
        &["--json", "--timeout", "soon", "script.py"],
        &["--json", "no-such-file.py"],
        &["exec", "--json"],
        &["--format", "json", "--lang", "cobol", "--code", "1"],
        &["--json", "--format=json", "x.py"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        assert_eq!((&result["status"], &result["verdict"]), (&"error".into(), &"invalid_request".into()), "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.starts_with("sandbox-run: "), "{error}");
        let stated = result["error"].as_str().unwrap();
        assert!(!stated.is_empty() && !stated.starts_with("error:") && !stated.contains('\n'), "{stated}");
    }
    // What follows the file is for the program, which might know what it means.
    let output = run(&["no-such-file.py", "--json"]);
    assert!(output.stdout.is_empty() && output.status.code() == Some(2));
}

#[test]
fn errors_of_limits_name_the_flag() {
    for (flag, value) in [
        ("--timeout", "abc"),
        ("--timeout", "0"),
        ("--pids", "many"),
        ("--processes", "many"),
        ("--compile-timeout", "48h"),
    ] {
        let error = refused(&run(&["--lang", "python", "--code", "1", flag, value]));
        assert!(error.starts_with(&format!("{flag}: ")), "{error}");
    }
}

#[test]
fn a_reader_that_leaves_is_told_nothing() {
    for (args, expected) in [("exec yes | head -c 2", "y\n"), ("languages | true", ""), ("cache | true", "")] {
        let output = Command::new("sh").args(["-c", &format!("{} {args}", binary())]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!((text(&output.stdout), text(&output.stderr)), (expected.to_owned(), String::new()), "{args}");
    }
}

/// The output of a command on a terminal.
fn on_terminal(line: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]).stdin(Stdio::null());
    command.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
    String::from_utf8(command.output().unwrap().stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn colours_pass_on_a_terminal_until_the_end_of_the_output() {
    if !needs::program("script") {
        return;
    }
    let line = format!("{} exec printf '\\033[1;31mred\\033[8m \\033[2Jend'", binary());
    let shown = on_terminal(&line, &[]);
    assert!(shown.starts_with("\x1b[1;31mred ␛[2Jend\x1b[0m\n"), "{shown:?}");
    let shown = on_terminal(&line, &[("NO_COLOR", "1")]);
    assert!(shown.starts_with("red ␛[2Jend\n✓ ok"), "{shown:?}");
    let piped = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(piped.stdout, b"\x1b[1;31mred\x1b[8m \x1b[2Jend");
}

#[test]
fn alone_on_a_terminal_it_prints_the_short_help() {
    if !needs::program("script") {
        return;
    }
    let shown = on_terminal(binary(), &[("NO_COLOR", "1")]);
    let short = String::from_utf8(run(&["-h"]).stdout).unwrap();
    assert!(short.contains("sandbox-run script.py arg1") && short.lines().count() < 50, "{short}");
    assert!(shown.contains("sandbox-run script.py arg1") && shown.contains("Usage:"), "{shown}");
    // Without a terminal, code could have come.
    assert_eq!(refused(&run::<&str>(&[])), "no language; set it with --lang, such as --lang python");
}

#[test]
fn completions_offer_languages() {
    let script = String::from_utf8(run(&["completions", "bash"]).stdout).unwrap();
    assert!(script.contains("python javascript go rust"), "no list of languages");
}

/// The lines of the section `Examples:`.
fn examples(help: &str) -> Vec<String> {
    let section = help.split("\nExamples:\n").nth(1).unwrap_or_default();
    section.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn the_examples_in_the_help_work_when_they_are_pasted() {
    let index = TestIndex::start();
    for name in ["requests", "rich"] {
        index.offer(name, "");
    }
    let dir = files(&[
        ("script.py", "import sys; print(sys.argv)"),
        ("project/main.py", "print('project')"),
        ("data.json", "{}"),
        ("data.csv", "1\n"),
        ("filter.py", "import sys; print(sys.stdin.read())"),
        ("report.py", "open('report.txt', 'w').write(open('data.csv').read())"),
    ]);
    let hello = dir.path().join("hello");
    std::fs::write(&hello, "#!/bin/sh\necho hello \"$@\"\n").unwrap();
    std::fs::set_permissions(&hello, PermissionsExt::from_mode(0o755)).unwrap();
    let mut image = shell_image(&[]);
    std::io::Seek::rewind(&mut image).unwrap();
    std::io::copy(&mut image, &mut std::fs::File::create(dir.path().join("python.tar")).unwrap()).unwrap();
    let (path, kept) = (path_with_binary(), tempfile::tempdir().unwrap());
    // Narrow terminals wrap lines themselves, and know how to copy them.
    let help = |args: &[&str]| String::from_utf8(sandbox(args).env("COLUMNS", "30").output().unwrap().stdout).unwrap();
    let mut lines = examples(&help(&["--help"]));
    assert!(lines.len() > 10, "{lines:?}");
    lines.extend(examples(&help(&["-h"])));
    lines.extend(examples(&help(&["help", "exec"])));
    for line in lines {
        let mut command = Command::new("sh");
        sandbox_testing::command::without_settings(&mut command);
        command.args(["-ec", &line]).current_dir(dir.path()).env("PATH", &path).stdin(Stdio::null());
        command.env("SANDBOX_DATA_DIR", kept.path()).env("SANDBOX_PYTHON_INDEX", index.address());
        command.env("SANDBOX_TIMEOUT", "30s");
        if line.contains(" -it ") {
            let mut terminal = TestTerminal::start(&command);
            terminal.type_keys("exit\n");
            assert!(terminal.end().0.success(), "{line}");
            continue;
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {error}");
    }
    assert_eq!(std::fs::read(dir.path().join("results/report.txt")).unwrap(), b"1\n");
}
