//! The usual short form of two flags: `-it`, or `-i -t`, for `--interactive --tty`.
//!
//! Alone, `-i` and `-t` are short for `--input` and `--timeout`, so the parser of flags would read `-it` as an input file
//! with the name t, and refuse the others.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Command, CommandFactory};

use crate::args::Arguments;

/// Replaces the short form wherever a flag of this program can be. Before `exec` it means the same as after it.
pub(crate) fn expand(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    let is_there = (0..words.len()).any(|at| short_form(&words[at..]) > 0);
    if is_there { replace(&words, &Arguments::command()) } else { words }
}

/// The number of words with which these begin that are a short form.
fn short_form(words: &[OsString]) -> usize {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found == word);
    if is(0, "-it") || is(0, "-ti") {
        return 1;
    }
    if is(0, "-i") && is(1, "-t") || is(0, "-t") && is(1, "-i") { 2 } else { 0 }
}

fn replace(words: &[OsString], command: &Command) -> Vec<OsString> {
    let mut replaced: Vec<OsString> = words.iter().take(1).cloned().collect();
    let (mut at, mut place, mut found) = (1, 1, false);
    while let Some(word) = words.get(at) {
        let length = short_form(&words[at..]);
        if length > 0 {
            (found, at) = (true, at + length);
            continue;
        }
        let is_flag = word.as_bytes().starts_with(b"-") && word.len() > 1 && word != "--";
        let is_exec = word == "exec" && place == 1;
        if !is_flag && !is_exec {
            // The rest belongs to the program, or to a command without these flags.
            break;
        }
        // A size begins with a digit, and the name of a module does not.
        let is_module =
            |name: &OsString| name.as_bytes().first().is_some_and(|c| c.is_ascii_alphabetic() || *c == b'_');
        if word == "-m" && place == 1 && words.get(at + 1).is_some_and(is_module) {
            break;
        }
        let end = (at + 1 + usize::from(takes_value(command, word))).min(words.len());
        replaced.extend_from_slice(&words[at..end]);
        at = end;
        if is_exec {
            place = replaced.len();
        }
    }
    if found {
        replaced.splice(place..place, ["--interactive".into(), "--tty".into()]);
    }
    replaced.extend_from_slice(&words[at..]);
    replaced
}

/// Whether the word after this one is its value.
fn takes_value(command: &Command, word: &OsStr) -> bool {
    let Some(word) = word.to_str() else { return false };
    let mut flags = command.get_arguments().filter(|flag| flag.get_action().takes_values());
    match word.strip_prefix("--") {
        Some(name) => flags.any(|flag| flag.get_long() == Some(name)),
        None => flags.any(|flag| flag.get_short().is_some_and(|short| word == format!("-{short}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(line: &str) -> String {
        let words = expand(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_short_form_is_replaced_where_flags_are() {
        for (line, expected) in [
            ("sandbox-run -it --lang python --code x", "sandbox-run --interactive --tty --lang python --code x"),
            ("sandbox-run --lang python -ti --code x", "sandbox-run --interactive --tty --lang python --code x"),
            ("sandbox-run exec -it -- bash", "sandbox-run exec --interactive --tty -- bash"),
            ("sandbox-run -i -t exec -- bash", "sandbox-run exec --interactive --tty -- bash"),
            ("sandbox-run exec -t -i -m 64m", "sandbox-run exec --interactive --tty -m 64m"),
            ("sandbox-run -it exec -- bash", "sandbox-run exec --interactive --tty -- bash"),
            ("sandbox-run -it --image x -- sh -it", "sandbox-run --interactive --tty --image x -- sh -it"),
            ("sandbox-run exec -m 64m -it -- ls", "sandbox-run exec --interactive --tty -m 64m -- ls"),
        ] {
            assert_eq!(expanded(line), expected);
        }
    }

    #[test]
    fn elsewhere_it_is_left_alone() {
        for line in [
            "sandbox-run exec -- ls -it",
            "sandbox-run exec ls -it",
            "sandbox-run script.py -it",
            "sandbox-run -m pytest -it",
            "sandbox-run --module pytest -it",
            "sandbox-run --lang bash --code -it",
            "sandbox-run -c -it",
            "sandbox-run -i t -t 5s",
            "sandbox-run -i -- -t",
            "sandbox-run",
        ] {
            assert_eq!(expanded(line), line);
        }
    }
}
