//! Languages, the programs that install their packages, and what is prepared for them.

use std::path::Path;

use sandbox_executor::Settings;
use sandbox_runtimes::{ArtifactStore, Definition, Registry, Runtime, SearchPaths, ToolchainCache};
use serde_json::{Value, json};

use super::check::HostCheck;
use super::{BAD, DIM, GOOD};

/// The certificates that installers check package indexes against.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A language, and its toolchain or how to install one.
pub(super) struct Language {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) runtime: Result<Runtime, String>,
}

/// The languages of the product, and those of the operator.
pub(super) fn languages(settings: &Settings, registry: &Registry) -> Vec<Language> {
    let mut cache = ToolchainCache::open(settings.data_dir.as_deref());
    let places = SearchPaths::of_this_process();
    let language = |definition: &Definition| Language {
        name: definition.name.clone(),
        title: definition.title().to_owned(),
        runtime: definition.discover(&places, &mut cache).map_err(|missing| missing.missing),
    };
    registry.all().map(language).collect()
}

/// A line for each language, with aligned columns.
pub(super) fn language_lines(languages: &[Language]) -> String {
    let longest = |length: &dyn Fn(&Language) -> usize| languages.iter().map(length).max().unwrap_or(0);
    let names = longest(&|language| language.name.chars().count());
    let versions = longest(&|language| language.runtime.as_ref().map_or(0, |runtime| runtime.version.chars().count()));
    let line = |Language { name, title, runtime }: &Language| match runtime {
        Ok(runtime) => {
            let (version, path) = (&runtime.version, runtime.host_executable.display());
            let cold = runtime.starts_cold().map(|why| format!("{:names$}      starts cold on servers: {why}\n", ""));
            let cold = cold.unwrap_or_default();
            format!("  {GOOD}✓{GOOD:#} {name:<names$}  {version:<versions$}  {DIM}{path}{DIM:#}\n{cold}")
        }
        Err(fix) => format!("  {BAD}✗{BAD:#} {name:<names$}  not found: {title} programs do not run; {fix}\n"),
    };
    languages.iter().map(line).collect()
}

pub(super) fn language_values(languages: &[Language]) -> Vec<Value> {
    let value = |Language { name, title, runtime }: &Language| match runtime {
        Ok(runtime) => json!({
            "language": name,
            "version": runtime.version,
            "path": runtime.host_executable,
            "starts_cold": runtime.starts_cold(),
        }),
        Err(fix) => json!({
            "language": name,
            "version": null,
            "without_it": format!("{title} programs do not run"),
            "fix": fix,
        }),
    };
    languages.iter().map(value).collect()
}

/// The programs that install packages for the languages that were found.
pub(super) fn packages(languages: &[Language]) -> Vec<HostCheck> {
    let mut checks: Vec<HostCheck> = languages.iter().filter_map(installer).collect();
    if !checks.is_empty() {
        checks.push(certificates(Path::new(CERTIFICATES)));
    }
    checks
}

fn installer(language: &Language) -> Option<HostCheck> {
    let (runtime, name) = (language.runtime.as_ref().ok()?, &language.name);
    runtime.definition.packages.as_ref()?;
    let tools: Vec<_> = runtime.package_tools().collect();
    let missing = tools.iter().find_map(|(tool, found)| Some((tool, found.err()?)));
    Some(match missing {
        Some((tool, missing)) => {
            let cost = format!("{} packages cannot be installed", language.title);
            HostCheck::missing(name, format!("{tool} was not found"), &cost, missing.missing.clone())
        }
        None if tools.is_empty() => HostCheck::ok(name, "installed by the toolchain".to_owned()),
        None => {
            let shown = tools.iter().filter_map(|(tool, found)| Some(format!("{tool} {}", found.ok()?.display())));
            HostCheck::ok(name, shown.collect::<Vec<_>>().join(", "))
        }
    })
}

fn certificates(file: &Path) -> HostCheck {
    let (name, shown) = ("certificates", file.display());
    if file.exists() {
        return HostCheck::ok(name, shown.to_string());
    }
    let fix = "install them (Debian: apt-get install ca-certificates)".to_owned();
    HostCheck::missing(name, format!("{shown} was not found"), "installers cannot check package indexes", fix)
}

/// What is prepared once for the languages that were found, and whether it is.
pub(super) fn prepared(languages: &[Language], store: &ArtifactStore) -> Vec<HostCheck> {
    let made: Vec<String> = store.list().into_iter().map(|entry| entry.label).collect();
    languages.iter().filter_map(|language| prepared_toolchain(language, &made)).collect()
}

fn prepared_toolchain(language: &Language, made: &[String]) -> Option<HostCheck> {
    let (runtime, name) = (language.runtime.as_ref().ok()?, &language.name);
    let what = &runtime.definition.prepare.as_ref()?.what;
    if let Err(missing) = runtime.prepare(|name| std::env::var_os(name)) {
        let cost = format!("{} programs do not run", language.title);
        let absent = format!("{} was not found, which prepares {what}", missing.what);
        return Some(HostCheck::missing(name, absent, &cost, missing.missing));
    }
    if made.contains(&format!("{name} {}: {what}", runtime.version)) {
        return Some(HostCheck::ok(name, what.clone()));
    }
    let (absent, fix) = (format!("{what} (not prepared)"), format!("sandbox-run prepare {name}"));
    Some(HostCheck::warning(name, absent, "the first program waits for it", fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckState;
    use std::os::unix::fs::PermissionsExt;

    fn executable(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
        std::fs::write(file, text).expect("write");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("chmod");
    }

    /// A language with a toolchain that needs `tool`, which is in `dir` or not.
    fn language(dir: &Path, version: &str) -> Language {
        let toolchain = dir.join("bin/made-up");
        executable(&toolchain, "");
        let definition = format!(
            "name = \"made-up\"\ntitle = \"Made-Up\"\nextensions = [\"mu\"]\nsource = \"main.mu\"\n\
             [find]\ncommands = [\"made-up\"]\npaths = [\"{bin}\"]\nmissing = \"install it\"\n\
             describe = 'echo version={version}; echo executable=\"$1\"; echo prefix={dir}'\n\
             [run]\nargv = [\"{{executable}}\"]\n\
             [prepare]\nwhat = \"the library\"\nstages = [\"compile\"]\ntarget = \"/opt/prepared\"\nscript = \"true\"\n\
             [compile]\nscript = \"true\"\n\
             [packages]\nexample = \"a\"\npattern = \"a\"\ntarget = \"/opt/packages\"\nscript = \"true\"\n\
             [packages.tools.tool-of-a-test]\ncommands = [\"tool-of-a-test\"]\npaths = [\"{bin}\"]\nmissing = \"get it\"\n",
            bin = toolchain.parent().expect("parent").display(),
            dir = dir.display(),
        );
        let languages = dir.join("languages");
        std::fs::create_dir_all(&languages).expect("mkdir");
        std::fs::write(languages.join("made-up.toml"), definition).expect("write");
        let mut registry = Registry::default();
        registry.add_directory(&languages).expect("valid");
        super::languages(&Settings { data_dir: None, ..Settings::default() }, &registry).remove(0)
    }

    #[test]
    fn a_missing_installer_costs_packages() {
        let dir = tempfile::tempdir().expect("tempdir");
        let dir = dir.path().canonicalize().expect("path");
        let check = &packages(&[language(&dir, "1.0")])[0];
        assert_eq!((check.state, check.what.as_str()), (CheckState::Missing, "tool-of-a-test was not found"));
        assert_eq!(check.without_it.as_deref(), Some("Made-Up packages cannot be installed"));
        assert_eq!(check.fix.as_deref(), Some("get it"));
        let tool = dir.join("bin/tool-of-a-test");
        executable(&tool, "");
        let check = &packages(&[language(&dir, "1.0")])[0];
        assert_eq!((check.state, &check.what), (CheckState::Ok, &format!("tool-of-a-test {}", tool.display())));
    }

    #[test]
    fn certificates_are_for_installers() {
        assert_eq!(packages(&[]), []);
        assert_eq!(certificates(Path::new("/etc/passwd")).state, CheckState::Ok);
        let missing = certificates(Path::new("/nothing/here.crt"));
        assert_eq!(missing.what, "/nothing/here.crt was not found");
    }

    #[test]
    fn a_toolchain_is_prepared_for_one_version() {
        let dir = tempfile::tempdir().expect("tempdir");
        let language = language(&dir.path().canonicalize().expect("path"), "1.0");
        let check = |made: &str| prepared_toolchain(&language, &[made.to_owned()]).expect("prepares something");
        assert_eq!(check("made-up 1.0: the library"), HostCheck::ok("made-up", "the library".to_owned()));
        let other = check("made-up 0.9: the library");
        assert_eq!((other.state, other.fix.as_deref()), (CheckState::Warning, Some("sandbox-run prepare made-up")));
    }

    #[test]
    fn columns_are_aligned_with_long_versions() {
        let dir = tempfile::tempdir().expect("tempdir");
        let dir = dir.path().canonicalize().expect("path");
        let missing =
            Language { name: "c".to_owned(), title: "C".to_owned(), runtime: Err("install a compiler".to_owned()) };
        let languages = [language(&dir, "1.0"), language(&dir, "20.20.2-nightly"), missing];
        let text = anstream::adapter::strip_str(&language_lines(&languages)).to_string();
        let columns: Vec<_> = text.lines().take(2).map(|line| line.find('/')).collect();
        assert!(columns[0].is_some() && columns[0] == columns[1], "{text}");
        assert!(text.contains("  ✗ c        not found: C programs do not run; install a compiler\n"), "{text}");
    }
}
