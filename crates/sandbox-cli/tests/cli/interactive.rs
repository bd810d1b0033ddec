//! Programs that a person talks to: a terminal in the cell (`-it`), standard input of a terminal, Ctrl-C.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sandbox_testing::command::{self, as_ordinary_user, run, sandbox};
use sandbox_testing::{TestTerminal, eventually, needs, shell_image};

/// A command with these arguments, in a terminal.
fn start(args: &[&str]) -> TestTerminal {
    TestTerminal::start(&in_terminal(sandbox(args)))
}

fn in_terminal(mut command: Command) -> Command {
    command.env("TERM", "xterm-256color").env("NO_COLOR", "1");
    command
}

/// A shell that shows when it waits for a command.
fn shell(flags: &[&str]) -> TestTerminal {
    let args = [flags, &["exec", "--env", "PS1=ready> ", "--", "bash", "--norc"]].concat();
    let mut terminal = start(&args);
    terminal.expect("ready> ");
    terminal
}

/// Ends a shell, and checks its exit code.
fn exit(mut shell: TestTerminal) {
    shell.type_keys("exit 7\r");
    let (status, shown) = shell.end();
    assert_eq!(status.code(), Some(7), "{shown}");
}

#[test]
fn a_program_has_a_terminal_of_its_own() {
    let mut terminal = shell(&["-it"]);
    terminal.ask("tty", "/dev/pts/0\r\n");
    terminal.ask("stty size", "24 80\r\n");
    terminal.ask("ls /dev/pts", "0  ptmx\r\n");
    terminal.ask("echo $TERM", "xterm-256color\r\n");
    terminal.ask("test -t 0 -a -t 1 -a -t 2 && echo all three", "all three\r\n");
    terminal.ask("echo to the terminal > /dev/tty", "to the terminal\r\n");
    terminal.ask("ps -o sid= -o tpgid= -p $$ | wc -l", "1\r\n");
    exit(terminal);
}

#[test]
fn the_size_of_the_window_is_passed_on() {
    let code = "import os, signal\nshow = lambda *_: print(os.get_terminal_size())\n\
                signal.signal(signal.SIGWINCH, show)\nshow()\nwhile True: signal.pause()";
    let mut terminal = start(&["-it", "--lang", "python", "--code", code]);
    terminal.expect("columns=80, lines=24");
    terminal.resize(50, 132);
    terminal.expect("columns=132, lines=50");
    terminal.resize(1, 1);
    terminal.expect("columns=1, lines=1");
    terminal.type_keys("\x03");
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(130), "{shown}");
}

#[test]
fn jobs_are_controlled_in_the_cell() {
    let mut terminal = shell(&["-it"]);
    terminal.type_keys("sleep 1000\r");
    terminal.expect("sleep 1000\r\n");
    // The keys reach the job only when it is in the foreground.
    eventually("the job is in the foreground", || {
        terminal.type_keys("\x1a");
        terminal.shows("Stopped")
    });
    terminal.ask("bg", "sleep 1000 &\r\n");
    terminal.ask("jobs", "Running");
    terminal.ask("fg", "sleep 1000\r\n");
    terminal.type_keys("\x03");
    terminal.expect("ready> ");
    terminal.ask("echo status $?", "status 130\r\n");
    exit(terminal);
}

#[test]
fn an_interpreter_can_be_used_interactively() {
    let mut terminal = start(&["-it", "exec", "--", "python3"]);
    terminal.expect(">>> ");
    terminal.ask("6 * 7", "42\r\n>>> ");
    terminal.type_keys("import time; time.sleep(1000)\r");
    terminal.expect("sleep(1000)\r\n");
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_keys("\x03");
    terminal.expect("KeyboardInterrupt\r\n>>> ");
    terminal.ask("input('name? ')", "name? ");
    terminal.ask("Ada", "'Ada'\r\n>>> ");
    terminal.type_keys("\x04");
    assert!(terminal.end().0.success());
}

#[test]
fn code_in_a_language_has_a_terminal_too() {
    let code = "import sys; print(sys.stdin.isatty(), sys.stderr.isatty()); print('hello', input('name? '))";
    let mut terminal = start(&["-it", "--lang", "python", "--code", code]);
    terminal.expect("True True\r\nname? ");
    terminal.ask("Ada", "hello Ada\r\n");
    assert!(terminal.end().0.success());
    let code = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { int n; printf(\"n? \"); fflush(stdout);\n\
                if (scanf(\"%d\", &n) == 1) printf(\"%d %d\\n\", n * n, isatty(1)); }";
    let mut terminal = start(&["-it", "--lang", "c", "--code", code]);
    terminal.expect("n? ");
    terminal.ask("12", "144 1\r\n");
    assert!(terminal.end().0.success());
}

#[test]
fn keys_reach_a_program_as_they_are_typed() {
    let script = "stty raw -echo; echo ready; head -c 4 | od -An -tx1; stty sane";
    let mut terminal = start(&["-it", "exec", "--", "bash", "-c", script]);
    terminal.expect("ready");
    terminal.type_keys("\x03\x04\x1a\x1d");
    terminal.expect("03 04 1a 1d");
    assert!(terminal.end().0.success());
}

#[test]
fn an_image_has_a_terminal() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("shell.tar");
    std::io::copy(&mut rewound(shell_image(&[])), &mut std::fs::File::create(&file).unwrap()).unwrap();
    let mut import = sandbox(&["image", "import", file.to_str().unwrap(), "--name", "shell"]);
    assert!(import.env("SANDBOX_DATA_DIR", data.path()).output().unwrap().status.success());
    let script = "read x && test -t 0 && echo \"<$x>\" > /dev/tty";
    let args = ["-it", "--image", "shell", "--", "/bin/sh", "-c", script];
    let mut command = in_terminal(sandbox(&args));
    let mut terminal = TestTerminal::start(command.env("SANDBOX_DATA_DIR", data.path()));
    terminal.type_keys("hello\r");
    terminal.expect("<hello>");
    assert!(terminal.end().0.success());
}

fn rewound(mut file: std::fs::File) -> std::fs::File {
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

#[test]
fn an_ordinary_user_has_a_terminal() {
    if !needs::root() {
        return;
    }
    let command = as_ordinary_user(&["-it", "exec", "--env", "PS1=ready> ", "--", "bash", "--norc"]);
    let mut terminal = TestTerminal::start(&command);
    terminal.expect("ready> ");
    terminal.ask("tty", "/dev/pts/0\r\n");
    terminal.ask("ls /dev/pts", "0  ptmx\r\n");
    exit(terminal);
}

#[test]
fn the_terminal_is_restored_whatever_ends_the_run() {
    type End = fn(&mut TestTerminal);
    let ends: [(&str, End, i32); 6] = [
        ("the program", |terminal| terminal.type_keys("exit 5\r"), 5),
        ("SIGTERM", |terminal| terminal.signal(Signal::TERM), 143),
        ("SIGHUP", |terminal| terminal.signal(Signal::HUP), 129),
        ("SIGINT", |terminal| terminal.signal(Signal::INT), 130),
        ("the key", |terminal| terminal.type_keys("\x1d\x1d\x1d"), 130),
        ("a limit", |terminal| terminal.type_keys("while :; do echo out; done\r"), 137),
    ];
    for (what, end, code) in ends {
        // A terminal that is in raw mode anyway would prove nothing.
        let mut terminal = shell(&["-it"]);
        let raw = terminal.modes();
        assert!(!raw.contains("ECHO ") && !raw.contains("ISIG"), "{what}: {raw}");
        terminal.ask("trap '' INT TERM HUP", "ready> ");
        end(&mut terminal);
        eventually("the modes are restored", || terminal.modes().contains("ISIG"));
        assert!(terminal.modes().contains("ICANON"));
        let (status, shown) = terminal.end();
        assert_eq!(status.code(), Some(code), "{what}: {shown}");
    }
}

#[test]
fn a_run_ends_with_its_window() {
    let mut terminal = shell(&["-it"]);
    terminal.ask("trap '' INT TERM HUP", "ready> ");
    assert_eq!(terminal.close().code(), Some(129));
}

#[test]
fn a_terminal_goes_with_a_network_and_volumes() {
    let flags = ["-it", "exec", "--network", "full", "--volume", "kept:/kept", "--env", "PS1=ready> "];
    let data = tempfile::tempdir().unwrap();
    let mut command = in_terminal(sandbox(&[&flags[..], &["--", "bash", "--norc"]].concat()));
    let mut terminal = TestTerminal::start(command.env("SANDBOX_DATA_DIR", data.path()));
    terminal.expect("ready> ");
    terminal.ask("tty; echo $http_proxy; touch /kept/file", "/dev/pts/0\r\nhttp://127.0.0.1:3128\r\n");
    exit(terminal);
}

#[test]
fn modes_that_a_program_leaves_behind_are_undone() {
    let script = r"printf '\033[?1049h\033[?25l\033[31mred\033]0;owned\007\033[6n\033]52;c;Y2F0\007'; kill -9 $$";
    let shown = |flags: &[&str]| start(&[flags, &["-it", "exec", "--", "bash", "-c", script]].concat()).end().1;
    let safe = shown(&[]);
    assert!(safe.contains("\x1b[?1049h\x1b[?25l\x1b[31mred\x1b[?25h\x1b[?1049l\x1b[0m"), "{safe:?}");
    assert!(!safe.contains("owned") && !safe.contains("\x1b[6n") && !safe.contains("Y2F0"), "{safe:?}");
    let args = ["exec", "-it", "--raw", "--", "bash", "-c", script];
    let raw = start(&args).end().1;
    assert!(raw.contains("\x1b]0;owned\x07\x1b[6n\x1b]52;c;Y2F0\x07"), "{raw:?}");
}

#[test]
fn a_terminal_without_a_person_captures_both_streams() {
    let code = "import os, sys; print(os.get_terminal_size(), file=sys.stderr); print(sys.stdout.isatty())";
    let result = command::result(&run(&["--tty", "--lang", "python", "--json", "--code", code]));
    let expected = "os.terminal_size(columns=80, lines=24)\r\nTrue\r\n";
    assert_eq!((&result["stdout"], &result["stderr"]), (&expected.into(), &"".into()), "{result:#}");
    // The program gets no input, and its time is limited as always.
    let waits = command::result(&run(&["exec", "--tty", "--timeout", "300ms", "--json", "--", "cat"]));
    assert_eq!(waits["verdict"], "timeout", "{waits:#}");
    let args = ["exec", "--tty", "--json", "--output-limit", "1k", "--", "yes"];
    let loud = command::result(&run(&args));
    assert_eq!((&loud["verdict"], loud["stdout"].as_str().unwrap().len()), (&"output_limit".into(), 1024), "{loud:#}");
}

/// A command whose usual time limit is short.
fn hurried(args: &[&str]) -> TestTerminal {
    let mut command = in_terminal(sandbox(args));
    command.env("SANDBOX_TIMEOUT", "500ms");
    TestTerminal::start(&command)
}

#[test]
fn a_program_may_wait_for_a_person() {
    for flags in [["exec", "-it"], ["exec", "--interactive"], ["exec", "--stdin=-"]] {
        let mut terminal =
            hurried(&[&flags[..], &["--", "bash", "-c", "echo ready; read line; echo \"<$line>\""]].concat());
        terminal.expect("ready");
        std::thread::sleep(Duration::from_millis(1_500));
        terminal.type_keys("hello\r");
        terminal.expect("<hello>");
        let (status, shown) = terminal.end();
        assert!(status.success(), "{flags:?}: {shown}");
    }
}

#[test]
fn work_and_explicit_time_are_limited_all_the_same() {
    let busy = hurried(&["exec", "-it", "--", "bash", "-c", "while :; do :; done"]);
    let (status, shown) = busy.end();
    assert!(status.code() == Some(124) && shown.contains("CPU time limit of 500ms reached"), "{shown}");
    let waits = hurried(&["exec", "-it", "--timeout", "700ms", "--", "cat"]);
    let (status, shown) = waits.end();
    assert!(status.code() == Some(124) && shown.contains("time limit of 700ms reached"), "{shown}");
    // A pipe is no person.
    let mut child = sandbox(&["exec", "--interactive", "--timeout", "300ms", "--", "cat"]);
    let mut child = child.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pipe = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(124));
    drop(pipe);
}

#[test]
fn lines_of_a_terminal_are_input_without_a_terminal_in_the_cell() {
    let code = "import sys; print(sys.stdin.isatty()); print([line for line in sys.stdin])";
    let mut terminal = start(&["--interactive", "--lang", "python", "--code", code]);
    terminal.type_keys("one\rtwo\r");
    terminal.expect("two\r\n");
    terminal.type_keys("\x04");
    terminal.expect("False\r\n['one\\n', 'two\\n']\r\n");
    assert!(terminal.end().0.success());
}

#[test]
fn ctrl_c_cancels_and_again_ends_at_once() {
    let code =
        "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('ready')\ntime.sleep(1000)";
    let begin = || {
        let mut terminal = start(&["--timeout", "100s", "--lang", "python", "--code", code]);
        terminal.expect("ready");
        terminal
    };
    let mut once = begin();
    once.type_keys("\x03");
    let (status, shown) = once.end();
    assert!(status.code() == Some(130) && shown.contains("interrupted"), "{shown}");
    // The keeper gives the program 200 ms. The second Ctrl-C does not wait for that, nor for the result.
    let mut twice = begin();
    let began = Instant::now();
    twice.type_keys("\x03");
    std::thread::sleep(Duration::from_millis(50));
    twice.type_keys("\x03");
    let (status, shown) = twice.end();
    assert_eq!(status.code(), Some(130), "{shown}");
    assert!(!shown.contains("interrupted") || began.elapsed() > Duration::from_millis(200), "{shown}");
}

#[test]
fn what_cannot_have_a_terminal_is_refused_before_anything_runs() {
    let refused = |args: &[&str]| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let without_one = refused(&["-it", "exec", "--", "true"]);
    assert!(without_one.contains("needs a terminal as standard input; leave out --tty"), "{without_one}");
    for backend in ["oci", "docker"] {
        let line = refused(&["exec", "--tty", "--backend", backend, "--", "true"]);
        assert!(line.contains("cannot provide a terminal: only the native backend"), "{backend}: {line}");
    }
    let both = refused(&["exec", "--interactive", "--stdin", "x", "--", "true"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let template = refused(&["--tty", "--lang", "python", "--template", "harness", "--code", "1"]);
    assert!(template.contains("--tty and --template cannot be combined"), "{template}");
    let json = start(&["-it", "exec", "--json", "--", "true"]).end();
    assert!(json.0.code() == Some(2) && json.1.contains("the format must be text"), "{}", json.1);
}
