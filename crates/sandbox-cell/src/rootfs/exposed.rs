//! A root that hides nothing, for tests that disable the `mount` layer: the host's directories are at their usual
//! paths, with their usual permissions.
//!
//! Nothing is ever created in a host directory. Where the cell has a mount below one, the host's entries are mounted
//! individually beside it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use sandbox_sys::mount::{Attributes, set_attributes};

use super::{Parts, attach, below_root, make_target};
use crate::spec::HOME_DIR;
use crate::step::{InitStep, StepError, at, named};

/// Host directories that a private root hides.
const HIDDEN: [&str; 9] = ["/tmp", "/var/tmp", "/etc", "/root", "/home", "/opt", "/srv", "/run", "/dev/shm"];

/// The maximum number of directory entries that are mounted individually.
const MOST_ENTRIES: usize = 500;

pub(super) fn show_host(root: &OwnedFd, parts: &Parts<'_>) -> Result<(), StepError> {
    let own: Vec<&Path> = (parts.mounts.iter().map(|mount| mount.target.as_path()))
        .chain(parts.volumes.iter().map(|volume| volume.target.as_path()))
        .chain([Path::new(HOME_DIR)])
        .collect();
    for dir in HIDDEN.map(Path::new) {
        // A link on the host leads to a directory that the cell has too.
        if std::fs::symlink_metadata(dir).is_ok_and(|metadata| metadata.is_dir()) {
            show(root, dir, &own).map_err(at(InitStep::Show(named(dir))))?;
        }
    }
    Ok(())
}

fn show(root: &OwnedFd, host: &Path, own: &[&Path]) -> rustix::io::Result<()> {
    if own.contains(&host) {
        return Ok(());
    }
    if !own.iter().any(|own| own.starts_with(host)) {
        return bind(root, host);
    }
    make_target(root, below_root(host), true)?;
    let entries = std::fs::read_dir(host).into_iter().flatten().flatten().take(MOST_ENTRIES);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    for path in paths {
        match std::fs::read_link(&path) {
            Ok(target) => match rustix::fs::symlinkat(&target, root, below_root(&path)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            },
            Err(_) => show(root, &path, own)?,
        }
    }
    Ok(())
}

/// Mounts a directory or file with everything that is mounted below it.
fn bind(root: &OwnedFd, host: &Path) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, host, flags)?;
    set_attributes(tree.as_fd(), Attributes::NO_SUID.and(Attributes::NO_DEV), true)?;
    let target = below_root(host);
    if rustix::fs::statat(root, target, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        make_target(root, target, host.is_dir())?;
    }
    attach(&tree, root, target)
}
