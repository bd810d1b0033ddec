//! Where the value of a setting came from, and the file of settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toml::{Spanned, Value};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueSource {
    Flag(String),
    Variable(String),
    /// A line of the file of settings.
    Line(Arc<Path>, usize),
    /// A file that another setting names.
    File(String),
    Default,
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag --{flag}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
            Self::File(path) => write!(f, "file {path}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl ValueSource {
    /// The setting as the operator has written it; `key` is its name in a file.
    pub(super) fn name(&self, key: &str) -> String {
        match self {
            Self::Flag(flag) => format!("--{flag}"),
            Self::Variable(name) => name.clone(),
            Self::Line(path, line) => format!("{}:{line}: {key}", path.display()),
            Self::File(path) => format!("{path}: {key}"),
            Self::Default => key.to_owned(),
        }
    }
}

/// A value with where it came from.
pub(crate) type Sourced = (String, ValueSource);

/// The file of settings.
#[derive(Debug, Default)]
pub(super) struct SettingsFile {
    path: Option<Arc<Path>>,
    /// Each value as text, with its line.
    values: BTreeMap<String, (String, usize)>,
}

impl SettingsFile {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(path, &text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let table: BTreeMap<Spanned<String>, Value> = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut values = BTreeMap::new();
        for (key, value) in table {
            let before = text.get(..key.span().start).unwrap_or_default();
            let (key, line) = (key.into_inner(), before.matches('\n').count() + 1);
            let value = match value {
                Value::String(text) => text,
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                Value::Boolean(flag) => flag.to_string(),
                _ => return Err(format!("line {line}: '{key}' must be text or a number")),
            };
            values.insert(key, (value, line));
        }
        Ok(Self { path: Some(path.into()), values })
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Sourced> {
        let (value, line) = self.values.get(key)?;
        Some((value.clone(), ValueSource::Line(Arc::clone(self.path.as_ref()?), *line)))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.values.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_lines() {
        let file = SettingsFile::parse(Path::new("/a.toml"), "# x\na = 1\n\nb = \"two\"\n").expect("valid");
        let (value, source) = file.get("b").expect("there");
        assert_eq!((value.as_str(), source.to_string().as_str()), ("two", "/a.toml:4"));
        assert_eq!(source.name("b"), "/a.toml:4: b");
        assert_eq!(file.get("c"), None);
        let error = SettingsFile::parse(Path::new("/a.toml"), "a = 1\n[server]\nb = 1\n").expect_err("a table");
        assert_eq!(error, "line 2: 'server' must be text or a number");
    }
}
