//! The root of a cell that uses an image instead of system directories of the host.
//!
//! An image contains untrusted links, so no part of it may be mounted when the targets of the cell's mounts are
//! resolved: mounts and volumes come first, into a root without links. The image's entries are then mounted around
//! them, each opened by its single name without following links. Where the cell has a mount below a directory of the
//! image, that directory's entries are mounted individually.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use sandbox_sys::mount::{Attributes, set_attributes};

use super::{Parts, STAGING, WRITABLE, attach, below_root, make_target};
use crate::step::{InitStep, StepError, named};

/// Entries of an image's root that are never mounted: the cell has its own, or none.
const HIDDEN: [&str; 5] = ["dev", "proc", "sys", "run", STAGING];

/// The maximum number of directory entries that are mounted individually.
const MOST_ENTRIES: usize = 500;

/// Mounts an image around the existing entries of the root.
pub(super) fn show_image(root: &OwnedFd, image: &Path, parts: &Parts<'_>) -> Result<(), StepError> {
    let opening = |errno| StepError::new(InitStep::OpenImage(named(image)), errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let image = rustix::fs::openat2(CWD, image, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(opening)?;
    let own: Vec<PathBuf> = (parts.mounts.iter().map(|mount| below_root(&mount.target)))
        .chain(parts.volumes.iter().map(|volume| below_root(&volume.target)))
        .chain(WRITABLE.iter().map(|(_, target, _)| Path::new(*target)))
        .chain(HIDDEN.iter().map(Path::new))
        .map(Path::to_owned)
        .collect();
    show_entries(root, &image, Path::new(""), &own)
}

fn show_entries(root: &OwnedFd, dir: &OwnedFd, path: &Path, own: &[PathBuf]) -> Result<(), StepError> {
    let failed = |errno| StepError::new(InitStep::ShowImageEntry(format!("/{}", named(path))), errno);
    let mut names = vec![];
    for entry in Dir::read_from(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    if names.len() > MOST_ENTRIES {
        return Err(failed(Errno::TOOBIG));
    }
    names.sort_unstable();
    for name in names {
        let name = OsStr::from_bytes(name.to_bytes());
        show_entry(root, dir, name, &path.join(name), own)?;
    }
    Ok(())
}

fn show_entry(root: &OwnedFd, dir: &OwnedFd, name: &OsStr, path: &Path, own: &[PathBuf]) -> Result<(), StepError> {
    let failed = |errno| StepError::new(InitStep::ShowImageEntry(format!("/{}", named(path))), errno);
    if own.iter().any(|own| own == path) {
        return Ok(());
    }
    let shared = own.iter().any(|own| own.starts_with(path));
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        // The cell's mounts take precedence over entries of the image.
        kind if shared && kind != FileType::Directory => Ok(()),
        FileType::Directory if shared => {
            make_target(root, path, true).map_err(failed)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(failed)?;
            show_entries(root, &inner, path, own)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, vec![]).map_err(failed)?;
            rustix::fs::symlinkat(&target, root, path).map_err(failed)
        }
        FileType::Directory => bind(root, dir, name, path, true).map_err(failed),
        FileType::RegularFile => bind(root, dir, name, path, false).map_err(failed),
        _ => Ok(()),
    }
}

/// Mounts an entry that is not a link, with everything below it. Its parent directories belong to the cell's root.
fn bind(root: &OwnedFd, dir: &OwnedFd, name: &OsStr, path: &Path, is_dir: bool) -> rustix::io::Result<()> {
    let entry = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(&entry, c"", clone | OpenTreeFlags::AT_EMPTY_PATH)?;
    let sealed = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV);
    set_attributes(tree.as_fd(), sealed, false)?;
    make_target(root, path, is_dir)?;
    attach(&tree, root, path)
}
