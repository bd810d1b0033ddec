//! Blocks of commands with their output, and a comparison of outputs.

use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use regex_lite::Regex;
use sandbox_testing::redact::redact_line;

/// Stands for any text within a line, and alone on a line for any number of lines.
pub(crate) const ANYTHING: char = '…';

/// A command and the lines with its output.
pub(crate) struct Example {
    pub(crate) command: String,
    /// The lines of the document, counted from zero.
    pub(crate) output: Range<usize>,
}

/// The commands in all blocks marked `console`. A command begins with `$ ` and continues as the shell requires.
pub(crate) fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = vec![];
    let mut inside = false;
    let mut complete = true;
    for (number, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            assert!(complete, "line {number}: an incomplete command");
            inside = line == "```console";
        } else if let (true, true, Some(command)) = (inside, complete, line.strip_prefix("$ ")) {
            complete = is_complete(command);
            examples.push(Example { command: command.to_owned(), output: number + 1..number + 1 });
        } else if inside {
            let last = examples.last_mut().expect("a block begins with a command");
            if !complete {
                last.command = format!("{}\n{line}", last.command);
                complete = is_complete(&last.command);
                last.output.start = number + 1;
            }
            last.output.end = number + 1;
        }
    }
    examples
}

/// Whether a command is complete for a shell.
fn is_complete(command: &str) -> bool {
    let checked = Command::new("bash").args(["-n", "-c", command]).stdin(Stdio::null()).output().unwrap();
    checked.status.success() && checked.stderr.is_empty() && !command.ends_with('\\')
}

/// Whether an output is the expected one, except for text that differs between runs: times, sizes, versions, ids, and
/// whether something was cached.
pub(crate) fn same(expected: &str, printed: &str) -> bool {
    let (expected, printed) = (neutral(expected), neutral(printed));
    matches(
        &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        &printed.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

fn matches(expected: &[&str], printed: &[&str]) -> bool {
    match expected {
        [] => printed.is_empty(),
        [line, rest @ ..] if line.trim() == ANYTHING.to_string() => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        [line, rest @ ..] => {
            printed.split_first().is_some_and(|(first, others)| line_matches(line, first) && matches(rest, others))
        }
    }
}

fn line_matches(expected: &str, printed: &str) -> bool {
    match expected.split_once(ANYTHING) {
        None => expected == printed,
        Some((before, after)) => printed.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

fn neutral(output: &str) -> Vec<String> {
    settled(output).into_iter().map(redact_line).collect()
}

/// The lines of an output without those that only the first run prints.
pub(crate) fn settled(output: &str) -> Vec<&str> {
    static STEP: OnceLock<Regex> = OnceLock::new();
    let step = STEP.get_or_init(|| {
        Regex::new(r"^(waiting for work in progress: )?(preparing .* \(once\)|compiling \S+|installing \S+)$").unwrap()
    });
    output.trim_end().lines().map(str::trim_end).filter(|line| !step.is_match(line)).collect()
}

#[test]
fn variable_text_is_ignored() {
    assert!(same(
        "✓ ok · go 1.26.8 · 2ms · CPU 1.7ms · 1 MiB",
        "✓ ok · go 1.25 · compiled in 1s · 9s · CPU 4ms · 92 KiB"
    ));
    assert!(
        same("a\n…\nz", "a\nb\nc\nz")
            && same("a … z", "a b c z")
            && same("4", "compiling main.go\n4\n")
            && same("4", "waiting for work in progress: installing a\n4\n")
    );
    let limit = |time| format!("✗ timeout: time limit of {time} reached · python 3.11.2 · 1s");
    assert!(!same(&limit("1s"), &limit("2s")) && !same("4", "5") && !same("", "4") && !same("4", ""));
}

#[test]
fn commands_continue_over_several_lines() {
    let document = "```console\n$ cat <<'END'\na\nEND\na\n$ echo 'x\ny' \\\n  z\nx\ny z\n```\n```sh\n$ no\n```\n";
    let found: Vec<_> = examples(document).into_iter().map(|example| (example.command, example.output)).collect();
    assert_eq!(found, [("cat <<'END'\na\nEND".to_owned(), 4..5), ("echo 'x\ny' \\\n  z".to_owned(), 8..10)]);
}
