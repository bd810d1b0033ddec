//! Reads the user's files and projects into a request.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use sandbox_base::{RelativePath, printable, reason};
use sandbox_executor::{InputFile, MOST_BYTES, MOST_FILES};
use sandbox_runtimes::{Definition, Registry};

use crate::request::UsageError;

/// The maximum size of a file.
const MAX_FILE: u64 = 512 << 20;

/// Generated directories, which are not part of a project.
pub(crate) const VERSION_CONTROL: [&str; 3] = [".git", ".hg", ".svn"];

pub(crate) fn refuse(path: &Path, why: &str) -> UsageError {
    format!("cannot read '{}': {why}", printable(&path.to_string_lossy()))
}

/// The name of one of several files: its path if that is below the current directory, else its file name.
pub(crate) fn name_of(path: &Path) -> Result<String, UsageError> {
    let normal: Vec<_> = path.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    let below = !normal.is_empty() && normal.iter().all(|part| matches!(part, Component::Normal(_)));
    let name = if below { normal.iter().collect() } else { path.file_name().map(Into::into).unwrap_or_default() };
    let name: std::path::PathBuf = name;
    match name.to_str() {
        Some("") | None => Err(refuse(path, "its name cannot be used in the sandbox")),
        Some(name) => Ok(name.to_owned()),
    }
}

/// Reads a file under a name in the working directory.
pub(crate) fn read_one(path: &Path, name: &str) -> Result<InputFile, UsageError> {
    let failed = |error: std::io::Error| refuse(path, &reason(&error));
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(refuse(path, "it is a directory"));
    }
    if meta.len() > MAX_FILE {
        return Err(refuse(path, "it is larger than 512 MiB"));
    }
    let mut content = vec![];
    file.take(MAX_FILE).read_to_end(&mut content).map_err(failed)?;
    let path = RelativePath::normalized(name).map_err(|error| error.to_string())?;
    Ok(InputFile { path, content: content.into(), executable: meta.permissions().mode() & 0o100 != 0, is_link: false })
}

/// Reads a directory under a name in the working directory or, without one, directly into it.
pub(crate) fn read_dir(registry: &Registry, dir: &Path, name: &str) -> Result<Vec<InputFile>, UsageError> {
    let files = read_dir_or_nothing(registry, dir, name)?;
    if files.is_empty() { Err(refuse(dir, "the directory is empty")) } else { Ok(files) }
}

/// The same for a directory that may be empty.
pub(crate) fn read_dir_or_nothing(registry: &Registry, dir: &Path, name: &str) -> Result<Vec<InputFile>, UsageError> {
    let root = dir.canonicalize().map_err(|error| refuse(dir, &reason(&error)))?;
    if root.parent().is_none() {
        return Err(refuse(dir, "it is the root directory"));
    }
    let mut project = ProjectReader { registry, root: &root, files: vec![], bytes: 0 };
    project.read_below(&root, name)?;
    copy_targets_left_out(&root, name, &mut project.files)?;
    Ok(project.files)
}

/// A directory that is being read.
struct ProjectReader<'a> {
    registry: &'a Registry,
    root: &'a Path,
    files: Vec<InputFile>,
    bytes: usize,
}

impl ProjectReader<'_> {
    fn read_below(&mut self, dir: &Path, name: &str) -> Result<(), UsageError> {
        // Build tools write beside the manifest, at the root.
        let root = self.root;
        let is_beside = |manifest: &str| dir == root && root.join(manifest).exists();
        let failed = |error: std::io::Error| refuse(dir, &reason(&error));
        let mut entries: Vec<_> = std::fs::read_dir(dir).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Some(own) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(refuse(&path, "its name is not UTF-8"));
            };
            if VERSION_CONTROL.contains(&own.as_str()) || self.registry.ignores(&own, &is_beside) {
                continue;
            }
            let inner = if name.is_empty() { own } else { format!("{name}/{own}") };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_symlink() {
                self.add(read_link(self.registry, root, &path, &inner)?)?;
            } else if kind.is_dir() {
                self.read_below(&path, &inner)?;
            } else if path.is_file() {
                self.add(read_one(&path, &inner)?)?;
            }
        }
        Ok(())
    }

    /// Adds a file. A request with more is refused anyway, and a directory may be a whole home directory.
    fn add(&mut self, file: InputFile) -> Result<(), UsageError> {
        self.bytes += file.content.len();
        self.files.push(file);
        if self.files.len() > MOST_FILES {
            return Err(refuse(self.root, &format!("it has more than {MOST_FILES} files")));
        }
        if self.bytes > MOST_BYTES {
            return Err(refuse(self.root, &format!("its files are larger than {} MiB together", MOST_BYTES >> 20)));
        }
        Ok(())
    }
}

/// Reads a link of a project, which may lead to what is in the project.
fn read_link(registry: &Registry, root: &Path, path: &Path, name: &str) -> Result<InputFile, UsageError> {
    let outside = || refuse(path, "it is a link to a file outside the directory");
    let target = std::fs::read_link(path).map_err(|error| refuse(path, &reason(&error)))?;
    if path.canonicalize().is_ok_and(|real| !real.starts_with(root)) {
        return Err(outside());
    }
    let is_manifest = registry
        .all()
        .filter_map(|definition| definition.packages.as_ref())
        .any(|packages| packages.manifests.iter().any(|manifest| manifest == name));
    // Packages are installed elsewhere, from the manifests alone.
    if is_manifest {
        return read_one(path, name);
    }
    let below_root = |path: &Path| path.strip_prefix(root).map(Path::to_path_buf).map_err(|_| outside());
    let target = if target.is_absolute() {
        let up = below_root(path)?.components().skip(1).map(|_| Component::ParentDir).collect::<PathBuf>();
        let target = up.join(below_root(&target)?);
        if target.as_os_str().is_empty() { PathBuf::from(".") } else { target }
    } else {
        target
    };
    let target = target.into_os_string().into_string().map_err(|_| refuse(path, "its target is not UTF-8"))?;
    let link_name = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default();
    let path_in_root = RelativePath::new(link_name).map_err(|error| error.to_string())?;
    InputFile::link(path_in_root, target.clone()).map_err(|_| outside())?;
    let name = RelativePath::normalized(name).map_err(|error| error.to_string())?;
    InputFile::link(name, target).map_err(|error| error.to_string())
}

/// Replaces links to files that are not part of the project, such as those of a build, by the files.
fn copy_targets_left_out(root: &Path, name: &str, files: &mut [InputFile]) -> Result<(), UsageError> {
    if !files.iter().any(|file| file.is_link) {
        return Ok(());
    }
    let inside = |path: &str| match path.strip_prefix(name) {
        _ if name.is_empty() => root.join(path),
        Some(rest) => root.join(rest.trim_start_matches('/')),
        None => root.join(path),
    };
    let kept: BTreeSet<PathBuf> = files.iter().map(|file| inside(file.path.as_str())).collect();
    for file in files.iter_mut().filter(|file| file.is_link) {
        let Ok(real) = inside(file.path.as_str()).canonicalize() else { continue };
        if real.is_file() && !kept.contains(&real) {
            *file = read_one(&real, file.path.as_str())?;
        }
    }
    Ok(())
}

/// The files of `--input FILE[:NAME]`.
pub(crate) fn read_input(registry: &Registry, text: &OsStr) -> Result<Vec<InputFile>, UsageError> {
    let bytes = text.as_bytes();
    let colon = bytes.iter().rposition(|byte| *byte == b':').filter(|_| !Path::new(text).exists());
    let (path, name) = if let Some(at) = colon {
        let name = std::str::from_utf8(&bytes[at + 1..]).map_err(|_| "--input: the name is not UTF-8".to_owned())?;
        (Path::new(OsStr::from_bytes(&bytes[..at])), name.to_owned())
    } else {
        let path = Path::new(text);
        let own = path.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        (path, own.unwrap_or_else(|| text.to_string_lossy().into_owned()))
    };
    if path.is_dir() {
        let name = RelativePath::normalized(name.trim_end_matches('/')).map_err(|error| error.to_string())?;
        return read_dir(registry, path, name.as_str());
    }
    Ok(vec![read_one(path, &name)?])
}

/// The language of a project: by its entry file, by its manifest, or because all its source files are in one.
pub(crate) fn language<'r>(registry: &'r Registry, files: &[InputFile]) -> Option<&'r Definition> {
    let has = |name: &String| files.iter().any(|file| file.path.as_str() == name);
    let begins = |definition: &&Definition| definition.entries.iter().any(has);
    let states = |definition: &&Definition| {
        definition.packages.as_ref().is_some_and(|packages| packages.manifests.iter().any(has))
    };
    registry.all().find(begins).or_else(|| registry.all().find(states)).or_else(|| {
        let used = |definition: &&Definition| files.iter().any(|file| definition.is_source(file.path.as_str()));
        let mut used = registry.all().filter(used);
        used.next().filter(|_| used.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
        std::fs::write(path, text).expect("write");
    }

    #[test]
    fn generated_directories_of_a_project_are_skipped() {
        let registry = Registry::default();
        let dir = tempfile::tempdir().expect("tempdir");
        for file in ["src/main.rs", "Cargo.toml", "target/x", ".git/HEAD", "a/node_modules/y", "data/target/z"] {
            write(&dir.path().join(file), "");
        }
        let names = |files: Vec<InputFile>| files.iter().map(|file| file.path.as_str().to_owned()).collect::<Vec<_>>();
        let files = read_dir(&registry, dir.path(), "").expect("read");
        assert_eq!(names(files), ["Cargo.toml", "data/target/z", "src/main.rs"]);
        assert_eq!(names(read_dir(&registry, &dir.path().join("src"), "in").expect("read")), ["in/main.rs"]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).expect("link");
        assert!(read_dir(&registry, dir.path(), "").expect_err("refused").contains("outside the directory"));
        assert!(read_dir(&registry, &dir.path().join("none"), "").is_err());
    }

    #[test]
    fn the_language_of_a_project_is_detected() {
        let registry = Registry::shipped().expect("valid");
        let language = |names: &[&str]| {
            let files: Vec<_> =
                names.iter().map(|name| InputFile::new(RelativePath::new(*name).expect("path"), vec![])).collect();
            super::language(&registry, &files).map(|definition| definition.name.clone())
        };
        assert_eq!(language(&["main.py", "x.sh"]).as_deref(), Some("python"));
        assert_eq!(language(&["Cargo.toml", "src/bin/a.rs"]).as_deref(), Some("rust"));
        assert_eq!(language(&["package.json", "lib.js"]).as_deref(), Some("javascript"));
        assert_eq!(language(&["package.json", "index.ts"]).as_deref(), Some("typescript"));
        assert_eq!(language(&["a.go", "b.go", "README"]).as_deref(), Some("go"));
        assert_eq!(language(&["a.go", "b.py"]), None);
    }

    #[test]
    fn names_stay_in_the_working_directory() {
        assert_eq!(name_of(Path::new("./a/b.py")).as_deref(), Ok("a/b.py"));
        assert_eq!(name_of(Path::new("../a/b.py")).as_deref(), Ok("b.py"));
        assert_eq!(name_of(Path::new("/x/b.py")).as_deref(), Ok("b.py"));
        assert!(name_of(Path::new("..")).is_err());
    }
}
