//! Inline metadata of scripts: reading it ends, with packages and a requirement or with an error that names a line of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbox_runtimes::InlineFormat;

fuzz_target!(|script: &str| {
    match InlineFormat::Pep723.read(script) {
        Ok(metadata) => {
            let stated = script.contains("# /// script");
            assert!(stated || (metadata.packages.is_empty() && metadata.requires.is_none()));
            if let Some(requires) = metadata.requires {
                assert!(!requires.to_string().is_empty());
                let _ = requires.is_met_by("3.11.2");
            }
        }
        Err(error) => {
            let error = error.to_string();
            let line = error.split("(line ").nth(1).and_then(|rest| rest.split(')').next()?.parse::<usize>().ok());
            assert!(line.is_some_and(|line| (1..=script.lines().count()).contains(&line)), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
});
