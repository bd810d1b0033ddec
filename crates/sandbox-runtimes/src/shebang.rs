//! The first line of a script that names its interpreter: `#!/usr/bin/env python3`.

/// The name of the interpreter that the first line of a script names, without its directory and the words after it.
#[must_use]
pub fn interpreter(script: &str) -> Option<&str> {
    let line = script.strip_prefix("#!")?.lines().next()?;
    let mut words = line.split_ascii_whitespace();
    let name = |path: &'_ str| path.rfind('/').map_or(0, |at| at + 1);
    let first = words.next()?;
    let first = &first[name(first)..];
    if first != "env" {
        return Some(first).filter(|first| !first.is_empty());
    }
    // Options of `env`, and variables that it sets.
    let found = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    Some(&found[name(found)..]).filter(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_named_in_its_first_line() {
        for (script, expected) in [
            ("#!/bin/sh\necho", Some("sh")),
            ("#! /usr/bin/python3.11 -I", Some("python3.11")),
            ("#!/usr/bin/env node\r\n1", Some("node")),
            ("#!/usr/bin/env -S A=1 sandbox-run --lang python", Some("sandbox-run")),
            ("#!/usr/bin/env", None),
            ("#!\n/bin/sh", None),
            ("#!/bin/", None),
            ("print(1)\n#!/bin/sh", None),
            ("", None),
        ] {
            assert_eq!(interpreter(script), expected, "{script:?}");
        }
    }
}
