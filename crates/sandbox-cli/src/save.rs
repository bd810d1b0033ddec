//! Saves the files of a result in a directory of the user.
//!
//! Their names, content and modes come from untrusted code, and the directory may be a checkout or a home directory. So
//! nothing hidden is written (`.git/hooks`, `.bashrc`), nothing is overwritten and nothing becomes executable unless the
//! user allows it, and no link is ever followed.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sandbox_base::{printable, reason};
use sandbox_cell::archive::Omission;
use sandbox_executor::{OmittedFile, OutputFile, RunResult};
use serde::Serialize;

use crate::args::OutputAllow;
use crate::request::UsageError;

/// The most files that a message names.
const MOST_NAMED: usize = 3;

/// The destination of a run's files.
pub(crate) struct Destination {
    root: OwnedFd,
    dir: PathBuf,
    allowed: Vec<OutputAllow>,
}

/// A file that was not written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Unsaved {
    pub(crate) path: String,
    pub(crate) why: Reason,
    /// The error, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Why a file was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    /// A component of its path starts with a dot.
    Hidden,
    /// A file with its name exists.
    Exists,
    /// It could not be written.
    Failed,
}

/// The outcome of saving the files of a result.
#[derive(Debug, Default)]
pub(crate) struct SaveReport {
    pub(crate) unsaved: Vec<Unsaved>,
    /// How many files lost their execute permission.
    pub(crate) stripped: usize,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Destination {
    /// Opens a directory, creating it as needed. Called before the run, so that no run is wasted.
    pub(crate) fn open(dir: &Path, allowed: &[OutputAllow]) -> Result<Self, UsageError> {
        let failed = |why: String| format!("cannot write to '{}': {why}", printable(&dir.to_string_lossy()));
        std::fs::create_dir_all(dir).map_err(|error| {
            let is_link = dir.symlink_metadata().is_ok_and(|found| found.is_symlink());
            failed(match error.kind() {
                ErrorKind::AlreadyExists if is_link => "it is a symbolic link that leads to no directory".to_owned(),
                ErrorKind::AlreadyExists => "it is not a directory".to_owned(),
                _ => reason(&error),
            })
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| failed(reason(&errno.into())))?;
        rustix::fs::accessat(&root, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|errno| failed(reason(&errno.into())))?;
        Ok(Self { root, dir: dir.to_owned(), allowed: allowed.to_vec() })
    }

    fn allows(&self, what: OutputAllow) -> bool {
        self.allowed.contains(&what)
    }

    /// Writes the files of a result.
    pub(crate) fn save(&self, result: &RunResult) -> SaveReport {
        let mut saved = SaveReport::default();
        for (path, file) in &result.files {
            let executable = file.executable && self.allows(OutputAllow::Executable);
            let why = match self.save_one(path, file, executable) {
                Ok(()) => {
                    saved.stripped += usize::from(file.executable && !executable);
                    continue;
                }
                Err(why) => why,
            };
            let (why, error) = match why {
                SaveError::Policy(why) => (why, None),
                SaveError::Io(error) => (Reason::Failed, Some(reason(&error))),
            };
            saved.unsaved.push(Unsaved { path: path.clone(), why, error });
        }
        saved
    }

    fn save_one(&self, path: &str, file: &OutputFile, executable: bool) -> Result<(), SaveError> {
        if !self.allows(OutputAllow::Hidden) && path.split('/').any(|part| part.starts_with('.')) {
            return Err(SaveError::Policy(Reason::Hidden));
        }
        let content = file.bytes().map_err(|error| SaveError::Io(std::io::Error::other(error)))?;
        let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.directory(dirs)?;
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        match rustix::fs::openat(&dir, name, NEW, mode) {
            Ok(to) => Ok(File::from(to).write_all(&content)?),
            Err(Errno::EXIST) if is_link(&dir, name) => Err(SaveError::link()),
            Err(Errno::EXIST) if self.allows(OutputAllow::Overwrite) => replace(&dir, name, mode, &content),
            Err(Errno::EXIST) => Err(SaveError::Policy(Reason::Exists)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a subdirectory, creating it as needed. Each component is opened separately without following links, so
    /// that nothing leads out, whatever another process changes meanwhile.
    fn directory(&self, dirs: &str) -> Result<OwnedFd, SaveError> {
        let mut dir = rustix::fs::openat(&self.root, c".", DIRECTORY, Mode::empty())?;
        for part in dirs.split('/').filter(|part| !part.is_empty()) {
            match rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            dir = match rustix::fs::openat(&dir, part, DIRECTORY, Mode::empty()) {
                Ok(below) => below,
                Err(_) if is_link(&dir, part) => return Err(SaveError::link()),
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(dir)
    }

    /// A line on the files that were left out, and one on those that were not written.
    pub(crate) fn messages(&self, result: &RunResult, saved: &SaveReport) -> Vec<String> {
        left_out_message(result).into_iter().chain(self.unsaved_message(&saved.unsaved)).collect()
    }

    /// One line on the files that were not written, and how to allow them.
    fn unsaved_message(&self, unsaved: &[Unsaved]) -> Option<String> {
        let describe = |file: &Unsaved| {
            let path = printable(&self.dir.join(&file.path).to_string_lossy());
            match file.why {
                Reason::Hidden => format!("'{path}' is hidden (write it with --all)"),
                Reason::Exists => format!("'{path}' exists (overwrite it with --force)"),
                Reason::Failed => format!("'{path}': {}", file.error.as_deref().unwrap_or("it cannot be written")),
            }
        };
        let named: Vec<_> = unsaved.iter().take(MOST_NAMED).map(describe).collect();
        (!unsaved.is_empty()).then(|| absent_files("not written", unsaved.len(), &named))
    }
}

/// One line on the files that did not come out of the cell, if some of them should have: links, pipes and devices never
/// do. Of many, only some are known.
pub(crate) fn left_out_message(result: &RunResult) -> Option<String> {
    let count = usize::try_from(result.files_omitted_count).unwrap_or(usize::MAX);
    let lost: Vec<_> = result.files_omitted.iter().filter(|file| file.why != Omission::NotAFile).collect();
    let unknown = count.saturating_sub(result.files_omitted.len());
    let describe = |file: &&OmittedFile| format!("'{}': {}", printable(&file.path), file.why.describe());
    let named: Vec<_> = lost.iter().take(MOST_NAMED).map(describe).collect();
    let all = lost.len().saturating_add(unknown);
    (all > 0).then(|| absent_files("left out", all, &named))
}

/// Says of so many files what became of them; some are named with the reason.
fn absent_files(what: &str, count: usize, named: &[String]) -> String {
    let noun = if count == 1 { "file was" } else { "files were" };
    let more = count - named.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let colon = if named.is_empty() { "" } else { ": " };
    format!("{count} {noun} {what}{colon}{}{more}", named.join("; "))
}

/// Whether a name is that of a symbolic link, so that the user learns why the file is not written.
fn is_link(dir: &OwnedFd, name: &str) -> bool {
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

/// Why a file was not written.
enum SaveError {
    Policy(Reason),
    Io(std::io::Error),
}

impl SaveError {
    fn link() -> Self {
        Self::Io(std::io::Error::other("exists and is a symbolic link; not followed"))
    }
}

impl From<std::io::Error> for SaveError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for SaveError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Replaces a file atomically. Processes that have it open, and other hard links, keep the old content.
fn replace(dir: &OwnedFd, name: &str, mode: Mode, content: &[u8]) -> Result<(), SaveError> {
    let there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
        return Err(SaveError::Io(std::io::Error::other("it exists and is not a regular file")));
    }
    let temporary = format!(".sandbox-run-{}", std::process::id());
    let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
    let mut to = File::from(rustix::fs::openat(dir, &temporary, NEW, mode)?);
    let written = to.write_all(content).map_err(SaveError::from);
    let placed = written.and_then(|()| Ok(rustix::fs::renameat(dir, &temporary, dir, name)?));
    if placed.is_err() {
        let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
    }
    placed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use sandbox_executor::FileEncoding;

    use super::*;

    fn result(files: &[(&str, &str, FileEncoding)]) -> RunResult {
        let mut result = RunResult::internal_error(String::new());
        for (path, content, encoding) in files {
            let file = OutputFile { content: (*content).to_owned(), encoding: *encoding, size: 1, executable: true };
            result.files.insert((*path).to_owned(), file);
        }
        result
    }

    fn save(dir: &Path, allowed: &[OutputAllow], result: &RunResult) -> Vec<(String, Reason)> {
        let saved = Destination::open(dir, allowed).expect("opened").save(result);
        saved.unsaved.into_iter().map(|file| (file.path, file.why)).collect()
    }

    #[test]
    fn files_are_written_once_and_without_execute_permission() {
        let dir = tempfile::tempdir().expect("tempdir");
        let new = dir.path().join("new/results");
        let first = result(&[("a/b", "text", FileEncoding::Utf8), ("c", "/w==", FileEncoding::Base64)]);
        assert_eq!(save(&new, &[], &first), []);
        assert_eq!(std::fs::read(new.join("a/b")).expect("read"), b"text");
        assert_eq!(std::fs::read(new.join("c")).expect("read"), [255]);
        assert_eq!(std::fs::metadata(new.join("c")).expect("metadata").permissions().mode() & 0o111, 0);
        let second = result(&[("a/b", "other", FileEncoding::Utf8), ("d", "x", FileEncoding::Utf8)]);
        assert_eq!(save(&new, &[], &second), [("a/b".to_owned(), Reason::Exists)]);
        assert_eq!(std::fs::read(new.join("a/b")).expect("read"), b"text");
        assert!(new.join("d").exists());
    }

    #[test]
    fn allowed_operations_are_carried_out() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (file, other) = (dir.path().join("f"), dir.path().join("other"));
        std::fs::write(&file, "old").expect("write");
        std::fs::hard_link(&file, &other).expect("link");
        let result = result(&[
            ("f", "new", FileEncoding::Utf8),
            (".git/hooks/x", "#!", FileEncoding::Utf8),
            ("a/.b/c", "x", FileEncoding::Utf8),
        ]);
        let hidden = |path: &str| (path.to_owned(), Reason::Hidden);
        assert_eq!(save(dir.path(), &[OutputAllow::Overwrite], &result), [hidden(".git/hooks/x"), hidden("a/.b/c")]);
        assert_eq!(std::fs::read(&file).expect("read"), b"new");
        assert_eq!(std::fs::read(&other).expect("read"), b"old", "another hard link keeps the old content");
        assert_eq!(std::fs::metadata(&file).expect("metadata").nlink(), 1);
        assert!(!dir.path().join(".git").exists());
        let all = [OutputAllow::Overwrite, OutputAllow::Hidden, OutputAllow::Executable];
        assert_eq!(save(dir.path(), &all, &result), []);
        let mode = std::fs::metadata(dir.path().join(".git/hooks/x")).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o100, 0o100);
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 4, "no temporary file is left");
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let elsewhere = tempfile::tempdir().expect("tempdir");
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("a")).expect("link");
        std::os::unix::fs::symlink(elsewhere.path().join("x"), dir.path().join("c")).expect("link");
        let result = result(&[("a/b", "text", FileEncoding::Utf8), ("c", "x", FileEncoding::Utf8)]);
        for allowed in [&[][..], &[OutputAllow::Overwrite]] {
            let unsaved = save(dir.path(), allowed, &result);
            assert_eq!(unsaved.len(), 2, "{unsaved:?}");
            assert_eq!(std::fs::read_dir(elsewhere.path()).expect("dir").count(), 0);
        }
    }

    #[test]
    fn messages_contain_no_control_characters() {
        let dir = tempfile::tempdir().expect("tempdir");
        let destination = Destination::open(dir.path(), &[]).expect("opened");
        let saved = destination.save(&result(&[(".\x1b]0;owned\x07\n", "x", FileEncoding::Utf8)]));
        let error = destination.unsaved_message(&saved.unsaved).expect("message");
        assert!(!error.contains(char::is_control) && error.contains("␛]0;owned␇␊"), "{error}");
    }
}
