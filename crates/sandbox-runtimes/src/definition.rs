//! A language's definition file.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What a definition file says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The language's name.
    pub name: String,
    /// Other names for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Endings of its source files, without the dot.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// What a source file is called if the user does not say.
    pub source: String,
    /// How to find its toolchain.
    pub find: Find,
    /// How to run a program.
    pub run: Run,
}

/// How to find a toolchain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// Commands to look for along `PATH`, in this order.
    pub commands: Vec<String>,
    /// Arguments that make the command print `{"version", "executable", "prefix"}`.
    pub describe: Vec<String>,
    /// What to tell a user who does not have it.
    pub missing: String,
}

/// How to run a program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The command; `{executable}` and `{source}` are replaced.
    pub argv: Vec<String>,
    /// Variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Why a definition file was refused.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It is not TOML, or not of this shape.
    #[error("{file}: {source}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A value makes no sense.
    #[error("{file}: {what}")]
    Value {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
    },
}

impl Definition {
    /// Reads a definition; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, DefinitionError> {
        let definition: Self = toml::from_str(text)
            .map_err(|source| DefinitionError::Syntax { file: file.to_owned(), source: Box::new(source) })?;
        match definition.complaint() {
            None => Ok(definition),
            Some(what) => Err(DefinitionError::Value { file: file.to_owned(), what }),
        }
    }

    fn complaint(&self) -> Option<String> {
        let names = || std::iter::once(&self.name).chain(&self.aliases);
        if let Some(name) = names().find(|name| !is_name(name)) {
            return Some(format!("'{name}' is not a name: use lower-case letters, digits, '+', '-' and '_'"));
        }
        if let Err(error) = sandbox_cell::RelativePath::new(self.source.clone()) {
            return Some(format!("source: {error}"));
        }
        if self.find.commands.is_empty() {
            return Some("find.commands is empty".to_owned());
        }
        if self.run.argv.is_empty() {
            return Some("run.argv is empty".to_owned());
        }
        None
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: &str = include_str!("../../../runtimes/python.toml");

    #[test]
    fn reads_the_shipped_file() {
        let python = Definition::parse("python.toml", PYTHON).expect("valid");
        assert_eq!(python.name, "python");
        assert_eq!(python.run.argv, ["{executable}", "{source}"]);
    }

    #[test]
    fn complaints_name_the_file_and_the_mistake() {
        let wrong = |from: &str, to: &str| {
            Definition::parse("x.toml", &PYTHON.replace(from, to)).expect_err("refused").to_string()
        };
        assert!(wrong("name = \"python\"", "name = \"Py thon\"").contains("x.toml: 'Py thon' is not a name"));
        assert!(wrong("source = \"main.py\"", "source = \"../main.py\"").contains("climbs"));
        assert!(wrong("extensions", "extentions").contains("extentions"));
        assert!(wrong("commands = [\"python3\", \"python\"]", "commands = []").contains("find.commands is empty"));
        assert!(wrong("argv = [\"{executable}\", \"{source}\"]", "argv = []").contains("run.argv is empty"));
    }
}
