//! The usual short form of two flags: `-it` for `--interactive --tty`.
//!
//! Alone, `-i` and `-t` are short for `--input` and `--timeout`, so the parser of flags would read `-it` as an input file
//! with the name t.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Command, CommandFactory};

use crate::args::Arguments;

/// Replaces the short form wherever a flag of this program can be. Before `exec` it means the same as after it.
pub(crate) fn expand(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    if words.iter().any(|word| is_short_form(word)) { replace(words, &Arguments::command()) } else { words }
}

fn is_short_form(word: &OsStr) -> bool {
    word == "-it" || word == "-ti"
}

fn replace(words: Vec<OsString>, command: &Command) -> Vec<OsString> {
    let mut rest = words.into_iter();
    let mut words: Vec<OsString> = rest.next().into_iter().collect();
    let (mut place, mut found, mut is_value) = (words.len(), false, false);
    for word in rest.by_ref() {
        if std::mem::replace(&mut is_value, false) {
            words.push(word);
            continue;
        }
        if is_short_form(&word) {
            found = true;
            continue;
        }
        is_value = takes_value(command, &word);
        let is_flag = word.as_bytes().starts_with(b"-") && word.len() > 1 && word != "--";
        let is_exec = word == "exec" && place == 1;
        words.push(word);
        if is_exec {
            place = words.len();
        } else if !is_flag {
            // The rest belongs to the program, or to a command without these flags.
            break;
        }
    }
    if found {
        words.splice(place..place, ["--interactive".into(), "--tty".into()]);
    }
    words.extend(rest);
    words
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
            "sandbox-run --lang bash --code -it",
            "sandbox-run -c -it",
            "sandbox-run -i t -t 5s",
        ] {
            assert_eq!(expanded(line), line);
        }
    }
}
