//! Lock files: a process that uses a resource locks a file beside it. The kernel releases the lock when the process
//! ends.
//!
//! A process that holds the lock exclusively may remove and recreate the file. A lock on a file that is no longer found
//! under its name excludes no other process, so it is dropped and the file is opened again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with others that lock it in the same way.
    Shared,
    /// Exclusively.
    Exclusive,
}

/// Locks a file, which is created with this mode if it does not exist; waits for others.
pub fn lock(path: &Path, kind: LockKind, mode: u32) -> io::Result<File> {
    let how = match kind {
        LockKind::Shared => FlockOperation::LockShared,
        LockKind::Exclusive => FlockOperation::LockExclusive,
    };
    loop {
        let file = create(path, mode)?;
        flock(&file, how)?;
        if is_same(&file, path) {
            return Ok(file);
        }
    }
}

/// The same without waiting: `None` if another process holds a conflicting lock.
pub fn try_lock(path: &Path, kind: LockKind, mode: u32) -> io::Result<Option<File>> {
    try_lock_opened(path, kind, || create(path, mode))
}

/// The same for a file that must exist.
pub fn try_lock_existing(path: &Path, kind: LockKind) -> io::Result<Option<File>> {
    try_lock_opened(path, kind, || File::open(path))
}

/// Turns an exclusive lock into a shared one.
pub fn share(lock: &File) -> io::Result<()> {
    Ok(flock(lock, FlockOperation::LockShared)?)
}

fn try_lock_opened(path: &Path, kind: LockKind, open: impl Fn() -> io::Result<File>) -> io::Result<Option<File>> {
    let how = match kind {
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        let file = open()?;
        match flock(&file, how) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        if is_same(&file, path) {
            return Ok(Some(file));
        }
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(mode).open(path)
}

/// Whether an open file is still the one with this name.
fn is_same(file: &File, path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_exclude_each_other_until_their_file_is_closed() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("x.lock");
        assert!(try_lock_existing(&path, LockKind::Shared).is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
        let first = lock(&path, LockKind::Exclusive, 0o600).expect("locked");
        assert!(try_lock(&path, LockKind::Shared, 0o600).expect("tried").is_none());
        share(&first).expect("shared");
        let second = try_lock_existing(&path, LockKind::Shared).expect("tried").expect("shared");
        assert!(try_lock(&path, LockKind::Exclusive, 0o600).expect("tried").is_none());
        drop((first, second));
        assert!(try_lock(&path, LockKind::Exclusive, 0o600).expect("tried").is_some());
    }

    #[test]
    fn a_lock_on_a_replaced_file_is_dropped() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("x.lock");
        let _old = lock(&path, LockKind::Exclusive, 0o600).expect("locked");
        std::fs::remove_file(&path).expect("removed");
        assert!(try_lock(&path, LockKind::Exclusive, 0o600).expect("tried").is_some());
    }
}
