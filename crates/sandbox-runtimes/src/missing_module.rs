//! From the error output of a program to the package that it lacks.
//!
//! The output is the program's, which is not trusted: what is found is shown to people who may install it. So names have
//! harmless characters only, and packages that the definition lists as well known are told from others.

use crate::definition::{MissingModule, Packages};

/// The longest name of a module or package.
const LONGEST_NAME: usize = 100;

/// A module that was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackedModule {
    /// The module, as the program names it.
    pub module: String,
    /// The package that provides it, as users of the package manager write it.
    pub package: Option<String>,
    /// Whether the package is certain. Otherwise its name is a guess, and the module may be a file of the program.
    pub is_known: bool,
}

impl Packages {
    /// The modules that error output says were not found, in its order and each once.
    #[must_use]
    pub fn lacked_modules(&self, output: &str) -> Vec<LackedModule> {
        let Some(missing) = &self.missing else { return vec![] };
        let mut modules: Vec<(usize, &str)> = vec![];
        for pattern in &missing.patterns {
            let groups = pattern.0.captures_iter(output).filter_map(|groups| groups.get(1));
            modules.extend(groups.map(|group| (group.start(), group.as_str())));
        }
        modules.sort_unstable();
        let mut found: Vec<LackedModule> = vec![];
        for (_, module) in modules.into_iter().filter(|(_, module)| missing.may_be_a_package(module)) {
            let lacked = self.lacked_module(missing, module);
            let is_same = |other: &LackedModule| {
                other.module == lacked.module || (other.package.is_some() && other.package == lacked.package)
            };
            if !found.iter().any(is_same) {
                found.push(lacked);
            }
        }
        found
    }

    fn lacked_module(&self, missing: &MissingModule, module: &str) -> LackedModule {
        let known = missing.known_package(module);
        let guess = || Some(missing.package.as_ref()?.0.captures(module)?.get(1)?.as_str());
        let package = known.or_else(guess).filter(|name| is_harmless(name) && self.pattern.0.is_match(name));
        let is_known = (known.is_some() || missing.exact) && package.is_some();
        LackedModule { module: module.to_owned(), package: package.map(str::to_owned), is_known }
    }
}

impl MissingModule {
    fn may_be_a_package(&self, module: &str) -> bool {
        is_harmless(module) && !self.except.as_ref().is_some_and(|except| except.0.is_match(module))
    }

    /// The listed package that provides a module, or else one that provides what the module is a part of.
    fn known_package(&self, module: &str) -> Option<&str> {
        let list = self.known.as_deref()?;
        let mut part = module;
        loop {
            let provides = |line: &&str| {
                let mut words = line.split_ascii_whitespace();
                let package = words.next();
                let mut modules = words.peekable();
                if modules.peek().is_none() { package == Some(part) } else { modules.any(|name| name == part) }
            };
            if let Some(line) = list.lines().find(provides) {
                return line.split_ascii_whitespace().next();
            }
            part = &part[..part.rfind(['.', '/', ':'])?];
        }
    }
}

/// Whether a name can be shown, and pasted into a shell, as it is.
fn is_harmless(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"@._/~:+-".contains(&byte);
    name.len() <= LONGEST_NAME && name.bytes().all(fits) && !name.starts_with('-') && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Definition, Registry};

    fn lacked(language: &str, output: &str) -> Vec<(String, Option<String>, bool)> {
        let registry = Registry::shipped().expect("valid");
        let packages = registry.by_name(language).expect("known").packages.clone().expect("supported");
        let found = packages.lacked_modules(output).into_iter();
        found.map(|lacked| (lacked.module, lacked.package, lacked.is_known)).collect()
    }

    #[track_caller]
    fn check(language: &str, output: &str, expected: &[(&str, Option<&str>, bool)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(module, package, is_known)| ((*module).to_owned(), package.map(str::to_owned), *is_known))
            .collect();
        assert_eq!(lacked(language, output), expected, "{language}: {output}");
    }

    #[test]
    fn python_modules_name_their_packages() {
        let lacks = |module: &str| format!("Traceback …\nModuleNotFoundError: No module named '{module}'\n");
        for (module, package) in [
            ("numpy", "numpy"),
            ("numpy.linalg", "numpy"),
            ("cv2", "opencv-python"),
            ("PIL", "pillow"),
            ("PIL.Image", "pillow"),
            ("sklearn.svm", "scikit-learn"),
            ("yaml", "pyyaml"),
            ("bs4", "beautifulsoup4"),
            ("google.cloud.storage", "google-cloud-storage"),
            ("distutils.core", "setuptools"),
        ] {
            check("python", &lacks(module), &[(module, Some(package), true)]);
        }
        check("python", &lacks("some_helper.part"), &[("some_helper.part", Some("some_helper"), false)]);
        check("python", "/usr/bin/python3: No module named rich\n", &[("rich", Some("rich"), true)]);
        let optional = "ImportError: Missing optional dependency 'openpyxl'.  Use pip or conda to install openpyxl.\n";
        check("python", optional, &[("openpyxl", Some("openpyxl"), true)]);
    }

    #[test]
    fn modules_of_the_language_and_hostile_names_are_not_packages() {
        for line in [
            "ModuleNotFoundError: No module named '_ctypes'",
            "ModuleNotFoundError: No module named 'tkinter'",
            "ModuleNotFoundError: No module named 'json.x'; 'json' is not a package",
            "ModuleNotFoundError: No module named 'a; rm -rf /'",
            "ModuleNotFoundError: No module named '\u{1b}[2J'",
            "ModuleNotFoundError: No module named '--index-url=x'",
            &format!("ModuleNotFoundError: No module named '{}'", "a".repeat(101)),
            "print(\"No module named 'numpy'\")",
        ] {
            check("python", line, &[]);
        }
        for line in [
            "Error: Cannot find module './x'",
            "Error: Cannot find module '/sandbox/x.js'",
            "Error: Cannot find module '../lib'",
            "Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:nothing",
            "Error: Cannot find module 'node:x'",
        ] {
            check("javascript", line, &[]);
        }
        check("go", "main.go:2:9: package nosuch is not in std (/usr/local/go/src/nosuch)", &[]);
        check("rust", "error[E0432]: unresolved import `crate::x`", &[]);
    }

    #[test]
    fn other_languages_name_their_packages() {
        check(
            "javascript",
            "Error: Cannot find module 'lodash/fp'\nRequire stack:",
            &[("lodash/fp", Some("lodash"), true)],
        );
        check(
            "javascript",
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@scope/name' imported from /sandbox/main.mjs",
            &[("@scope/name", Some("@scope/name"), false)],
        );
        check(
            "typescript",
            "main.ts(1,15): error TS2307: Cannot find module 'left-pad' or its corresponding type declarations.",
            &[("left-pad", Some("left-pad"), false)],
        );
        let go = "main.go:2:16: no required module provides package github.com/google/uuid/x: go.mod file not found";
        check("go", go, &[("github.com/google/uuid/x", Some("github.com/google/uuid"), true)]);
        let go = "main.go:3:2: no required module provides package golang.org/x/text/cases; to add it:\n\tgo get";
        check("go", go, &[("golang.org/x/text/cases", Some("golang.org/x/text"), true)]);
        let rust = "error[E0432]: unresolved import `rand`\n  | ^^^^ use of unresolved module or unlinked crate `rand`\n\
                    error[E0433]: failed to resolve: use of unresolved module or unlinked crate `serde_json`\n";
        check("rust", rust, &[("rand", Some("rand"), true), ("serde_json", Some("serde_json"), true)]);
        check("rust", "error[E0463]: can't find crate for `foo`", &[("foo", Some("foo"), false)]);
        let java = "Main.java:1: error: package com.google.gson.reflect does not exist\nMain.java:2: error: package \
                    org.example.made.up does not exist\n";
        check(
            "java",
            java,
            &[
                ("com.google.gson.reflect", Some("com.google.code.gson:gson:2.11.0"), true),
                ("org.example.made.up", None, false),
            ],
        );
    }

    #[test]
    fn every_listed_package_can_be_installed_as_it_is_written() {
        let registry = Registry::shipped().expect("valid");
        for definition in registry.all() {
            let Some(packages) = &definition.packages else { continue };
            let lists = packages.missing.iter().filter_map(|missing| missing.known.as_deref());
            for line in lists.flat_map(str::lines) {
                let words: Vec<_> = line.split_ascii_whitespace().collect();
                let package = words.first().unwrap_or_else(|| panic!("{}: an empty line", definition.name));
                assert!(packages.pattern.0.is_match(package), "{}: {package}", definition.name);
                assert!(words.iter().all(|word| is_harmless(word)), "{}: {line}", definition.name);
            }
        }
    }

    #[test]
    fn expressions_need_a_group() {
        let text = |pattern: &str| {
            format!(
                "name = 'x'\nsource = 'x'\n[find]\ncommands = ['x']\ndescribe = ''\nmissing = ''\n[run]\nargv = ['x']\n\
                 [packages]\nexample = 'x'\npattern = 'x'\nscript = ''\ntarget = '/opt/x'\n\
                 [packages.missing]\npatterns = ['{pattern}']\n"
            )
        };
        let parse = |pattern| {
            let text = text(pattern);
            Definition::parse("x.toml", &text, |_| None, |_| Err(std::io::ErrorKind::NotFound.into())).map(drop)
        };
        assert!(parse("no (.*)").is_ok());
        let error = parse("no .*").expect_err("refused").to_string();
        assert!(error.contains("packages.missing: 'no .*' has no group"), "{error}");
    }
}
