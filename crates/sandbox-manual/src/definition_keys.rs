//! The keys of language definitions, from the doc comments of the types that read them.
//!
//! The types are read as text, because doc comments do not exist at run time. A type that is missing from [`SOURCES`]
//! fails the test that writes the document.

use std::collections::BTreeMap;

use crate::generated::{code_list, table};

/// The files in which the types are defined.
const SOURCES: [&str; 4] = [
    include_str!("../../sandbox-runtimes/src/definition.rs"),
    include_str!("../../sandbox-runtimes/src/definition/arguments.rs"),
    include_str!("../../sandbox-runtimes/src/definition/warm.rs"),
    include_str!("../../sandbox-runtimes/src/literals.rs"),
];

/// A table of a definition file: a struct.
#[derive(Default)]
struct KeyTable {
    meaning: String,
    keys: Vec<Key>,
}

/// A key of a table: a field.
struct Key {
    name: String,
    /// The type, as the code has it.
    value: String,
    meaning: String,
    has_default: bool,
}

/// A table of the document.
struct KeyChapter {
    /// The name of the struct.
    name: String,
    /// Where it stands in a definition.
    paths: Vec<String>,
    rows: Vec<[String; 3]>,
}

/// The structs in a source text that are read from files, by their names.
fn structs(source: &str) -> BTreeMap<String, KeyTable> {
    let mut found: BTreeMap<String, KeyTable> = BTreeMap::new();
    let (mut current, mut docs, mut attributes) = (None, vec![], String::new());
    for line in source.lines() {
        let code = line.trim_start();
        if let Some(doc) = code.strip_prefix("///") {
            docs.push(doc.trim());
            continue;
        }
        if code.starts_with("#[") {
            attributes.push_str(code);
            continue;
        }
        let meaning = docs.join(" ");
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            if attributes.contains("Deserialize") {
                current = Some(name);
                found.insert(name.to_owned(), KeyTable { meaning, keys: vec![] });
            }
        } else if line == "}" {
            current = None;
        } else if let Some(table) = current.and_then(|name| found.get_mut(name)) {
            let field = code.strip_prefix("pub ").and_then(|rest| rest.strip_suffix(','));
            let (name, value) = field.and_then(|field| field.split_once(": ")).expect("a public field on one line");
            assert!(!meaning.is_empty(), "{name} has no doc comment");
            table.keys.push(Key {
                name: name.trim_start_matches("r#").to_owned(),
                value: value.to_owned(),
                meaning,
                has_default: attributes.contains("#[serde(default"),
            });
        }
        docs.clear();
        attributes.clear();
    }
    found
}

/// The type in a generic one, if it is that.
fn inner<'t>(value: &'t str, generic: &str) -> Option<&'t str> {
    value.strip_prefix(generic)?.strip_suffix('>')
}

/// The name of a simple type, and of several values of it.
fn simple(value: &str) -> Option<(&'static str, &'static str)> {
    Some(match value {
        "String" => ("string", "strings"),
        "PathBuf" => ("absolute path", "absolute paths"),
        "Pattern" => ("regular expression", "regular expressions"),
        "AllowedArguments" => ("table of regular expressions", "tables of regular expressions"),
        "StageName" => ("stage", "stages"),
        "InlineFormat" => ("format", "formats"),
        "bool" => ("boolean", "booleans"),
        "u32" | "usize" => ("integer", "integers"),
        _ => return None,
    })
}

/// Lists a table and the tables in it, in the order of the keys. A table that occurs more than once is listed once, with
/// all its paths.
fn list(structs: &BTreeMap<String, KeyTable>, name: &str, path: &[&str], chapters: &mut Vec<KeyChapter>) {
    let header = |path: &[&str]| format!("[{}]", path.join("."));
    if let Some(known) = chapters.iter_mut().find(|chapter| chapter.name == name) {
        known.paths.push(header(path));
        return;
    }
    let position = chapters.len();
    chapters.push(KeyChapter { name: name.to_owned(), paths: vec![header(path)], rows: vec![] });
    let rows = structs[name].keys.iter().map(|key| {
        let optional = inner(&key.value, "Option<");
        let value = optional.unwrap_or(&key.value);
        let below = [path, &[key.name.as_str()]].concat();
        let shown = if let Some((one, _)) = simple(value) {
            one.to_owned()
        } else if let Some((_, several)) = inner(value, "Vec<").and_then(simple) {
            format!("list of {several}")
        } else if let Some((_, several)) =
            inner(value, "BTreeMap<String, ").or(inner(value, "BTreeMap<char, ")).and_then(simple)
        {
            format!("table of {several}")
        } else if let Some(value) = inner(value, "BTreeMap<String, ") {
            let below = [&below[..], &["NAME"]].concat();
            list(structs, value, &below, chapters);
            format!("tables `{}`", header(&below))
        } else {
            assert!(structs.contains_key(value), "{value} is not in a source file of this module");
            list(structs, value, &below, chapters);
            format!("table `{}`", header(&below))
        };
        let required = if optional.is_none() && !key.has_default { ", required" } else { "" };
        [format!("`{}`", key.name), format!("{shown}{required}"), key.meaning.clone()]
    });
    chapters[position].rows = rows.collect();
}

/// A chapter for each table, the keys outside of tables first.
pub(crate) fn chapters() -> String {
    let structs = SOURCES.into_iter().flat_map(structs).collect();
    let mut chapters = vec![];
    list(&structs, "Definition", &[], &mut chapters);
    let chapters = chapters.into_iter().enumerate().map(|(index, KeyChapter { name, paths, rows })| {
        let table = table(["key", "value", "meaning"], rows);
        let paths = code_list(paths.iter().map(String::as_str));
        if index == 0 { table } else { format!("### {paths}\n\n{}\n\n{table}", structs[&name].meaning) }
    });
    chapters.collect::<Vec<_>>().join("\n\n")
}

#[test]
fn fields_are_read_with_their_docs_and_attributes() {
    let source = "/// A table.\n#[derive(Deserialize)]\npub struct A {\n    /// One,\n    /// in two lines.\n    \
                  #[serde(default)]\n    pub r#true: Vec<String>,\n    /// Two.\n    pub b: Option<bool>,\n}\n\
                  /// Not read.\n#[derive(Debug)]\npub struct B {\n    pub c: bool,\n}\n";
    let structs = structs(source);
    let keys = structs["A"].keys.iter().map(|key| (&*key.name, &*key.meaning, key.has_default));
    assert_eq!(keys.collect::<Vec<_>>(), [("true", "One, in two lines.", true), ("b", "Two.", false)]);
    assert_eq!((structs.len(), &*structs["A"].meaning), (1, "A table."));
}
