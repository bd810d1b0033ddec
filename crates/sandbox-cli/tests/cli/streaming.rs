//! Output arrives as it is written and in order, and neither side waits for the other.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sandbox_testing::command::{processes, python, run_with_input, sandbox};
use sandbox_testing::eventually;

#[test]
fn the_first_line_arrives_before_the_program_ends() {
    // The program waits for an answer to its first line, which can only come if that line has arrived.
    let code = "print('question')\nprint('answer was', input())";
    for format in ["text", "stream-json"] {
        let mut child =
            sandbox(&["--lang", "python", "--timeout", "20s", "--format", format, "--stdin", "-", "--code", code])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.find(|line| line.contains("question")).is_some());
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"42\n").unwrap();
        assert!(lines.find(|line| line.contains("answer was 42")).is_some());
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn each_stream_keeps_its_order() {
    let code = "
import sys
for i in range(3000):
    print(i)
    print(-i, file=sys.stderr)
";
    let result = python(code, &[]);
    let expected: String = (0..3000).map(|i| format!("{i}\n")).collect();
    assert_eq!(result["stdout"], expected);
    assert_eq!(result["stderr"].as_str().unwrap().lines().count(), 3000);
}

#[test]
fn a_slow_reader_does_not_delay_the_program() {
    // The program writes far more than pipes hold, and its output is not read until the program has ended.
    let code = "input(); print('x' * 900_000)";
    let mut child = sandbox(&["--lang", "python", "--quiet", "--timeout", "1m", "--stdin", "-", "--code", code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let parent = |pid: u32| processes().iter().find(|process| process.0 == pid).map(|process| process.1);
    let is_program = |process: &(u32, u32, String, String)| {
        let init = process.3.contains("main.py").then_some(process.1);
        init.and_then(parent).and_then(parent) == Some(child.id())
    };
    let mut program = None;
    eventually("the program runs", || {
        program = processes().into_iter().find(is_program);
        program.is_some()
    });
    let program = program.unwrap().0;
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    eventually("the program has ended", || parent(program).is_none());
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(output.len(), 900_001);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_closed_output_pipe_ends_the_run() {
    let mut child = sandbox(&[
        "--lang",
        "python",
        "--timeout",
        "1m",
        "--code",
        "import time\nwhile True: print('x', flush=True); time.sleep(0.01)",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(began.elapsed() < Duration::from_secs(40));
}

#[test]
fn a_child_that_keeps_the_pipe_open_does_not_hang_the_run() {
    let code = "import subprocess\nsubprocess.Popen(['sleep', '60'])\nprint('done')";
    let began = Instant::now();
    let result = python(code, &["--timeout", "50s"]);
    assert_eq!((&result["verdict"], &result["stdout"]), (&"ok".into(), &"done\n".into()));
    assert!(began.elapsed() < Duration::from_secs(40));
}

#[test]
fn large_input_passes_through() {
    let input = vec![b'a'; 3_000_000];
    let code = "import sys; print(len(sys.stdin.buffer.read()))";
    let output = run_with_input(&["--lang", "python", "--quiet", "--stdin", "-", "--code", code], &input);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3000000\n");
}

#[test]
fn unread_input_is_ignored() {
    let output = run_with_input(
        &["--lang", "python", "--quiet", "--stdin", "-", "--code", "print('x')"],
        &vec![b'a'; 3_000_000],
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n");
    assert_eq!(output.status.code(), Some(0));
}
