//! Measures a directory that programs may be writing to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The maximum depth. Deeper directories count as hidden.
const DEEPEST: usize = 128;

/// The content of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Measured {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Files and directories.
    pub(crate) inodes: u64,
    /// Whether part of it could not be read: too deep, or without permissions.
    pub(crate) hidden: bool,
}

/// Measures everything below a directory, but stops at this bound.
pub(crate) fn measure(top: BorrowedFd<'_>, most_bytes: u64, most_inodes: u64) -> Measured {
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut measured = Measured::default();
    let Ok(first) = open(top) else { return measured };
    let mut stack = vec![first];
    while let Some((fd, entries)) = stack.last_mut() {
        let Some(entry) = entries.next() else {
            stack.pop();
            continue;
        };
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // It has just vanished.
        let Ok(stat) = rustix::fs::statat(&*fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        measured.inodes += 1;
        measured.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        if measured.bytes > most_bytes || measured.inodes > most_inodes {
            return measured;
        }
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let opened = rustix::fs::openat(&*fd, name, DIRECTORY, Mode::empty());
            match opened.and_then(|dir| open(dir.as_fd())) {
                Ok(dir) if stack.len() < DEEPEST => stack.push(dir),
                Ok(_) | Err(Errno::ACCESS) => measured.hidden = true,
                Err(_) => {}
            }
        }
    }
    measured
}

fn open(dir: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, Dir)> {
    let entries = Dir::read_from(dir)?;
    Ok((rustix::io::fcntl_dupfd_cloexec(dir, 3)?, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_links_not_followed() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("mkdir");
        std::fs::write(dir.path().join("a/b/file"), vec![1; 100_000]).expect("write");
        std::os::unix::fs::symlink("/usr", dir.path().join("a/link")).expect("link");
        let top = std::fs::File::open(dir.path()).expect("open");
        let measured = measure(top.as_fd(), u64::MAX, u64::MAX);
        assert_eq!((measured.inodes, measured.hidden), (4, false));
        assert!((100_000..200_000).contains(&measured.bytes), "{measured:?}");
        assert!(measure(top.as_fd(), 10, u64::MAX).bytes > 10);
        assert_eq!(measure(top.as_fd(), u64::MAX, 2).inodes, 3);
    }

    #[test]
    fn directories_that_are_too_deep_are_reported() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join(vec!["d"; DEEPEST + 1].join("/"))).expect("mkdir");
        let top = std::fs::File::open(dir.path()).expect("open");
        assert!(measure(top.as_fd(), u64::MAX, u64::MAX).hidden);
    }
}
