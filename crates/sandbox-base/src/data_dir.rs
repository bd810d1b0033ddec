//! The directory for what outlives a run: caches, images, named volumes, jobs. Only its owner can enter it.
//!
//! Everything directly in it is closed to others too. Below that, modes may be wider: cells have other users, and see
//! through mounts what no one else can reach.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, openat};
use rustix::io::Errno;

/// Directories that cells are shown something of.
const SHOWN: [&str; 2] = ["builds", "environments"];
const OTHERS: [&str; 2] = ["images", "volumes"];
const FILES: [&str; 2] = ["jobs.redb", "runtimes.json"];

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// A directory that others can pass, if they know a name in it, and not list.
const PASSABLE_DIR: u32 = 0o711;

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Makes a directory in the data directory, which is made too if need be. It belongs to whom the data directory belongs to,
/// also if root makes it for a server.
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

/// Makes the data directory if need be, and closes it to others, with what is directly in it. Returns what was changed, or
/// could not be, for the log.
///
/// The directory may be a symbolic link, as the operator has named it; what is in it is not followed.
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
        notes.push(format!("{} has other files in it, and keeps the mode {mode:04o}", dir.display()));
    }
    if passed {
        SHOWN.iter().try_for_each(|name| make_dir(&dir.join(name)))?;
    }
    let wanted = SHOWN.map(|name| (name, shown_mode)).into_iter();
    let wanted = wanted.chain(OTHERS.map(|name| (name, PRIVATE_DIR))).chain(FILES.map(|name| (name, PRIVATE_FILE)));
    for (name, mode) in wanted {
        let found = match openat(&top, name, OPEN, Mode::empty()) {
            Ok(found) => found,
            // Not there, a link that the operator has made, or another user's.
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

/// Whether a directory holds nothing but what this product makes: only then is it all the product's to change.
pub fn is_own(dir: &Path) -> io::Result<bool> {
    // One for everybody's files, such as /tmp, is not, even if it is empty.
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

/// Sets a mode, if it is wider than wanted or others have to pass. What another user owns is left to them.
fn set_mode(file: impl AsFd, stat: &Stat, wanted: u32, path: &Path) -> io::Result<Option<String>> {
    let mode = stat.st_mode & 0o7777;
    // A directory stays passable once it was: cells may be on their way through it.
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
    // What was private before, or has just been made, need not be mentioned.
    let note = || format!("the mode of {} was {mode:04o} and is {wanted:04o} now", path.display());
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

    /// A data directory as an older version made it.
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
        assert_eq!(notes[0], format!("the mode of {} was 0755 and is 0700 now", dir.display()));
        for (name, wanted) in
            [("", 0o700), ("builds", 0o700), ("images", 0o700), ("volumes", 0o700), ("jobs.redb", 0o600)]
        {
            assert_eq!(mode(&dir.join(name)), wanted, "{name}");
        }
        assert_eq!(mode(&dir.join("builds/key")), 0o755, "cells have other users");
        assert_eq!(keep_private(&dir, false).expect("closed"), [""; 0], "there is nothing left to do");
    }

    #[test]
    fn others_can_pass_where_cells_have_to() {
        let (_parent, dir) = old();
        keep_private(&dir, true).expect("closed");
        for (name, wanted) in [("", 0o711), ("builds", 0o711), ("environments", 0o711), ("images", 0o700)] {
            assert_eq!(mode(&dir.join(name)), wanted, "{name}");
        }
        keep_private(&dir, false).expect("closed");
        assert_eq!(mode(&dir), 0o711, "cells may be on their way");
    }

    #[test]
    fn a_directory_with_other_files_keeps_its_mode() {
        let (_parent, dir) = old();
        std::fs::write(dir.join("letter.txt"), "").expect("write");
        let notes = keep_private(&dir, false).expect("closed");
        assert!(notes[0].ends_with("has other files in it, and keeps the mode 0755"), "{notes:?}");
        assert_eq!((mode(&dir), mode(&dir.join("volumes")), mode(&dir.join("jobs.redb"))), (0o755, 0o700, 0o600));
        assert!(!is_own(&dir).expect("readable"));
    }

    #[test]
    fn only_the_operators_own_link_is_followed() {
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
