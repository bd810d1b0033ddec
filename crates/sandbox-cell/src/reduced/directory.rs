//! Where a keeper makes the directories of its cells.
//!
//! It is one directory among the host's temporary files, locked as long as the keeper lives. A lock that can be had means
//! that its keeper is dead, also if that was in another container with the same temporary files.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid, flock};

use super::{CellLayout, clear};
use crate::spec::CellSpec;
use sandbox_base::random::random_token;

const PREFIX: &str = "sandbox-run-cells-";

/// How old a directory must be before its lock is tried: its keeper may just be about to take it.
const SWEEP_AGE: Duration = Duration::from_secs(10);

/// The directory in which a keeper's cells have theirs.
#[derive(Debug)]
pub(crate) struct CellsDirectory {
    path: PathBuf,
    dir: OwnedFd,
    /// Whether cells have users of their own, which have to come by.
    shared: bool,
}

impl CellsDirectory {
    /// Makes the directory and removes those that dead keepers have left.
    pub(crate) fn make(shared: bool) -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir().canonicalize()?, shared)
    }

    fn make_in(parent: &Path, shared: bool) -> io::Result<Self> {
        sweep(parent);
        let mode = if shared { 0o711 } else { 0o700 };
        for _ in 0..100 {
            let path = parent.join(format!("{PREFIX}{}", random_token::<8>()?));
            match std::fs::DirBuilder::new().mode(mode).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let dir = open(&path)?;
            flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
            // The umask may have taken something away.
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode))?;
            return Ok(Self { path, dir, shared });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Makes the directory of a cell, with its places.
    pub(crate) fn prepare(&self, number: u64, spec: &CellSpec, owner: Option<(u32, u32)>) -> io::Result<CellLayout> {
        let layout = CellLayout::new(self.path.join(number.to_string()), spec);
        let root = number.to_string();
        rustix::fs::mkdirat(&self.dir, &root, Mode::RWXU)?;
        let root = rustix::fs::openat(&self.dir, &root, DIRECTORY, Mode::empty())?;
        rustix::fs::fchmod(&root, Mode::from_raw_mode(if self.shared { 0o711 } else { 0o700 }))?;
        for place in layout.writable() {
            let Some(name) = place.file_name() else { continue };
            rustix::fs::mkdirat(&root, name, Mode::RWXU)?;
            rustix::fs::chmodat(&root, name, Mode::RWXU, AtFlags::empty())?;
            if let Some((uid, gid)) = owner {
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                rustix::fs::chownat(&root, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(layout)
    }

    /// Removes the directory of a cell, of which no process is left.
    pub(crate) fn remove(&self, number: u64) {
        let name = number.to_string();
        if let Ok(dir) = rustix::fs::openat(&self.dir, &name, DIRECTORY, Mode::empty()) {
            let _ = clear(dir.as_fd());
            let _ = rustix::fs::unlinkat(&self.dir, &name, AtFlags::REMOVEDIR);
        }
    }
}

impl Drop for CellsDirectory {
    fn drop(&mut self) {
        let _ = clear(self.dir.as_fd());
        let _ = std::fs::remove_dir(&self.path);
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
}

/// Removes what dead keepers of the same user have left.
fn sweep(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let old = |metadata: &std::fs::Metadata| {
            let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
            metadata.uid() == own && age.is_some_and(|age| age > SWEEP_AGE)
        };
        if is_ours
            && entry.metadata().is_ok_and(|metadata| old(&metadata))
            && let Ok(dir) = open(&entry.path())
            && rustix::fs::fstat(&dir).is_ok_and(|stat| stat.st_uid == own)
            && flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = clear(dir.as_fd());
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ground_goes_with_its_keeper_or_with_the_next() {
        let parent = tempfile::tempdir().expect("tempdir");
        let count = || std::fs::read_dir(parent.path()).expect("readable").count();
        let directory = CellsDirectory::make_in(parent.path(), false).expect("made");
        let layout = directory.prepare(7, &CellSpec::new(), None).expect("prepared");
        std::fs::write(layout.writable().next().expect("a place").join("file"), "x").expect("writable");
        std::fs::create_dir(parent.path().join("sandbox-run-cells-dead")).expect("mkdir");
        std::fs::write(parent.path().join("sandbox-run-cells-dead/file"), "x").expect("write");
        std::fs::create_dir(parent.path().join("other")).expect("mkdir");
        // Young ones stay.
        drop(CellsDirectory::make_in(parent.path(), false).expect("made"));
        assert_eq!(count(), 3);
        let old = std::time::SystemTime::now() - 2 * SWEEP_AGE;
        for entry in std::fs::read_dir(parent.path()).expect("readable").flatten() {
            std::fs::File::open(entry.path()).and_then(|dir| dir.set_modified(old)).expect("aged");
        }
        // Of the old ones, those whose keeper lives.
        drop(CellsDirectory::make_in(parent.path(), true).expect("made"));
        assert_eq!(count(), 2);
        directory.remove(7);
        assert!(!layout.root().exists());
        drop(directory);
        assert_eq!(count(), 1);
    }
}
