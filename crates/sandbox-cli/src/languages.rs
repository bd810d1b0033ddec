//! `sandbox-run languages`: the supported languages, and missing toolchains.

use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use sandbox_executor::Settings;
use sandbox_runtimes::{Registry, SearchPaths, ToolchainCache};
use serde::Serialize;

use crate::exit_code;
use crate::output::{print_error, unless_unread};
use crate::request;

/// A language in the list.
#[derive(Serialize)]
struct ListedLanguage {
    name: String,
    aliases: Vec<String>,
    extensions: Vec<String>,
    /// The version of the toolchain, if it was found.
    version: Option<String>,
    /// Its executable on this host.
    path: Option<String>,
    /// How a package is written, if the language has packages.
    packages: Option<String>,
    /// What is missing, and how to install it.
    missing: Vec<String>,
}

/// Lists the languages.
pub(crate) fn languages(json: bool, runtimes: Option<&Path>) -> u8 {
    let settings = match Settings::read(|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(error) => {
            print_error(&error.to_string());
            return exit_code::USAGE;
        }
    };
    let registry = match request::registry(runtimes) {
        Ok(registry) => registry,
        Err(error) => {
            print_error(&error);
            return exit_code::USAGE;
        }
    };
    let list = list(&registry, &settings);
    let mut out = anstream::stdout().lock();
    let written = if json {
        serde_json::to_string_pretty(&list).map_err(std::io::Error::from).and_then(|text| writeln!(out, "{text}"))
    } else {
        table(&list, &mut out)
    };
    if unless_unread(written).is_ok() { 0 } else { exit_code::INTERNAL }
}

fn list(registry: &Registry, settings: &Settings) -> Vec<ListedLanguage> {
    let places = SearchPaths::of_this_process();
    let mut cache = ToolchainCache::open(settings.data_dir.as_deref());
    let mut listed = vec![];
    for definition in registry.all() {
        let found = definition.discover(&places, &mut cache);
        let (runtime, mut missing) = match found {
            Ok(runtime) => (Some(runtime), vec![]),
            Err(error) => (None, vec![error.to_string()]),
        };
        if let Some(runtime) = &runtime {
            let compile = runtime.compile(&definition.source, false, &[]).err();
            let prepare = runtime.prepare(|_| None).err();
            let install = runtime.install(&[], |_| None).err();
            missing.extend(compile.into_iter().chain(prepare).map(|error| error.to_string()));
            missing.extend(install.map(|error| format!("for packages: {error}")));
        }
        listed.push(ListedLanguage {
            name: definition.name.clone(),
            aliases: definition.aliases.clone(),
            extensions: definition.extensions.clone(),
            version: runtime.as_ref().map(|runtime| runtime.version.clone()),
            path: runtime.as_ref().map(|runtime| runtime.host_executable.display().to_string()),
            packages: definition.packages.as_ref().map(|packages| packages.example.clone()),
            missing,
        });
    }
    listed
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Yellow.on_default();

fn table(list: &[ListedLanguage], out: &mut impl Write) -> std::io::Result<()> {
    let aliases = |listed: &ListedLanguage| listed.aliases.join(", ");
    let width = |f: &dyn Fn(&ListedLanguage) -> usize| list.iter().map(f).max().unwrap_or(0);
    let names = width(&|listed| listed.name.len());
    let others = width(&|listed| aliases(listed).len());
    let versions = width(&|listed| listed.version.as_ref().map_or(1, String::len));
    for listed in list {
        let version = listed.version.as_deref().unwrap_or("–");
        let path = listed.path.as_deref().unwrap_or("not found");
        writeln!(
            out,
            "{BOLD}{:names$}{BOLD:#}  {DIM}{:others$}{DIM:#}  {version:versions$}  {path}",
            listed.name,
            aliases(listed)
        )?;
        for missing in &listed.missing {
            writeln!(out, "{:names$}  {BAD}{missing}{BAD:#}", "")?;
        }
    }
    Ok(())
}
