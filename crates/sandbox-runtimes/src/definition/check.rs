//! Checks the values of a definition: names, paths, commands and placeholders.

use std::path::{Component, Path};

use sandbox_base::RelativePath;

use super::Definition;
use crate::literals::Literals;

/// Words that are replaced in a command.
const PLACEHOLDERS: [&str; 11] = [
    "{executable}",
    "{entry}",
    "{module}",
    "{stem}",
    "{runner}",
    "{runner_file}",
    "{heap}",
    ARGUMENTS,
    "{zygote}",
    "{library}",
    "{preload}",
];

/// Where the arguments for the interpreter are.
const ARGUMENTS: &str = "{arguments}";

impl Definition {
    /// Fails with the first value that is invalid.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_names()?;
        check_paths("source or entries", [&self.source].into_iter().chain(&self.entries))?;
        self.check_commands()?;
        self.check_argvs()?;
        check_paths("prepare.files", self.prepare.iter().flat_map(|prepare| prepare.files.keys()))?;
        self.check_directories()?;
        self.check_missing_modules()?;
        self.literals.as_ref().and_then(Literals::problem).map_or(Ok(()), Err)?;
        self.check_targets()
    }

    fn check_names(&self) -> Result<(), String> {
        match [&self.name].into_iter().chain(&self.aliases).find(|name| !is_name(name)) {
            Some(name) => Err(format!("invalid name '{name}': use lower-case letters, digits, '+', '-' and '_'")),
            None => Ok(()),
        }
    }

    /// Checks the programs and files that are looked for on the host.
    fn check_commands(&self) -> Result<(), String> {
        let tools = self.tools().map(|(name, tool)| (name.as_str(), &tool.commands));
        for (name, commands) in [("find", &self.find.commands)].into_iter().chain(tools) {
            if commands.is_empty() || commands.iter().any(|command| command.is_empty() || command.contains('/')) {
                return Err(format!("{name}.commands must list commands, without directories"));
            }
        }
        let inside = |path: &Path| path.starts_with("/etc") && is_normal(path);
        match self.find.system.iter().find(|path| !inside(Path::new(path))) {
            Some(path) => Err(format!("find.system: '{path}' is not below /etc")),
            None => Ok(()),
        }
    }

    fn check_argvs(&self) -> Result<(), String> {
        let restricted = self.run.restricted.iter().map(|restricted| ("run.restricted.argv", &restricted.argv));
        let warm = self.run.warm.iter().map(|warm| ("run.warm.argv", &warm.argv));
        let plain = self.run.plain.iter().map(|argv| ("run.plain", argv));
        let module = self.run.module.iter().map(|argv| ("run.module", argv));
        let others = plain.chain(module).chain(restricted).chain(warm);
        for (name, argv) in [("run.argv", &self.run.argv)].into_iter().chain(others) {
            if argv.is_empty() {
                return Err(format!("{name} is empty"));
            }
            let takes_arguments = ["run.argv", "run.plain"].contains(&name) && !self.run.arguments.is_empty();
            if takes_arguments && !argv.iter().any(|word| word == ARGUMENTS) {
                return Err(format!("run.arguments: {name} has no {ARGUMENTS}"));
            }
            let unknown = argv
                .iter()
                .find(|word| word.starts_with('{') && word.ends_with('}') && !PLACEHOLDERS.contains(&word.as_str()));
            if let Some(word) = unknown {
                return Err(format!("{name}: unknown placeholder {word}; expected {}", PLACEHOLDERS.join(", ")));
            }
            if argv.iter().any(|word| word.starts_with("{runner")) && self.run.runner.is_none() {
                return Err(format!("{name} uses {{runner}}, but there is no run.runner"));
            }
        }
        Ok(())
    }

    /// Checks the directories that are no part of a project.
    fn check_directories(&self) -> Result<(), String> {
        let is_plain = |name: &str| RelativePath::new(name.to_owned()).is_ok_and(|path| !path.as_str().contains('/'));
        match self.ignore.iter().chain(&self.build_dir).find(|name| !is_plain(name)) {
            Some(name) => Err(format!("ignore or build_dir: '{name}' is not the name of a directory")),
            None => Ok(()),
        }
    }

    /// Checks that the expressions for missing modules have the group that names the module or the package.
    fn check_missing_modules(&self) -> Result<(), String> {
        let missing = self.packages.iter().filter_map(|packages| packages.missing.as_ref());
        for pattern in missing.flat_map(|missing| missing.patterns.iter().chain(&missing.package)) {
            if pattern.0.captures_len() < 2 {
                return Err(format!("packages.missing: '{}' has no group", pattern.0.as_str()));
            }
        }
        Ok(())
    }

    /// Checks the paths in a cell at which results appear.
    fn check_targets(&self) -> Result<(), String> {
        let prepare = self.prepare.iter().map(|prepare| ("prepare.target", &prepare.target));
        let packages = self.packages.iter().map(|packages| ("packages.target", &packages.target));
        let preparations = self.packages.iter().filter_map(|packages| packages.prepare.as_ref());
        let prepare_packages = preparations.map(|prepare| ("packages.prepare.target", &prepare.target));
        for (name, target) in prepare.chain(packages).chain(prepare_packages) {
            if !target.is_absolute() || !is_normal(target) || target.components().count() < 2 {
                return Err(format!("{name}: '{}' is not an absolute path", target.display()));
            }
        }
        Ok(())
    }
}

fn check_paths<'p>(key: &str, paths: impl Iterator<Item = &'p String>) -> Result<(), String> {
    for path in paths {
        RelativePath::new(path.clone()).map_err(|error| format!("{key}: {error}"))?;
    }
    Ok(())
}

/// Whether a path has no `..` after its root.
fn is_normal(path: &Path) -> bool {
    path.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-_".contains(c))
}
