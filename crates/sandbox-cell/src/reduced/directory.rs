//! The directories of a keeper's cells without namespaces.
//!
//! They are in one directory among the host's temporary files, locked while the keeper lives. If the lock is free, the
//! keeper is dead, even if it ran in another container that shares the temporary files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid, flock};

use super::CellLayout;
use super::clear::{clear, clear_some};
use crate::spec::CellSpec;
use sandbox_base::random::random_token;

const PREFIX: &str = "sandbox-run-cells-";

/// The age of a directory before its lock is tried, because a new keeper may not have taken it yet.
pub(crate) const SWEEP_AGE: Duration = Duration::from_secs(10);

/// The maximum number of names that the keeper removes itself.
const SMALL: usize = 64;

/// The directory that contains those of a keeper's cells.
#[derive(Debug)]
pub(crate) struct CellsDirectory {
    path: PathBuf,
    dir: OwnedFd,
    /// Whether cells have dedicated users, who must be able to traverse it.
    shared: bool,
}

impl CellsDirectory {
    /// Creates the directory.
    pub(crate) fn make(shared: bool) -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir().canonicalize()?, shared)
    }

    fn make_in(parent: &Path, shared: bool) -> io::Result<Self> {
        let mode = if shared { 0o711 } else { 0o700 };
        for _ in 0..100 {
            let path = parent.join(format!("{PREFIX}{}", random_token::<8>()?));
            match std::fs::DirBuilder::new().mode(mode).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let dir = open(&path)?;
            flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
            // The umask may have cleared permission bits.
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode))?;
            return Ok(Self { path, dir, shared });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Creates the directory of a cell, with its subdirectories.
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

    /// Removes the directory of a cell without processes, however long that takes.
    pub(crate) fn remove(&self, number: u64) {
        self.remove_with(number, |dir| clear(dir).is_ok());
    }

    /// Removes it if it holds little, as is usual, because init has cleared it. Returns whether nothing is left to do.
    pub(crate) fn remove_if_small(&self, number: u64) -> bool {
        // If a removal fails now, another attempt would fail too.
        self.remove_with(number, |dir| clear_some(dir, SMALL).unwrap_or(true))
    }

    fn remove_with(&self, number: u64, clear: impl FnOnce(BorrowedFd<'_>) -> bool) -> bool {
        let name = number.to_string();
        let Ok(dir) = rustix::fs::openat(&self.dir, &name, DIRECTORY, Mode::empty()) else { return true };
        let cleared = clear(dir.as_fd());
        if cleared {
            let _ = rustix::fs::unlinkat(&self.dir, &name, AtFlags::REMOVEDIR);
        }
        cleared
    }
}

impl AsFd for CellsDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
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

/// The directory of a dead keeper. It is locked, so that no other keeper removes it too.
pub(crate) struct AbandonedDirectory {
    path: PathBuf,
    dir: OwnedFd,
}

impl AbandonedDirectory {
    /// Finds the directories of dead keepers of the same user.
    pub(crate) fn find() -> Vec<Self> {
        Self::find_in(&std::env::temp_dir())
    }

    fn find_in(parent: &Path) -> Vec<Self> {
        let own = rustix::process::geteuid().as_raw();
        let is_old = |metadata: &std::fs::Metadata| {
            let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
            metadata.uid() == own && age.is_some_and(|age| age > SWEEP_AGE)
        };
        let lock = |entry: std::fs::DirEntry| {
            let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if !is_ours || !entry.metadata().is_ok_and(|metadata| is_old(&metadata)) {
                return None;
            }
            let path = entry.path();
            let dir = open(&path).ok().filter(|dir| rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_uid == own))?;
            flock(&dir, FlockOperation::NonBlockingLockExclusive).ok()?;
            Some(Self { path, dir })
        };
        std::fs::read_dir(parent).into_iter().flatten().flatten().filter_map(lock).collect()
    }

    /// Removes it with its content, however long that takes.
    pub(crate) fn remove(&self) {
        let _ = clear(self.dir.as_fd());
        let _ = std::fs::remove_dir(&self.path);
    }
}

impl AsFd for AbandonedDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_by_its_keeper_or_by_the_next() {
        let parent = tempfile::tempdir().expect("tempdir");
        let count = || std::fs::read_dir(parent.path()).expect("readable").count();
        let directory = CellsDirectory::make_in(parent.path(), false).expect("made");
        let layout = directory.prepare(7, &CellSpec::new(), None).expect("prepared");
        std::fs::write(layout.writable().next().expect("a place").join("file"), "x").expect("writable");
        std::fs::create_dir(parent.path().join("sandbox-run-cells-dead")).expect("mkdir");
        std::fs::write(parent.path().join("sandbox-run-cells-dead/file"), "x").expect("write");
        std::fs::create_dir(parent.path().join("other")).expect("mkdir");
        // Recent directories stay.
        AbandonedDirectory::find_in(parent.path()).iter().for_each(AbandonedDirectory::remove);
        assert_eq!(count(), 3);
        let old = std::time::SystemTime::now() - 2 * SWEEP_AGE;
        for entry in std::fs::read_dir(parent.path()).expect("readable").flatten() {
            std::fs::File::open(entry.path()).and_then(|dir| dir.set_modified(old)).expect("aged");
        }
        // Of the old ones, those with a live keeper stay.
        AbandonedDirectory::find_in(parent.path()).iter().for_each(AbandonedDirectory::remove);
        assert_eq!(count(), 2);
        assert!(directory.remove_if_small(7));
        assert!(!layout.root().exists());
        let layout = directory.prepare(8, &CellSpec::new(), None).expect("prepared");
        let place = layout.writable().next().expect("a place");
        (0..SMALL).for_each(|number| std::fs::write(place.join(number.to_string()), "x").expect("writable"));
        assert!(!directory.remove_if_small(8));
        directory.remove(8);
        assert!(!layout.root().exists());
        drop(directory);
        assert_eq!(count(), 1);
    }
}
