//! Definition files: the names and paths of an accepted definition are valid.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use sandbox_base::RelativePath;
use sandbox_runtimes::Definition;

const BASE: &str = include_str!("../../languages/bash/language.toml");

fuzz_target!(|text: &str| {
    let like = |name: &str| (name == "bash").then(|| toml::from_str(BASE).expect("valid"));
    let beside = |name: &str| {
        assert!(RelativePath::new(name).is_ok(), "{name:?} is not beside the definition");
        Ok(name.to_owned())
    };
    let definition = match Definition::parse("x.toml", text, like, beside) {
        Ok((definition, _)) => definition,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-_".contains(c);
    for name in [&definition.name].into_iter().chain(&definition.aliases) {
        assert!(!name.is_empty() && name.chars().all(plain), "{name:?}");
    }
    for path in [&definition.source].into_iter().chain(&definition.entries) {
        assert!(RelativePath::new(path.clone()).is_ok());
    }
    let normal = |path: &Path| path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    for path in definition.find.system.iter().map(Path::new) {
        assert!(path.starts_with("/etc") && normal(path), "{path:?}");
    }
    let targets = definition.prepare.iter().map(|prepare| &prepare.target);
    for target in targets.chain(definition.packages.iter().map(|packages| &packages.target)) {
        assert!(target.is_absolute() && normal(target) && target.components().count() > 1, "{target:?}");
    }
    assert!(!definition.run.argv.is_empty());
    let _ = definition.is_source(text);
});
