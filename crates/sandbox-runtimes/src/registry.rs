//! All languages that are defined, by their names.

use std::path::Path;

use crate::definition::{Definition, DefinitionError};

/// The definitions in effect.
#[derive(Debug)]
pub struct Registry {
    definitions: Vec<Definition>,
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

const SHIPPED: [(&str, &str); 1] = [("python.toml", include_str!("../../../runtimes/python.toml"))];

impl Registry {
    /// The languages that come with the program.
    pub fn shipped() -> Result<Self, DefinitionError> {
        let definitions = SHIPPED.iter().map(|(file, text)| Definition::parse(file, text)).collect::<Result<_, _>>()?;
        Ok(Self { definitions })
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
        let ending = file.extension()?.to_str()?.to_ascii_lowercase();
        self.definitions.iter().find(|definition| definition.extensions.contains(&ending))
    }

    fn unknown(&self, name: &str) -> UnknownLanguage {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let wanted = shown.to_ascii_lowercase();
        let nearest = self
            .definitions
            .iter()
            .flat_map(names)
            .map(|name| (strsim::jaro_winkler(&wanted, name), name))
            .filter(|(likeness, _)| *likeness > 0.75)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        UnknownLanguage {
            name: shown,
            nearest: nearest.map(|(_, name)| name.clone()),
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
        assert_eq!(error.to_string(), "unknown language 'zz[31m'; the languages are python");
    }
}
