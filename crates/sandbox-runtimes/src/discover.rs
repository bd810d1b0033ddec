//! From a definition to a toolchain: on this host, or in an image.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sandbox_cell::Mount;

use crate::image_toolchains::ImageRoot;

use crate::definition::{Definition, Tool};
use crate::runtime::Runtime;
use crate::toolchain_cache::{ToolchainCache, ToolchainDescription};

/// The directories in which programs are looked for.
#[derive(Debug, Clone, Default)]
pub struct SearchPaths {
    /// A list as in the variable `PATH`.
    pub path: String,
    /// The home directory.
    pub home: Option<PathBuf>,
    /// The root below which all of it is, if it is not the host's.
    pub(crate) root: Option<ImageRoot>,
}

impl SearchPaths {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        // Not from the user database: a static program must not load the host's modules for that.
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self { path: std::env::var("PATH").unwrap_or_default(), home, root: None }
    }

    /// Every file that a command may be, in order of preference.
    pub(crate) fn commands<'a>(
        &'a self,
        names: &'a [String],
        paths: &'a [String],
    ) -> impl Iterator<Item = PathBuf> + 'a {
        let along_path = move |name: &'a String| std::env::split_paths(&self.path).map(move |dir| dir.join(name));
        let elsewhere =
            move |name: &'a String| paths.iter().flat_map(|path| self.expand(path)).map(move |dir| dir.join(name));
        let found = names.iter().flat_map(along_path).chain(names.iter().flat_map(elsewhere));
        found.filter(|file| self.is_executable(file))
    }

    /// The files that a path with `~`, a variable or `*` stands for, newer versions first.
    pub(crate) fn expand(&self, path: &str) -> Vec<PathBuf> {
        let path = if let Some(rest) = path.strip_prefix("~/") {
            let Some(home) = &self.home else { return vec![] };
            home.join(rest)
        } else if self.root.is_some() && path.starts_with('$') {
            // The host's variables say nothing about it.
            return vec![];
        } else if let Some(rest) = path.strip_prefix('$') {
            let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
            let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { return vec![] };
            Path::new(&value).join(rest)
        } else {
            PathBuf::from(path)
        };
        let mut found = vec![PathBuf::new()];
        for part in path.components() {
            let Some((before, after)) = part.as_os_str().to_str().and_then(|part| part.split_once('*')) else {
                for dir in &mut found {
                    dir.push(part);
                }
                continue;
            };
            found = found.iter().flat_map(|dir| matching(self.list(dir), dir, before, after)).collect();
        }
        found.retain(|path| self.exists(path));
        found
    }

    fn is_executable(&self, file: &Path) -> bool {
        self.root.as_ref().map_or_else(|| is_executable(file), |root| root.is_executable(file))
    }

    fn exists(&self, file: &Path) -> bool {
        self.root.as_ref().map_or_else(|| file.exists(), |root| root.exists(file))
    }

    fn list(&self, dir: &Path) -> Vec<String> {
        if let Some(root) = &self.root {
            return root.list(dir);
        }
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// Entries of a directory whose names begin and end like this, newer versions first.
fn matching(mut names: Vec<String>, dir: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let fits =
        |name: &String| name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
    names.retain(fits);
    names.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
    names.into_iter().map(|name| dir.join(name)).collect()
}

/// The numbers in a name: `v20.9.1` comes before `v20.10.0`.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// A missing toolchain or tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; {missing}", self.reason())]
pub struct Missing {
    /// What it is.
    pub what: String,
    /// Where it was looked for.
    pub place: String,
    /// What to do.
    pub missing: String,
}

impl Missing {
    /// What is missing, without what to do.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{} was not found {}", self.what, self.place)
    }

    /// Something that is not on this host.
    #[must_use]
    pub fn on_host(what: String, missing: String) -> Self {
        Self { what, place: "on this host".to_owned(), missing }
    }
}

/// A tool as a cell sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocatedTool {
    /// Its file on the host, or in the image.
    pub(crate) command: PathBuf,
    pub(crate) mount: Option<Mount>,
    /// The directory to search for it.
    pub(crate) dir: PathBuf,
}

impl Definition {
    /// Finds the toolchain.
    pub fn discover(&self, places: &SearchPaths, cache: &mut ToolchainCache) -> Result<Runtime, Missing> {
        let watched: Vec<PathBuf> = self.find.watch.iter().flat_map(|path| places.expand(path)).collect();
        for command in places.commands(&self.find.commands, &self.find.paths) {
            let known = cache.recall(&command, &self.find.describe, &watched).cloned();
            let description = known.or_else(|| {
                let description = describe(&command, &self.find.describe)?;
                cache.remember(&command, &self.find.describe, &watched, &description);
                Some(description)
            });
            if let Some(description) = description {
                return Ok(Runtime::new(self, &description, places));
            }
        }
        Err(Missing::on_host(format!("a toolchain for {}", self.name), self.find.missing.clone()))
    }
}

impl Tool {
    /// Finds a tool and decides how it is mounted in a cell. `prefix` is the toolchain's, with its place in the cell: many
    /// tools come with it.
    pub(crate) fn locate(
        &self,
        name: &str,
        places: &SearchPaths,
        prefix: (&Path, &Path),
    ) -> Result<LocatedTool, Missing> {
        let missing = || Missing::on_host(format!("'{name}'"), self.missing.clone());
        let own = self.commands.iter().map(|command| prefix.0.join("bin").join(command));
        let command = own.filter(|file| is_executable(file)).chain(places.commands(&self.commands, &self.paths)).next();
        let command = command.ok_or_else(missing)?;
        let command_dir = command.parent().unwrap_or(Path::new("/")).to_owned();
        if command_dir.starts_with("/usr") {
            return Ok(LocatedTool { command, mount: None, dir: command_dir });
        }
        if let Ok(inside) = command_dir.strip_prefix(prefix.0) {
            return Ok(LocatedTool { command, mount: None, dir: prefix.1.join(inside) });
        }
        let file = command.canonicalize().map_err(|_| missing())?;
        let target = Path::new("/opt/tools").join(name);
        let root = file.ancestors().nth(self.levels).ok_or_else(missing)?;
        if self.levels == 0 {
            let target = target.join(command.file_name().unwrap_or_default());
            let dir = target.parent().unwrap_or(Path::new("/")).to_owned();
            return Ok(LocatedTool { mount: Some(Mount::read_only(root, target)), dir, command });
        }
        let inside = file.parent().and_then(|dir| dir.strip_prefix(root).ok()).ok_or_else(missing)?;
        Ok(LocatedTool { dir: target.join(inside), mount: Some(Mount::read_only(root, target)), command })
    }
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Asks a toolchain what it is. It is the host's own program, run with nothing of a request, in the root directory so
/// that no file of the current one has a say.
fn describe(command: &Path, script: &str) -> Option<ToolchainDescription> {
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(command)
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let description = ToolchainDescription::parse(&output.stdout)?;
    let real = |path: &Path| path.canonicalize().ok();
    Some(ToolchainDescription {
        executable: real(&description.executable)?,
        prefix: real(&description.prefix)?,
        ..description
    })
}

impl ToolchainDescription {
    /// Reads what a toolchain printed about itself.
    pub(crate) fn parse(output: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(output).ok()?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?.trim();
            (!line.is_empty()).then(|| line.to_owned())
        };
        let (executable, prefix) = (value("executable")?.into(), value("prefix")?.into());
        Some(Self { version: value("version")?, executable, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    /// Python without the parts of /etc that it uses where a host has them.
    fn python() -> Definition {
        let mut definition = Registry::shipped().expect("valid").by_name("python").expect("known").clone();
        definition.find.system.clear();
        definition
    }

    fn places(path: &str) -> SearchPaths {
        SearchPaths { path: path.to_owned(), ..SearchPaths::default() }
    }

    fn executable(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
        std::fs::write(file, text).expect("write");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("chmod");
    }

    /// A toolchain that describes itself, in a separate directory.
    fn toolchain(dir: &Path, prefix: &str) -> PathBuf {
        let file = dir.join("bin/python3");
        let text =
            format!("#!/bin/sh\necho version=3.99.1\necho executable={}\necho prefix={prefix}\n", file.display());
        executable(&file, &text);
        dir.join("bin")
    }

    #[test]
    fn a_toolchain_outside_the_system_moves_to_a_neutral_path() {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().canonicalize().expect("path");
        let bin = toolchain(&root, root.to_str().expect("utf-8"));
        let found =
            python().discover(&places(bin.to_str().expect("utf-8")), &mut ToolchainCache::open(None)).expect("found");
        assert_eq!(found.version, "3.99.1");
        assert_eq!(found.mounts, [Mount::read_only(root, "/opt/python")]);
        let variable = |name: &str| found.environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        assert_eq!(variable("LD_LIBRARY_PATH"), Some("/opt/python/lib".into()));
        assert!(variable("PATH").expect("path").to_string_lossy().starts_with("/opt/python/bin:"));
    }

    #[test]
    fn a_toolchain_of_the_system_stays_where_it_is() {
        let dir = tempfile::tempdir().expect("tempdir");
        let bin = toolchain(dir.path(), "/usr");
        let mut cache = ToolchainCache::open(Some(dir.path()));
        let found = python().discover(&places(bin.to_str().expect("utf-8")), &mut cache).expect("found");
        assert!(found.mounts.is_empty());
        assert!(!found.environment.iter().any(|(name, _)| name == "LD_LIBRARY_PATH"));
    }

    #[test]
    fn missing_toolchain_error_includes_the_fix() {
        let mut definition = python();
        definition.find.paths.clear();
        let error = definition.discover(&places("/nowhere"), &mut ToolchainCache::open(None)).expect_err("missing");
        let text = error.to_string();
        assert!(text.starts_with("a toolchain for python was not found on this host; install Python 3.9"), "{text}");
    }

    #[test]
    fn a_command_that_does_not_describe_itself_is_passed_over() {
        let dir = tempfile::tempdir().expect("tempdir");
        executable(&dir.path().join("bad/python3"), "#!/bin/sh\nexit 3\n");
        let good = toolchain(&dir.path().join("good"), "/usr");
        let path = format!("{}:{}", dir.path().join("bad").display(), good.display());
        assert!(python().discover(&places(&path), &mut ToolchainCache::open(None)).is_ok());
    }

    #[test]
    fn places_are_expanded_and_newer_versions_come_first() {
        let dir = tempfile::tempdir().expect("tempdir");
        for version in ["v20.9.1", "v20.10.0", "v18.0.0", "other"] {
            std::fs::create_dir_all(dir.path().join("nvm").join(version).join("bin")).expect("mkdir");
        }
        let places = SearchPaths { home: Some(dir.path().to_owned()), ..SearchPaths::default() };
        let found = places.expand("~/nvm/v*/bin");
        let found: Vec<_> = found.iter().map(|path| path.strip_prefix(dir.path()).expect("inside")).collect();
        assert_eq!(found, ["nvm/v20.10.0/bin", "nvm/v20.9.1/bin", "nvm/v18.0.0/bin"].map(Path::new));
        assert!(places.expand("~/nothing/*").is_empty());
        assert!(places.expand("$SURELY_NOT_SET/bin").is_empty());
    }

    #[test]
    fn tools_are_shown_as_far_as_they_reach() {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().canonicalize().expect("path");
        executable(&root.join("lib/thing/bin/thing"), "");
        executable(&root.join("chain/bin/own"), "");
        let bin = root.join("lib/thing/bin");
        let places = places(bin.to_str().expect("utf-8"));
        let tool = |command: &str, levels| Tool {
            commands: vec![command.to_owned()],
            paths: vec![],
            levels,
            missing: "install it".to_owned(),
        };
        let chain = root.join("chain");
        let prefix = (chain.as_path(), Path::new("/opt/chain"));
        let alone = tool("thing", 0).locate("t", &places, prefix).expect("found");
        assert_eq!(alone.mount, Some(Mount::read_only(bin.join("thing"), "/opt/tools/t/thing")));
        let whole = tool("thing", 2).locate("t", &places, prefix).expect("found");
        assert_eq!(whole.mount, Some(Mount::read_only(root.join("lib/thing"), "/opt/tools/t")));
        assert_eq!(whole.dir, Path::new("/opt/tools/t/bin"));
        let own = tool("own", 0).locate("o", &places, prefix).expect("found");
        assert_eq!((own.mount, own.dir), (None, PathBuf::from("/opt/chain/bin")));
        let error = tool("none", 0).locate("n", &places, prefix).expect_err("missing").to_string();
        assert_eq!(error, "'n' was not found on this host; install it");
    }
}
