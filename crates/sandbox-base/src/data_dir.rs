//! The directory for data that outlives a run: caches, images, named volumes, jobs. Only its owner can enter it.
//!
//! Its direct entries are closed to others too. Below them, modes may be wider: cells have other users, and see through
//! mounts what no other process can reach.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, openat};
use rustix::io::Errno;

/// Directories of which cells mount parts.
const SHOWN: [&str; 2] = ["builds", "environments"];
const OTHERS: [&str; 2] = ["images", "volumes"];
const FILES: [&str; 2] = ["jobs.redb", "runtimes.json"];

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// A directory that others can traverse, but not list.
const PASSABLE_DIR: u32 = 0o711;

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Creates a directory in the data directory, which is created too if needed. It gets the owner of the data directory,
/// even if root creates it for a server.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(PRIVATE_DIR);
    let made = match builder.create(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            builder.recursive(true).create(dir.parent().unwrap_or(dir))?;
            builder.recursive(false).create(dir)
        }
        made => made,
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => return Ok(()),
        made => made?,
    }
    if let Some(parent) = dir.parent().filter(|_| rustix::process::geteuid().is_root()) {
        let made = openat(CWD, dir, OPEN.union(OFlags::DIRECTORY), Mode::empty())?;
        let owner = parent.metadata()?;
        fchown(&made, Some(Uid::from_raw(owner.uid())), Some(Gid::from_raw(owner.gid())))?;
    }
    Ok(())
}

/// Creates the data directory if needed, and closes it and its direct entries to others. Returns the changes, and the
/// failed ones, for the log.
///
/// The directory may be a symbolic link, because the operator has named it; links inside it are not followed.
pub fn keep_private(dir: &Path, passed: bool) -> io::Result<Vec<String>> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)?;
    let top: OwnedFd = File::open(dir)?.into();
    let owner = fstat(&top)?;
    let mut notes = vec![];
    let shown_mode = if passed { PASSABLE_DIR } else { PRIVATE_DIR };
    if is_own(dir)? {
        notes.extend(set_mode(&top, &owner, shown_mode, dir)?);
    } else if owner.st_mode & 0o077 != 0 {
        let mode = owner.st_mode & 0o7777;
        notes.push(format!("{} contains other files and keeps its mode {mode:04o}", dir.display()));
    }
    if passed {
        SHOWN.iter().try_for_each(|name| make_dir(&dir.join(name)))?;
    }
    let wanted = SHOWN.map(|name| (name, shown_mode)).into_iter();
    let wanted = wanted.chain(OTHERS.map(|name| (name, PRIVATE_DIR))).chain(FILES.map(|name| (name, PRIVATE_FILE)));
    for (name, mode) in wanted {
        let found = match openat(&top, name, OPEN, Mode::empty()) {
            Ok(found) => found,
            // It does not exist, is a link that the operator has made, or belongs to another user.
            Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let stat = fstat(&found)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory && mode != PRIVATE_FILE
            || kind == FileType::RegularFile && mode == PRIVATE_FILE && stat.st_nlink == 1
        {
            if rustix::process::geteuid().is_root() && stat.st_uid != owner.st_uid {
                fchown(&found, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
            }
            notes.extend(set_mode(&found, &stat, mode, &dir.join(name))?);
        }
    }
    Ok(notes)
}

/// Whether a directory contains only entries of this product: only then may the product change it.
pub fn is_own(dir: &Path) -> io::Result<bool> {
    // A directory for all users, such as /tmp, never qualifies, even if it is empty.
    let sticky = dir.metadata()?.mode() & 0o1000 != 0;
    let known = |name: &OsStr| {
        let mut names = SHOWN.iter().chain(&OTHERS).chain(&FILES);
        // Such as runtimes.json, while it is written, and what a server makes backups with.
        let temporary = |text: &str| text.starts_with("runtimes.") || ["backup.sock", "backup.redb"].contains(&text);
        names.any(|known| *known == name) || name == "lost+found" || name.to_str().is_some_and(temporary)
    };
    let mut names = std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| known(&entry.file_name())));
    Ok(!sticky && names.try_fold(true, |all, known| Ok::<_, io::Error>(all && known?))?)
}

/// Sets a mode, if it is wider than wanted or others have to traverse the directory. Entries of other users are left
/// alone.
fn set_mode(file: impl AsFd, stat: &Stat, wanted: u32, path: &Path) -> io::Result<Option<String>> {
    let mode = stat.st_mode & 0o7777;
    // A directory stays traversable once it was, because cells may be using it.
    let fits = match wanted {
        PASSABLE_DIR => mode == PASSABLE_DIR,
        PRIVATE_DIR => mode & 0o066 == 0,
        _ => mode & !PRIVATE_FILE == 0,
    };
    let user = rustix::process::geteuid();
    if fits || !user.is_root() && stat.st_uid != user.as_raw() {
        return Ok(None);
    }
    fchmod(file, Mode::from_raw_mode(wanted))?;
    // Entries that were private before, or have just been created, need not be mentioned.
    let note = || format!("changed the mode of {} from {mode:04o} to {wanted:04o}", path.display());
    Ok((mode & 0o066 != 0).then(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("there").mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
    }

    /// A data directory of an older version.
    fn old() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().expect("tempdir");
        let dir = parent.path().join("data");
        for name in ["", "builds", "builds/key", "images", "volumes"] {
            std::fs::create_dir(dir.join(name)).expect("mkdir");
            set(&dir.join(name), 0o755);
        }
        for name in FILES {
            std::fs::write(dir.join(name), "secret").expect("write");
            set(&dir.join(name), 0o644);
        }
        (parent, dir)
    }

    #[test]
    fn a_new_directory_is_private() {
        let parent = tempfile::tempdir().expect("tempdir");
        let dir = parent.path().join("a/data");
        assert_eq!(keep_private(&dir, false).expect("made"), [""; 0]);
        make_dir(&dir.join("builds")).expect("made");
        make_dir(&dir.join("builds")).expect("there");
        make_dir(&parent.path().join("b/data/images")).expect("made");
        for path in ["a", "a/data", "a/data/builds", "b/data", "b/data/images"] {
            assert_eq!(mode(&parent.path().join(path)), 0o700, "{path}");
        }
    }

    #[test]
    fn an_old_directory_is_closed() {
        let (_parent, dir) = old();
        let notes = keep_private(&dir, false).expect("closed");
        assert_eq!(notes.len(), 6, "{notes:?}");
        assert_eq!(notes[0], format!("changed the mode of {} from 0755 to 0700", dir.display()));
        for (name, wanted) in
            [("", 0o700), ("builds", 0o700), ("images", 0o700), ("volumes", 0o700), ("jobs.redb", 0o600)]
        {
            assert_eq!(mode(&dir.join(name)), wanted, "{name}");
        }
        assert_eq!(mode(&dir.join("builds/key")), 0o755, "cells have other users");
        assert_eq!(keep_private(&dir, false).expect("closed"), [""; 0], "nothing is left to do");
    }

    #[test]
    fn others_can_traverse_directories_that_cells_use() {
        let (_parent, dir) = old();
        keep_private(&dir, true).expect("closed");
        for (name, wanted) in [("", 0o711), ("builds", 0o711), ("environments", 0o711), ("images", 0o700)] {
            assert_eq!(mode(&dir.join(name)), wanted, "{name}");
        }
        keep_private(&dir, false).expect("closed");
        assert_eq!(mode(&dir), 0o711, "cells may be using it");
    }

    #[test]
    fn a_directory_with_other_files_keeps_its_mode() {
        let (_parent, dir) = old();
        std::fs::write(dir.join("letter.txt"), "").expect("write");
        let notes = keep_private(&dir, false).expect("closed");
        assert!(notes[0].ends_with("contains other files and keeps its mode 0755"), "{notes:?}");
        assert_eq!((mode(&dir), mode(&dir.join("volumes")), mode(&dir.join("jobs.redb"))), (0o755, 0o700, 0o600));
        assert!(!is_own(&dir).expect("readable"));
    }

    #[test]
    fn only_the_configured_link_is_followed() {
        let (parent, dir) = old();
        let (link, outside) = (parent.path().join("link"), parent.path().join("outside"));
        symlink(&dir, &link).expect("link");
        std::fs::create_dir(&outside).expect("mkdir");
        set(&outside, 0o755);
        std::fs::remove_dir(dir.join("volumes")).expect("rmdir");
        symlink(&outside, dir.join("volumes")).expect("link");
        std::fs::write(outside.join("file"), "").expect("write");
        set(&outside.join("file"), 0o644);
        std::fs::remove_file(dir.join("jobs.redb")).expect("rm");
        std::fs::hard_link(outside.join("file"), dir.join("jobs.redb")).expect("link");
        keep_private(&link, false).expect("closed");
        assert_eq!((mode(&dir), mode(&outside), mode(&outside.join("file"))), (0o700, 0o755, 0o644));
    }
}
