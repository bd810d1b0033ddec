//! Reads a definition file: inherits from another definition, and includes the files beside it.

use super::Definition;

/// Why a definition file was refused.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or not of this shape.
    #[error("{file}: {source}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A value is invalid.
    #[error("{file}: {what}")]
    Value {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
    },
}

/// Keys whose value is the name of a file beside the definition; `*` stands for any key.
const FILE_KEYS: [&[&str]; 6] = [
    &["run", "runner"],
    &["run", "restricted", "runner"],
    &["run", "warm", "zygote"],
    &["prepare", "files", "*"],
    &["templates", "*"],
    &["packages", "missing", "known"],
];

/// Keys that a definition does not inherit from a language with another name.
const OWN_KEYS: [&str; 3] = ["aliases", "title", "order"];

impl Definition {
    /// Reads a definition; `file` is named in errors. `like` gives the definition that this one builds on by its name,
    /// and `beside` reads the files beside it. Returns the table too, in which names of files are replaced by their
    /// content, so that another definition can build on it.
    pub fn parse(
        file: &str,
        text: &str,
        like: impl Fn(&str) -> Option<toml::Table>,
        beside: impl Fn(&str) -> std::io::Result<String>,
    ) -> Result<(Self, toml::Table), DefinitionError> {
        let syntax = |source| DefinitionError::Syntax { file: file.to_owned(), source: Box::new(source) };
        let value = |what| DefinitionError::Value { file: file.to_owned(), what };
        let mut table: toml::Table = toml::from_str(text).map_err(syntax)?;
        let base = match table.get("like") {
            None => None,
            Some(toml::Value::String(name)) => {
                Some(like(name).ok_or_else(|| value(format!("like: unknown language '{name}'")))?)
            }
            Some(_) => return Err(value("like: expected the name of a language".to_owned())),
        };
        for keys in FILE_KEYS {
            read_files(&mut table, keys, &mut |name| {
                let read =
                    |source| DefinitionError::Read { file: format!("{name} ({} in {file})", keys.join(".")), source };
                let invalid = |error| value(format!("{}: {error}", keys.join(".")));
                sandbox_base::RelativePath::new(name.to_owned()).map_err(invalid)?;
                beside(name).map_err(read)
            })?;
        }
        let is_whole = base.is_none();
        if let Some(mut base) = base {
            if base.get("name") != table.get("name") {
                base.retain(|key, _| !OWN_KEYS.contains(&key));
            }
            let has_argv = |table: &toml::Table| table.get("run").is_some_and(|run| run.get("argv").is_some());
            if let Some(run) = base.get_mut("run").and_then(toml::Value::as_table_mut).filter(|_| has_argv(&table)) {
                run.remove("plain");
                run.remove("module");
            }
            table = merge(base, table);
        }
        let definition: Self = match table.clone().try_into() {
            Ok(definition) => definition,
            // Once more from the text, so that the error names the line.
            Err(source) => {
                return Err(syntax(toml::from_str::<Self>(text).err().filter(|_| is_whole).unwrap_or(source)));
            }
        };
        definition.check().map_err(value)?;
        Ok((definition, table))
    }
}

/// Replaces names of files by what `read` returns for them.
fn read_files(
    table: &mut toml::Table,
    keys: &[&str],
    read: &mut dyn FnMut(&str) -> Result<String, DefinitionError>,
) -> Result<(), DefinitionError> {
    let Some((first, rest)) = keys.split_first() else { return Ok(()) };
    for (_, value) in table.iter_mut().filter(|(key, _)| *first == "*" || key == first) {
        match value {
            toml::Value::Table(inner) => read_files(inner, rest, read)?,
            toml::Value::String(name) if rest.is_empty() => *name = read(name)?,
            // The shape of the rest is checked with the whole definition.
            _ => {}
        }
    }
    Ok(())
}

/// Merges two tables: a value of `upper` replaces the value of the same key in `lower`, unless both are tables.
fn merge(mut lower: toml::Table, upper: toml::Table) -> toml::Table {
    for (key, value) in upper {
        let value = match (lower.remove(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => toml::Value::Table(merge(below, above)),
            (_, value) => value,
        };
        lower.insert(key, value);
    }
    lower
}
