//! From a definition to a toolchain on this host, and from there to a command in a cell.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sandbox_cell::{Command, Mount, base_environment};

use crate::definition::Definition;
use crate::memory::{Description, Memory};

/// A language as this host can run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// The language's name.
    pub language: String,
    /// The toolchain's version.
    pub version: String,
    /// Where its executable is on the host.
    pub host_executable: PathBuf,
    /// Host directories that a cell needs to see.
    pub mounts: Vec<Mount>,
    /// The name of the source file.
    pub source: String,
    /// Where its executable is in a cell.
    executable: PathBuf,
    argv: Vec<String>,
    env: Vec<(OsString, OsString)>,
}

/// A toolchain that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {language} toolchain was found on this host; {missing}")]
pub struct Missing {
    /// The language.
    pub language: String,
    /// What to do.
    pub missing: String,
}

impl Definition {
    /// Finds the toolchain along `path`, a list as in the variable `PATH`.
    pub fn discover(&self, path: &str, memory: &mut Memory) -> Result<Runtime, Missing> {
        for name in &self.find.commands {
            for command in std::env::split_paths(path).map(|dir| dir.join(name)).filter(|file| is_executable(file)) {
                let known = memory.recall(&command).cloned();
                let description = known.or_else(|| {
                    let description = describe(&command, &self.find.describe)?;
                    memory.remember(&command, &description);
                    Some(description)
                });
                if let Some(description) = description {
                    return Ok(self.runtime(description));
                }
            }
        }
        Err(Missing { language: self.name.clone(), missing: self.find.missing.clone() })
    }

    fn runtime(&self, description: Description) -> Runtime {
        let mut env: Vec<(OsString, OsString)> = base_environment();
        env.extend(self.run.env.iter().map(|(name, value)| (name.into(), value.into())));
        let (mounts, executable) = place(&self.name, &description);
        if let Some(mount) = mounts.first() {
            // A toolchain that was built to be in one place finds its own libraries in another.
            let libraries = mount.target.join("lib");
            env.push(("LD_LIBRARY_PATH".into(), libraries.into_os_string()));
        }
        Runtime {
            language: self.name.clone(),
            version: description.version,
            host_executable: description.executable,
            mounts,
            source: self.source.clone(),
            executable,
            argv: self.run.argv.clone(),
            env,
        }
    }
}

/// Where a toolchain appears in a cell: in place if it belongs to the system, else at a neutral path.
fn place(language: &str, description: &Description) -> (Vec<Mount>, PathBuf) {
    if description.prefix.starts_with("/usr") {
        return (vec![], description.executable.clone());
    }
    let target = Path::new("/opt").join(language);
    match description.executable.strip_prefix(&description.prefix) {
        Ok(inside) => {
            let executable = target.join(inside);
            (vec![Mount { source: description.prefix.clone(), target }], executable)
        }
        Err(_) => (vec![Mount { source: description.prefix.clone(), target }], description.executable.clone()),
    }
}

impl Runtime {
    /// The command that runs a program: the source file's name, arguments and variables of the user's.
    #[must_use]
    pub fn plan(&self, source: &str, args: &[OsString], env: &[(OsString, OsString)]) -> Command {
        let own = self.argv.iter().map(|part| match part.as_str() {
            "{executable}" => self.executable.clone().into_os_string(),
            "{source}" => source.into(),
            other => other.into(),
        });
        let mut command = Command::new(own.chain(args.iter().cloned()));
        command.env.clone_from(&self.env);
        for (name, value) in env {
            command.env.retain(|(existing, _)| existing != name);
            command.env.push((name.clone(), value.clone()));
        }
        command
    }
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Asks a toolchain what it is. It is the host's own program, run with nothing of a request, in the root directory so
/// that no file of the current one has a say.
fn describe(command: &Path, arguments: &[String]) -> Option<Description> {
    let output = std::process::Command::new(command)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let description: Description = serde_json::from_slice(&output.stdout).ok()?;
    let executable = description.executable.canonicalize().ok()?;
    let prefix = description.prefix.canonicalize().ok()?;
    Some(Description { executable, prefix, ..description })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn python() -> Definition {
        Registry::shipped().expect("valid").by_name("python").expect("known").clone()
    }

    /// A toolchain that describes itself, in a directory of its own.
    fn toolchain(dir: &Path, prefix: &str) -> PathBuf {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).expect("mkdir");
        let file = bin.join("python3");
        let text = format!(
            "#!/bin/sh\necho '{{\"version\":\"3.99.1\",\"executable\":\"{}\",\"prefix\":\"{prefix}\"}}'\n",
            file.display()
        );
        std::fs::write(&file, text).expect("write");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("chmod");
        bin
    }

    #[test]
    fn a_toolchain_outside_the_system_moves_to_a_neutral_path() {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().canonicalize().expect("path");
        let bin = toolchain(&root, root.to_str().expect("utf-8"));
        let mut memory = Memory::open(None);
        let runtime = python().discover(bin.to_str().expect("utf-8"), &mut memory).expect("found");
        assert_eq!(runtime.version, "3.99.1");
        assert_eq!(runtime.mounts, [Mount { source: root, target: "/opt/python".into() }]);
        let command = runtime.plan("main.py", &["a".into()], &[("X".into(), "1".into())]);
        assert_eq!(command.argv, ["/opt/python/bin/python3", "main.py", "a"]);
        assert!(command.env.contains(&("LD_LIBRARY_PATH".into(), "/opt/python/lib".into())));
        assert!(command.env.contains(&("X".into(), "1".into())));
    }

    #[test]
    fn a_toolchain_of_the_system_stays_where_it_is() {
        let dir = tempfile::tempdir().expect("tempdir");
        let bin = toolchain(dir.path(), "/usr");
        let mut memory = Memory::open(Some(dir.path()));
        let runtime = python().discover(bin.to_str().expect("utf-8"), &mut memory).expect("found");
        assert!(runtime.mounts.is_empty());
        let command = runtime.plan("x.py", &[], &[("PATH".into(), "/nowhere".into())]);
        let paths: Vec<_> = command.env.iter().filter(|(name, _)| name == "PATH").collect();
        assert_eq!(paths, [&(OsString::from("PATH"), OsString::from("/nowhere"))]);
    }

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        let error = python().discover("/nowhere", &mut Memory::open(None)).expect_err("missing");
        let text = error.to_string();
        assert!(text.starts_with("no python toolchain was found on this host; install Python 3.9"), "{text}");
    }

    #[test]
    fn a_command_that_does_not_describe_itself_is_passed_over() {
        let dir = tempfile::tempdir().expect("tempdir");
        let bad = dir.path().join("bad");
        std::fs::create_dir(&bad).expect("mkdir");
        std::fs::write(bad.join("python3"), "#!/bin/sh\nexit 3\n").expect("write");
        std::fs::set_permissions(bad.join("python3"), PermissionsExt::from_mode(0o755)).expect("chmod");
        let good = toolchain(&dir.path().join("good"), "/usr");
        let path = format!("{}:{}", bad.display(), good.display());
        assert!(python().discover(&path, &mut Memory::open(None)).is_ok());
    }
}
