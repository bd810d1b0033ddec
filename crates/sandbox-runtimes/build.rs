//! Lists the languages in `languages/` and makes their files part of the binary, with an index that says which file defines
//! a name or an extension: reading all definitions takes longer than starting a cell.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../languages").canonicalize()?;
    println!("cargo::rerun-if-changed={}", root.display());
    let mut languages = vec![];
    let mut owners = BTreeMap::new();
    for dir in sorted(&root)? {
        let name = file_name(&dir);
        let (order, names, text) = language(&dir, &name).map_err(|error| format!("languages/{name}: {error}"))?;
        for taken in names {
            if let Some(other) = owners.insert(taken.clone(), name.clone()) {
                return Err(format!("languages/{name}: the name '{taken}' is already used by {other}").into());
            }
        }
        languages.push((order, name, text));
    }
    languages.sort();
    let text: String = languages.into_iter().map(|(_, _, text)| text).collect();
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    Ok(std::fs::write(Path::new(&out).join("languages.rs"), format!("&[\n{text}]\n"))?)
}

/// A language's place in the order, its names, and its entry of the index.
fn language(dir: &Path, name: &str) -> Outcome<(i64, Vec<String>, String)> {
    let definition = dir.join("language.toml");
    let table: toml::Table = toml::from_str(&std::fs::read_to_string(&definition)?)?;
    let texts = |table: &toml::Table, key: &str| -> Vec<String> {
        let values = table.get(key).and_then(toml::Value::as_array).into_iter().flatten();
        values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let text = |key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or_default();
    if text("name") != name {
        return Err(format!("the name in language.toml is '{}'", text("name")).into());
    }
    let mut names = vec![name.to_owned()];
    names.extend(texts(&table, "aliases"));
    let mut files = String::new();
    for file in sorted(dir)? {
        if file.is_file() && file != definition {
            files.push_str(&format!("({:?}, include_str!({:?})), ", file_name(&file), file.display().to_string()));
        }
    }
    let order = table.get("order").and_then(toml::Value::as_integer).unwrap_or(i64::MAX);
    let none = toml::Table::new();
    let packages = table.get("packages").and_then(toml::Value::as_table).unwrap_or(&none);
    let entry = format!(
        "    ShippedLanguage {{\n        names: &{names:?},\n        extensions: &{:?},\n        like: {:?},\n        \
         definition: include_str!({:?}),\n        files: &[{files}],\n        ignore: &{:?},\n        \
         build_dir: ({:?}, &{:?}),\n    }},\n",
        texts(&table, "extensions"),
        text("like"),
        definition.display().to_string(),
        texts(&table, "ignore"),
        text("build_dir"),
        texts(packages, "manifests"),
    );
    Ok((order, names, entry))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sorted(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}
