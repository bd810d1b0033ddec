//! All languages that are defined, by their names.

use std::collections::BTreeMap;
use std::path::Path;

use crate::definition::{Definition, DefinitionError};
use crate::nearest::nearest;
use crate::shebang::interpreter;

/// The definition in a language's directory.
const DEFINITION_FILE: &str = "language.toml";

/// The definitions in effect; none by default.
#[derive(Debug, Default)]
pub struct Registry {
    definitions: Vec<Definition>,
    /// What the files say, by the language's name, for those that build on them.
    tables: BTreeMap<String, toml::Table>,
}

/// A name that no language has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct UnknownLanguage {
    /// What was asked for.
    pub name: String,
    /// The name that comes closest, if one does.
    pub nearest: Option<String>,
    /// All names.
    pub known: Vec<String>,
}

impl std::fmt::Display for UnknownLanguage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown language '{}'", self.name)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean '{nearest}'?"),
            None => write!(f, "; the languages are {}", self.known.join(", ")),
        }
    }
}

/// A language that comes with the program: the names by which its definition is found, and its files.
struct ShippedLanguage {
    /// Its name and its aliases.
    names: &'static [&'static str],
    extensions: &'static [&'static str],
    /// The language that it builds on; empty if none.
    like: &'static str,
    definition: &'static str,
    /// The files beside the definition, by their names.
    files: &'static [(&'static str, &'static str)],
    /// See [`Definition::ignore`].
    ignore: &'static [&'static str],
    /// See [`Definition::build_dir`], with the manifests beside which it lies.
    build_dir: (&'static str, &'static [&'static str]),
}

/// Every directory in `languages/`, in the order of the definitions. The build script writes it.
const SHIPPED: &[ShippedLanguage] = include!(concat!(env!("OUT_DIR"), "/languages.rs"));

impl ShippedLanguage {
    fn name(&self) -> &'static str {
        self.names[0]
    }

    fn read(&self, name: &str) -> std::io::Result<String> {
        let found = self.files.iter().find(|(file, _)| *file == name);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

impl Registry {
    /// A registry of one language that comes with the program, by its name or, without one, by a file's ending. `None` if
    /// there is none: then the whole list is needed, if only to say so.
    pub fn just(name: Option<&str>, file: Option<&Path>) -> Option<Result<Self, DefinitionError>> {
        let name = name.map(str::to_ascii_lowercase);
        let ending = file.and_then(|file| Some(file.extension()?.to_str()?.to_ascii_lowercase()));
        let wanted = SHIPPED.iter().find(|language| match (&name, &ending) {
            (Some(name), _) => language.names.contains(&name.as_str()),
            (None, Some(ending)) => language.extensions.contains(&ending.as_str()),
            (None, None) => false,
        })?;
        Some(Self::read(|language| language.name() == wanted.name()))
    }

    /// The languages that come with the program.
    pub fn shipped() -> Result<Self, DefinitionError> {
        Self::read(|_| true)
    }

    /// Reads the definitions that are wanted, and those on which they build.
    fn read(wanted: impl Fn(&ShippedLanguage) -> bool) -> Result<Self, DefinitionError> {
        let mut registry = Self::default();
        for language in SHIPPED.iter().filter(|language| wanted(language)) {
            let definition = registry.parse_shipped(language)?;
            registry.definitions.push(definition);
        }
        Ok(registry)
    }

    fn parse_shipped(&mut self, language: &ShippedLanguage) -> Result<Definition, DefinitionError> {
        let is_base = |base: &&ShippedLanguage| base.name() == language.like && base.name() != language.name();
        if let Some(base) = SHIPPED.iter().find(is_base).filter(|base| !self.tables.contains_key(base.name())) {
            self.parse_shipped(base)?;
        }
        let file = format!("languages/{}/language.toml", language.name());
        self.parse(&file, language.definition, |name| language.read(name))
    }

    fn parse(
        &mut self,
        file: &str,
        text: &str,
        beside: impl Fn(&str) -> std::io::Result<String>,
    ) -> Result<Definition, DefinitionError> {
        let (definition, table) = Definition::parse(file, text, |name| self.tables.get(name).cloned(), beside)?;
        self.tables.insert(definition.name.clone(), table);
        Ok(definition)
    }

    /// Adds the definitions in a directory: every file in it that ends in `.toml`, and every `language.toml` in a directory
    /// in it. One with the name of a language that exists takes its place.
    pub fn add_directory(&mut self, dir: &Path) -> Result<(), DefinitionError> {
        let unreadable = |file: &Path| {
            let file = file.display().to_string();
            move |source| DefinitionError::Read { file, source }
        };
        let entries = std::fs::read_dir(dir).map_err(unreadable(dir))?;
        let mut files = vec![];
        for entry in entries {
            let path = entry.map_err(unreadable(dir))?.path();
            let inner = path.join(DEFINITION_FILE);
            if inner.is_file() {
                files.push(inner);
            } else if path.extension().is_some_and(|ending| ending == "toml") {
                files.push(path);
            }
        }
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(unreadable(&file))?;
            let shown = file.display().to_string();
            let definition = self.parse(&shown, &text, |name| std::fs::read_to_string(file.with_file_name(name)))?;
            self.add(&shown, definition)?;
        }
        Ok(())
    }

    fn add(&mut self, file: &str, definition: Definition) -> Result<(), DefinitionError> {
        self.definitions.retain(|existing| existing.name != definition.name);
        for existing in &self.definitions {
            let taken = |name: &&String| names(existing).any(|other| other == *name);
            if let Some(name) = names(&definition).find(taken) {
                let what = format!("the name '{name}' is already used by {}", existing.name);
                return Err(DefinitionError::Value { file: file.to_owned(), what });
            }
        }
        // In front: an ending that two languages claim is the newcomer's.
        self.definitions.insert(0, definition);
        Ok(())
    }

    /// Every language, in the order of their definition.
    pub fn all(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.iter()
    }

    /// The definition of a language, by name or alias, in any case.
    pub fn by_name(&self, name: &str) -> Result<&Definition, UnknownLanguage> {
        let wanted = name.to_ascii_lowercase();
        let named = |definition: &&Definition| names(definition).any(|name| *name == wanted);
        self.definitions.iter().find(named).ok_or_else(|| self.unknown(name))
    }

    /// The language of a file, by its ending.
    #[must_use]
    pub fn by_file(&self, file: &Path) -> Option<&Definition> {
        let file = file.to_str()?;
        self.definitions.iter().find(|definition| definition.is_source(file))
    }

    /// The language of a script, by the interpreter in its first line, with a version or without: `#!/usr/bin/python3.11`.
    #[must_use]
    pub fn by_shebang(&self, script: &str) -> Option<&Definition> {
        let name = interpreter(script)?.to_ascii_lowercase();
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let called = |wanted: &str| {
            let known =
                |definition: &Definition| names(definition).chain(&definition.find.commands).any(|n| n == wanted);
            self.definitions.iter().find(|definition| known(definition))
        };
        called(&name).or_else(|| called(plain))
    }

    /// Whether a directory of this name is made by a tool, and is no part of a project. `is_beside` returns whether a
    /// manifest is beside it. All languages that come with the program count, whichever of them were read.
    #[must_use]
    pub fn ignores(&self, name: &str, is_beside: &dyn Fn(&str) -> bool) -> bool {
        let is_built = |dir: &str, manifest: &str| dir == name && is_beside(manifest);
        let shipped = |language: &ShippedLanguage| {
            let (dir, manifests) = language.build_dir;
            language.ignore.contains(&name) || manifests.iter().any(|manifest| is_built(dir, manifest))
        };
        let added = |definition: &Definition| {
            let mut manifests = definition.packages.iter().flat_map(|packages| &packages.manifests);
            let dir = definition.build_dir.as_deref().unwrap_or_default();
            definition.ignore.iter().any(|own| own == name) || manifests.any(|manifest| is_built(dir, manifest))
        };
        SHIPPED.iter().any(shipped) || self.definitions.iter().any(added)
    }

    fn unknown(&self, name: &str) -> UnknownLanguage {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let nearest = nearest(&shown, self.definitions.iter().flat_map(names).map(String::as_str)).map(str::to_owned);
        UnknownLanguage {
            name: shown,
            nearest,
            known: self.definitions.iter().map(|definition| definition.name.clone()).collect(),
        }
    }
}

fn names(definition: &Definition) -> impl Iterator<Item = &String> {
    std::iter::once(&definition.name).chain(&definition.aliases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_name_alias_and_file() {
        let registry = Registry::shipped().expect("valid");
        for name in ["python", "py", "Python3", "PYTHON"] {
            assert_eq!(registry.by_name(name).expect("known").name, "python");
        }
        assert_eq!(registry.by_file(Path::new("a/b.PY")).map(|d| d.name.as_str()), Some("python"));
        assert!(registry.by_file(Path::new("README")).is_none());
        assert!(registry.by_file(Path::new("a.unknown")).is_none());
    }

    #[test]
    fn suggests_the_nearest() {
        let registry = Registry::shipped().expect("valid");
        let error = registry.by_name("pyhton").expect_err("unknown");
        assert_eq!(error.to_string(), "unknown language 'pyhton'; did you mean 'python'?");
        let error = registry.by_name("zz\x1b[31m").expect_err("unknown");
        let known: Vec<&str> = registry.all().map(|definition| definition.name.as_str()).collect();
        let expected = format!("unknown language 'zz[31m'; the languages are {}", known.join(", "));
        assert!(expected.contains("are python, javascript, "), "{expected}");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let registry = Registry::shipped().expect("valid");
        let language = |script| registry.by_shebang(script).map(|definition| definition.name.as_str());
        for (script, expected) in [
            ("#!/usr/bin/env python3\n", Some("python")),
            ("#!/opt/bin/python3.12 -I\n", Some("python")),
            ("#!/bin/sh\n", Some("bash")),
            ("#!/usr/bin/env node\n", Some("javascript")),
            ("#!/usr/bin/perl -w\n", Some("perl")),
            ("#!/usr/bin/env sandbox-run\n", None),
            ("print(1)", None),
        ] {
            assert_eq!(language(script), expected, "{script}");
        }
    }

    #[test]
    fn names_and_endings_are_the_known_ones() {
        let registry = Registry::shipped().expect("valid");
        for (name, expected) in [
            ("js", "javascript"),
            ("node", "javascript"),
            ("nodejs", "javascript"),
            ("golang", "go"),
            ("rs", "rust"),
            ("c++", "cpp"),
            ("ts", "typescript"),
            ("sh", "bash"),
            ("java", "java"),
        ] {
            assert_eq!(registry.by_name(name).expect("known").name, expected);
        }
        for (file, expected) in [("a.mjs", "javascript"), ("a.cc", "cpp"), ("a.h.c", "c"), ("x.tsx", "typescript")] {
            assert_eq!(registry.by_file(Path::new(file)).map(|d| d.name.as_str()), Some(expected), "{file}");
        }
    }

    #[test]
    fn one_language_can_be_read_alone() {
        let all = Registry::shipped().expect("valid");
        for (definition, language) in all.all().zip(SHIPPED) {
            let (own, endings) = (language.names, language.extensions);
            assert_eq!(names(definition).collect::<Vec<_>>(), own);
            assert_eq!(definition.extensions, endings);
            for name in own {
                let one = Registry::just(Some(name), None).expect("known").expect("valid");
                assert_eq!(one.all().map(|one| &one.name).collect::<Vec<_>>(), [&definition.name]);
            }
            let file = format!("x.{}", endings[0].to_uppercase());
            let one = Registry::just(None, Some(Path::new(&file))).expect("known").expect("valid");
            assert_eq!(one.all().next().map(|one| &one.name), Some(&definition.name));
        }
        assert!(Registry::just(Some("pyhton"), None).is_none() && Registry::just(None, Some(Path::new("x"))).is_none());
    }

    #[test]
    fn a_directory_adds_and_replaces_languages() {
        let dir = tempfile::tempdir().expect("tempdir");
        let definition = |name: &str, extra: &str| {
            format!(
                "name = \"{name}\"\nsource = \"main.x\"\n{extra}\n[find]\ncommands = [\"x\"]\ndescribe = \"\"\n\
                 missing = \"\"\n[run]\nargv = [\"x\"]\n"
            )
        };
        std::fs::write(dir.path().join("README"), "not a definition").expect("write");
        std::fs::write(dir.path().join("lua.toml"), definition("lua", "extensions = [\"py\"]")).expect("write");
        std::fs::write(dir.path().join("py.toml"), definition("python", "")).expect("write");
        let mut registry = Registry::shipped().expect("valid");
        registry.add_directory(dir.path()).expect("valid");
        assert_eq!(registry.all().count(), SHIPPED.len() + 1);
        assert_eq!(registry.by_name("python").expect("known").source, "main.x");
        assert_eq!(registry.by_file(Path::new("a.py")).expect("known").name, "lua");

        std::fs::write(dir.path().join("bad.toml"), definition("mine", "aliases = [\"js\"]")).expect("write");
        let error = Registry::shipped().expect("valid").add_directory(dir.path()).expect_err("refused").to_string();
        assert!(error.ends_with("bad.toml: the name 'js' is already used by javascript"), "{error}");
        assert!(Registry::shipped().expect("valid").add_directory(Path::new("/no/such/dir")).is_err());
    }

    #[test]
    fn a_directory_of_its_own_holds_the_files_of_a_language() {
        let dir = tempfile::tempdir().expect("tempdir");
        let own = dir.path().join("snake");
        std::fs::create_dir(&own).expect("mkdir");
        let definition = "like = \"python\"\nname = \"snake\"\nextensions = [\"snake\"]\nignore = [\"eggs\"]\n\
                          build_dir = \"nest\"\ntemplates = { greeting = \"greeting.txt\" }\n";
        std::fs::write(own.join("language.toml"), definition).expect("write");
        std::fs::write(own.join("greeting.txt"), "hiss {{ code }}").expect("write");
        let mut registry = Registry::shipped().expect("valid");
        registry.add_directory(dir.path()).expect("valid");
        let (snake, python) = (registry.by_name("snake").expect("known"), registry.by_name("py").expect("known"));
        assert_eq!((snake.title(), snake.aliases.len(), python.title()), ("snake", 0, "Python"));
        assert_eq!(snake.templates["greeting"], "hiss {{ code }}");
        assert_eq!(snake.templates["harness"], python.templates["harness"], "inherited, with its content");
        assert_eq!(snake.run.runner, python.run.runner);
        for (name, ignored) in [("eggs", true), ("node_modules", true), ("nest", true), ("target", false)] {
            assert_eq!(registry.ignores(name, &|manifest| manifest == "pyproject.toml"), ignored, "{name}");
        }
        assert!(!registry.ignores("nest", &|_| false) && registry.ignores("target", &|file| file == "Cargo.toml"));
    }
}
