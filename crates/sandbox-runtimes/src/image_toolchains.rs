//! Toolchains in the root file system of an image.
//!
//! The host looks for files in it and executes none. The kernel resolves paths below the root of the image, so links
//! cannot lead out of it, and the host learns only whether a file exists. Version queries run in a cell.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use sandbox_cell::base_environment;

use crate::definition::Definition;
use crate::discover::{LocatedTool, Missing, SearchPaths};
use crate::runtime::{Environment, Runtime, set_all};
use crate::toolchain_cache::{ToolchainCache, ToolchainDescription};

/// The search path for an image that defines none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that are the cell's to set.
const OWN: [&str; 3] = ["HOME", "USER", "TMPDIR"];

/// An image as a place to look for toolchains.
#[derive(Debug, Clone, Copy)]
pub struct ToolchainImage<'a> {
    /// Its name.
    pub name: &'a str,
    /// The digest that identifies it.
    pub digest: &'a str,
    /// Its root on the host.
    pub root: &'a Path,
    /// Its variables, each `NAME=VALUE`.
    pub env: &'a [String],
}

impl ToolchainImage<'_> {
    /// The variables of every program that runs from it.
    #[must_use]
    pub fn environment(&self) -> Environment {
        let mut environment = base_environment();
        set_all(&mut environment, [("PATH", USUAL_PATH)]);
        let variables = self.env.iter().filter_map(|variable| variable.split_once('='));
        let usable = |(name, value): &(&str, &str)| {
            !name.is_empty() && !OWN.contains(name) && !name.contains('\0') && !value.contains('\0')
        };
        set_all(&mut environment, variables.filter(usable));
        environment
    }

    fn places(&self, environment: &Environment) -> std::io::Result<SearchPaths> {
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let path = path.and_then(|path| path.into_string().ok()).unwrap_or_default();
        Ok(SearchPaths { path, home: None, root: Some(ImageRoot::open(self.root)?) })
    }
}

impl Definition {
    /// Finds the toolchain in an image. `describe` runs a script with a command of the image in a cell and returns what
    /// it printed, if it worked. That can take as long as the image likes: the cache is not locked meanwhile.
    pub fn discover_in<E: From<Missing>>(
        &self,
        image: ToolchainImage<'_>,
        cache: &Mutex<ToolchainCache>,
        mut describe: impl FnMut(&str, &Path) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Runtime, E> {
        let missing = |what: String, missing: &str| Missing {
            what,
            place: format!("in the image '{}'", image.name),
            missing: missing.to_owned(),
        };
        let toolchain = || missing(format!("a toolchain for {}", self.name), "choose an image that has one");
        let environment = image.environment();
        let places = image.places(&environment).map_err(|_| toolchain())?;
        for command in places.commands(&self.find.commands, &self.find.paths) {
            let question = &self.find.describe;
            let cache = || cache.lock().unwrap_or_else(PoisonError::into_inner);
            let known = cache().recall_in(image.digest, &command, question).cloned();
            let description = match known {
                Some(known) => known,
                None => match describe(question, &command)?.as_deref().and_then(ToolchainDescription::parse) {
                    Some(description) => {
                        cache().remember_in(image.digest, &command, question, &description);
                        description
                    }
                    None => continue,
                },
            };
            let tools = self.tools().map(|(name, tool)| {
                let found = places.commands(&tool.commands, &tool.paths).next();
                let placed = found
                    .and_then(|file| Some(LocatedTool { mount: None, dir: file.parent()?.to_owned(), command: file }));
                (name.clone(), placed.ok_or_else(|| missing(format!("'{name}'"), "add it to the image")))
            });
            let tools = tools.collect();
            return Ok(Runtime::in_image(self, description, environment, tools, image.digest));
        }
        Err(toolchain().into())
    }
}

/// An image's root.
#[derive(Debug, Clone)]
pub(crate) struct ImageRoot(Arc<OwnedFd>);

impl ImageRoot {
    fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        Ok(Self(Arc::new(root)))
    }

    /// Opens what a path leads to in the image, wherever its links point.
    fn find(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(&*self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.find(path, OFlags::PATH).is_ok()
    }

    pub(crate) fn is_executable(&self, path: &Path) -> bool {
        let stat = self.find(path, OFlags::PATH).and_then(rustix::fs::fstat);
        stat.is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
        })
    }

    pub(crate) fn list(&self, path: &Path) -> Vec<String> {
        let dir = self.find(path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(Dir::new);
        let names = dir.into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        names.filter(|name| name != "." && name != "..").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    fn image() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join("opt/py-3.9/bin")).expect("mkdir");
        let file = dir.path().join("opt/py-3.9/bin/python3.9");
        std::fs::write(&file, "").expect("write");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("chmod");
        symlink("/opt/py-3.9/bin", dir.path().join("bin")).expect("link");
        symlink("python3.9", dir.path().join("opt/py-3.9/bin/python3")).expect("link");
        symlink("/../../../../../../bin/sh", dir.path().join("opt/py-3.9/bin/node")).expect("link");
        dir
    }

    fn discover(language: &str, root: &Path, env: &[String]) -> Result<(Runtime, Vec<PathBuf>), Missing> {
        let definition = Registry::shipped().expect("valid").by_name(language).expect("known").clone();
        let mut asked = vec![];
        let image = ToolchainImage { name: "img", digest: "sha256:0", root, env };
        let cache = Mutex::new(ToolchainCache::open(None));
        let found = definition.discover_in(image, &cache, |_, command| {
            assert!(cache.try_lock().is_ok(), "an image that answers slowly delays no other");
            asked.push(command.to_owned());
            Ok::<_, Missing>(Some(b"version=3.9.1\nexecutable=/opt/py-3.9/bin/python3.9\nprefix=/opt/py-3.9\n".into()))
        });
        found.map(|found| (found, asked))
    }

    #[test]
    fn toolchains_are_found_below_the_images_root() {
        let dir = image();
        let env = ["PATH=/bin".to_owned(), "HOME=/root".to_owned(), "X=1".to_owned()];
        let (found, asked) = discover("python", dir.path(), &env).expect("found");
        assert_eq!(asked, [PathBuf::from("/bin/python3")]);
        assert_eq!(found.version, "3.9.1");
        assert!(found.mounts.is_empty() && found.identity.contains("sha256:0"));
        let variable = |name: &str| {
            let found = found.environment.iter().find(|(n, _)| n == name);
            found.map(|(_, value)| value.to_string_lossy().into_owned())
        };
        assert_eq!(variable("PATH").as_deref(), Some("/opt/py-3.9/bin:/bin"));
        assert_eq!((variable("HOME").as_deref(), variable("X").as_deref()), (Some("/home/sandbox"), Some("1")));
        let error = found.install(&["six".to_owned()], |_| None).expect_err("no uv").to_string();
        assert_eq!(error, "'uv' was not found in the image 'img'; add it to the image");
    }

    #[test]
    fn toolchains_missing_in_an_image_are_not_taken_from_the_host() {
        let dir = image();
        let error = discover("javascript", dir.path(), &["PATH=/bin".to_owned()]).expect_err("missing").to_string();
        assert_eq!(error, "a toolchain for javascript was not found in the image 'img'; choose an image that has one");
    }
}
