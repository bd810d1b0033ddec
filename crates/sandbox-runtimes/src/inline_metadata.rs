//! Packages and versions that a script states about itself, in a comment.
//!
//! The one format is that of [PEP 723](https://peps.python.org/pep-0723/): TOML between the lines `# /// script` and
//! `# ///`. Its text is untrusted; nothing in it is a command or a path.

use serde::Deserialize;
use toml::Spanned;

use crate::python_version::Requirement;

/// The maximum size of a block.
const MAX_BLOCK: usize = 64 << 10;

/// A format of inline metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum InlineFormat {
    /// `# /// script`, as in Python.
    #[serde(rename = "PEP 723")]
    Pep723,
}

/// What a script states about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InlineMetadata {
    /// The packages that it needs.
    pub packages: Vec<String>,
    /// The versions of the interpreter that it needs.
    pub requires: Option<Requirement>,
}

/// Why inline metadata was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid inline metadata (line {line}): {what}")]
pub struct InlineError {
    /// The line in the script, counted from 1.
    line: usize,
    what: String,
}

/// The content of a block.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Block {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<Spanned<String>>,
    /// Settings of other tools.
    #[serde(default, rename = "tool")]
    _tool: serde::de::IgnoredAny,
}

impl InlineFormat {
    /// Reads the metadata of a script; nothing if it has none.
    pub fn read(self, script: &str) -> Result<InlineMetadata, InlineError> {
        let Self::Pep723 = self;
        let Some((first, text)) = script_block(script)? else { return Ok(InlineMetadata::default()) };
        let line_at = |at: usize| first + 1 + text[..at.min(text.len())].matches('\n').count();
        let block: Block = toml::from_str(&text).map_err(|error| InlineError {
            line: line_at(error.span().map_or(0, |span| span.start)),
            what: error.message().lines().collect::<Vec<_>>().join(", "),
        })?;
        let requires = block.requires_python.map(|text| {
            let line = line_at(text.span().start);
            Requirement::parse(text.get_ref()).map_err(|what| InlineError { line, what })
        });
        Ok(InlineMetadata { packages: block.dependencies, requires: requires.transpose()? })
    }
}

/// The content of the one block `script`, without the comment signs, and the number of the line in which it begins.
fn script_block(script: &str) -> Result<Option<(usize, String)>, InlineError> {
    const OPENING: &str = "# /// script";
    const CLOSING: &str = "# ///";
    if !script.contains(OPENING) {
        return Ok(None);
    }
    let lines: Vec<&str> = script.lines().collect();
    let mut found: Option<(usize, String)> = None;
    let mut at = 0;
    while at < lines.len() {
        at += 1;
        if lines[at - 1] != OPENING {
            continue;
        }
        let error = |what: &str| InlineError { line: at, what: what.to_owned() };
        if let Some((first, _)) = found {
            return Err(error(&format!("there is another block in line {first}")));
        }
        let comment = lines[at..].iter().take_while(|line| **line == "#" || line.starts_with("# ")).count();
        let length = lines[at..at + comment].iter().rposition(|line| *line == CLOSING);
        let length = length
            .ok_or_else(|| error("the block is not closed by a line '# ///'; each line in it starts with '#'"))?;
        let content = lines[at..at + length].iter().map(|line| line.get(2..).unwrap_or_default());
        let text: String = content.flat_map(|line| [line, "\n"]).collect();
        if text.len() > MAX_BLOCK {
            return Err(error("the block is larger than 64 KiB"));
        }
        found = Some((at, text));
        at += length + 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Result<InlineMetadata, String> {
        InlineFormat::Pep723.read(script).map_err(|error| error.to_string())
    }

    #[test]
    fn a_script_states_packages_and_versions() {
        let script = "#!/usr/bin/env sandbox-run\n# /// script\r\n# requires-python = \">=3.11\"\n# dependencies = [\n\
                      #   \"requests<3\",\n#\n#   \"rich\", # colours\n# ]\n# [tool.uv]\n# x = 1\n# ///\n\nimport rich\n";
        let found = read(script).expect("valid");
        assert_eq!(found.packages, ["requests<3", "rich"]);
        let requires = found.requires.expect("stated");
        assert!(requires.is_met_by("3.11.2") && !requires.is_met_by("3.10.9"));
        for without in ["", "print(1)", "x = 1 # /// script\n", "# /// other\n# x\n# ///\n", " # /// script\n"] {
            assert_eq!(read(without), Ok(InlineMetadata::default()), "{without:?}");
        }
        assert_eq!(read("# /// script\n# ///\n"), Ok(InlineMetadata::default()));
    }

    #[test]
    fn malformed_metadata_is_refused_with_its_line() {
        for (script, expected) in [
            ("1\n# /// script\n# x = \nprint()", "(line 2): the block is not closed by a line '# ///'"),
            ("# /// script\n# dependencies = [\"a\"\n# ///\n", "(line 2): "),
            (
                "# /// script\n#\n# dependencies = 1\n# ///\n",
                "(line 3): invalid type: integer `1`, expected a sequence",
            ),
            ("# /// script\n# needs = []\n# ///\n", "(line 2): unknown field `needs`"),
            ("# /// script\n# requires-python = \"3.11\"\n# ///\n", "(line 2): invalid version requirement '3.11'"),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", "(line 4): there is another block in line 1"),
        ] {
            let error = read(script).expect_err(script);
            assert!(error.contains(expected), "{script:?}: {error}");
        }
        let long = format!("# /// script\n{}# ///\n", "# # x\n".repeat(20_000));
        assert!(read(&long).expect_err("too long").contains("larger than 64 KiB"));
    }
}
