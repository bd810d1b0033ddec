//! Parts of documents that are written from tables of the code. Each part stands between marks in its document; a test
//! writes it, or fails if it would change.

use std::path::{Path, PathBuf};

/// Compares a part of a document, by its path in the repository, with what it should be; with `SANDBOX_BLESS` set, writes
/// it instead. For tests.
pub fn hold(document: &str, part: &str, expected: &str) -> Result<(), String> {
    if std::env::var_os("SANDBOX_BLESS").is_some() {
        return write(document, part, expected);
    }
    let text = read(&path(document))?;
    let (_, found, _) = split(document, &text, part)?;
    if found == expected {
        return Ok(());
    }
    let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    let (expected, found) = differs.unwrap_or(("more or fewer lines", ""));
    Err(format!("{document} is out of date ({part}); run `make docs`\n  is:        {found}\n  should be: {expected}"))
}

/// Writes a part of a document. For tests that measure what they write.
pub fn write(document: &str, part: &str, content: &str) -> Result<(), String> {
    let file = path(document);
    let text = read(&file)?;
    let (before, _, after) = split(document, &text, part)?;
    let new = format!("{before}{content}{after}");
    if new == text {
        return Ok(());
    }
    std::fs::write(&file, new).map_err(|error| format!("{document}: {error}"))
}

fn path(document: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document)
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The text before a part, with its mark, the part, and the rest.
fn split<'t>(document: &str, text: &'t str, part: &str) -> Result<(&'t str, &'t str, &'t str), String> {
    let (begin, end) = (format!("<!-- {part}: generated -->\n"), format!("\n<!-- end of {part} -->"));
    let start = text.find(&begin).map(|at| at + begin.len());
    let found = start.and_then(|start| Some((start, start + text[start..].find(&end)?)));
    let (start, stop) = found.ok_or_else(|| format!("{document} has no marks for {part}"))?;
    Ok((&text[..start], &text[start..stop], &text[stop..]))
}

/// A Markdown table. A row lists its cells.
#[must_use]
pub fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: [String; N]| format!("| {} |", cells.map(|text| cell(&text)).join(" | "));
    let head = [line(head.map(str::to_owned)), format!("|{}", "---|".repeat(N))];
    head.into_iter().chain(rows.into_iter().map(line)).collect::<Vec<_>>().join("\n")
}

/// Text that can stand in a table.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Names as code, separated by commas.
#[must_use]
pub fn code_list(names: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_stands_between_its_marks() {
        let text = "a\n<!-- x: generated -->\nold\n<!-- end of x -->\nb";
        let parts = ("a\n<!-- x: generated -->\n", "old", "\n<!-- end of x -->\nb");
        assert_eq!(split("d.md", text, "x"), Ok(parts));
        assert_eq!(split("d.md", text, "y"), Err("d.md has no marks for y".to_owned()));
        assert_eq!(split("d.md", "<!-- x: generated -->\n", "x"), Err("d.md has no marks for x".to_owned()));
    }

    #[test]
    fn tables_are_markdown() {
        let rows = [["a|b".to_owned(), "c\nd".to_owned()]];
        assert_eq!(table(["x", "y"], rows), "| x | y |\n|---|---|\n| a\\|b | c d |");
    }
}
