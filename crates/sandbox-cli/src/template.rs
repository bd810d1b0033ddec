//! `--template`, `--var` and `--vars`: reads a template and its variables.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use sandbox_base::reason;
use sandbox_executor::TemplateRequest;
use sandbox_runtimes::Definition;
use serde_json::Value;

use crate::args::CodeOptions;
use crate::exit_code;
use crate::request::UsageError;

/// The maximum size of a template, and of a file with variables.
const MOST: u64 = 16 << 20;

/// The template that the flags select.
pub(crate) fn read(options: &CodeOptions, language: &Definition) -> Result<Option<TemplateRequest>, UsageError> {
    let Some(template) = &options.template else {
        if options.var.is_empty() && options.vars.is_empty() {
            return Ok(None);
        }
        return Err("--var and --vars require --template".to_owned());
    };
    let name = template.display().to_string();
    let text = match language.templates.get(&name) {
        Some(text) if !template.exists() => text.clone(),
        _ => read_text(template)?,
    };
    let mut variables = BTreeMap::new();
    for file in &options.vars {
        let text = read_text(file)?;
        let found: BTreeMap<String, Value> = serde_json::from_str(&text)
            .map_err(|error| format!("'{}' is not a JSON object: {error}", file.display()))?;
        variables.extend(found);
    }
    for text in &options.var {
        let (name, value) = variable(text)?;
        variables.insert(name, value);
    }
    Ok(Some(TemplateRequest { name: format!("template '{name}'"), text: text.into(), variables: variables.into() }))
}

fn variable(text: &str) -> Result<(String, Value), UsageError> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("invalid template variable '{text}': expected NAME=VALUE"))?;
    let (name, value) = match (name.strip_suffix(':'), value.strip_prefix('@')) {
        (Some(name), _) => {
            let json = serde_json::from_str(value).map_err(|error| format!("--var {name}: not JSON: {error}"))?;
            (name, json)
        }
        (None, Some(file)) => (name, Value::String(read_text(Path::new(file))?)),
        (None, None) => (name, Value::String(value.to_owned())),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(fits) {
        return Err(format!("invalid template variable name '{name}'"));
    }
    Ok((name.to_owned(), value))
}

fn read_text(file: &Path) -> Result<String, UsageError> {
    let refuse = |error: &std::io::Error| format!("cannot read '{}': {}", file.display(), reason(error));
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| refuse(&error))?;
    opened.take(MOST).read_to_string(&mut text).map_err(|error| refuse(&error))?;
    Ok(text)
}

/// Renders the template on standard input. This is what runs in a cell.
pub(crate) fn render() -> u8 {
    let mut job = vec![];
    let read = std::io::stdin().take(8 * MOST).read_to_end(&mut job);
    let written = read.and_then(|_| std::io::stdout().write_all(&sandbox_executor::render(&job)));
    if written.is_ok() { 0 } else { exit_code::INTERNAL }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_can_be_text_files_or_json() {
        assert_eq!(variable("a=b=c"), Ok(("a".into(), json!("b=c"))));
        assert_eq!(variable("a:=[1, true]"), Ok(("a".into(), json!([1, true]))));
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("f"), "from a file").expect("write");
        let given = format!("a=@{}", dir.path().join("f").display());
        assert_eq!(variable(&given), Ok(("a".into(), json!("from a file"))));
        for bad in ["a", "=x", "a b=x", "1a=x", "a:={", "a=@/no/such/file"] {
            assert!(variable(bad).is_err(), "{bad}");
        }
    }
}
