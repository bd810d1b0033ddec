//! A root that hides nothing, for cells from which the `mount` layer was left out: the host's own directories are at
//! their places in it, writable for whoever may write to them.
//!
//! Nothing is ever made in a directory of the host. Where the cell has something of its own below one, the host's
//! entries are shown one by one beside it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use sandbox_sys::mount::{Attributes, set_attributes};

use super::{Parts, attach, below_root, make_target};
use crate::spec::HOME_DIR;
use crate::step::{InitStep, StepError, at, named};

/// What a private root keeps out of sight.
const HIDDEN: [&str; 9] = ["/tmp", "/var/tmp", "/etc", "/root", "/home", "/opt", "/srv", "/run", "/dev/shm"];

/// The most entries of a directory that are shown one by one.
const MOST_ENTRIES: usize = 500;

pub(super) fn show_host(root: &OwnedFd, parts: &Parts<'_>) -> Result<(), StepError> {
    let own: Vec<&Path> = (parts.mounts.iter().map(|mount| mount.target.as_path()))
        .chain(parts.volumes.iter().map(|(volume, _)| volume.target.as_path()))
        .chain([Path::new(HOME_DIR)])
        .collect();
    for dir in HIDDEN.map(Path::new) {
        // Where it is a link on the host it leads to a directory that the cell has too.
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

/// Shows a directory or file with all that is mounted below it.
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
