//! Removes the files that programs left, whatever they look like.
//!
//! No link is ever followed: a name is removed as it is, and only a directory that was just checked is opened. Every
//! process that could change it meanwhile is dead. There is no recursion: the content of a subdirectory is moved up, so
//! that the depth does not matter.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Removes everything in a directory, however long that takes. The directory itself stays.
pub(crate) fn clear(top: BorrowedFd<'_>) -> rustix::io::Result<()> {
    clear_some(top, usize::MAX).map(drop)
}

/// Removes the content of a directory if it is at most `most` names, and otherwise a part of it. Returns whether
/// everything is gone.
pub(crate) fn clear_some(top: BorrowedFd<'_>, most: usize) -> rustix::io::Result<bool> {
    let mut moved = 0_u64;
    let mut left = most;
    loop {
        let names = names(top, left)?;
        if names.is_empty() {
            return Ok(left > 0);
        }
        left -= names.len();
        for name in names {
            if !unlink(top, &name)? {
                let dir = enter(top, &name)?;
                let inner = self::names(dir.as_fd(), left)?;
                left -= inner.len();
                for inner in inner {
                    if !unlink(dir.as_fd(), &inner)? {
                        move_up(dir.as_fd(), &inner, top, &mut moved)?;
                    }
                }
                if left == 0 {
                    return Ok(false);
                }
                rustix::fs::unlinkat(top, &name, AtFlags::REMOVEDIR)?;
            }
        }
    }
}

/// The names in a directory, or the first `most` of them.
fn names(dir: BorrowedFd<'_>, most: usize) -> rustix::io::Result<Vec<CString>> {
    let mut names = vec![];
    for entry in Dir::read_from(dir)? {
        if names.len() == most {
            break;
        }
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// Removes a name, unless it is a directory.
fn unlink(dir: BorrowedFd<'_>, name: &CString) -> rustix::io::Result<bool> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory, even if its owner has removed all permissions.
fn enter(dir: BorrowedFd<'_>, name: &CString) -> rustix::io::Result<OwnedFd> {
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let open = || rustix::fs::openat(dir, name, DIRECTORY, Mode::empty());
    let opened = open();
    // Removing entries needs write permission too.
    let writable =
        rustix::fs::accessat(dir, name, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, AtFlags::empty());
    match (opened, writable) {
        (Ok(opened), Ok(())) => Ok(opened),
        (Err(errno), _) if errno != Errno::ACCESS => Err(errno),
        _ => {
            rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            open()
        }
    }
}

fn move_up(dir: BorrowedFd<'_>, name: &CString, top: BorrowedFd<'_>, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        match rustix::fs::renameat_with(dir, name, top, format!(".moved-{moved}"), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            // Moving a directory writes to it, because its parent entry changes.
            Err(Errno::ACCESS) => rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?,
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn everything_inside_is_removed_and_nothing_outside() {
        let outside = tempfile::tempdir().expect("tempdir");
        std::fs::write(outside.path().join("kept"), "x").expect("write");
        let dir = tempfile::tempdir().expect("tempdir");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).expect("mkdir");
        std::fs::write(at("a/b/file"), "x").expect("write");
        symlink(outside.path(), at("a/link")).expect("link");
        symlink(outside.path().join("kept"), at("a/b/c/link")).expect("link");
        std::fs::hard_link(outside.path().join("kept"), at("hard")).expect("link");
        std::fs::create_dir(at(".moved-1")).expect("mkdir");
        for closed in ["a/b/c", "a/b", "a"] {
            std::fs::set_permissions(at(closed), PermissionsExt::from_mode(0o0)).expect("chmod");
        }
        make_nested(&at("deep"), 400);
        let top = std::fs::File::open(dir.path()).expect("open");
        clear(top.as_fd()).expect("cleared");
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        assert_eq!(std::fs::read_to_string(outside.path().join("kept")).expect("still there"), "x");
    }

    #[test]
    fn a_large_directory_is_removed_in_parts() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("mkdir");
        for number in 0..10 {
            std::fs::write(dir.path().join(format!("a/b/{number}")), "x").expect("write");
        }
        let top = std::fs::File::open(dir.path()).expect("open");
        let mut turns = 1;
        while !clear_some(top.as_fd(), 4).expect("cleared in part") {
            turns += 1;
            assert!(turns < 20, "it does not terminate");
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        assert!(turns > 2, "{turns}");
        assert!(clear_some(top.as_fd(), 4).expect("it is empty"));
    }

    /// Nested directories, deeper than a path can express.
    fn make_nested(path: &Path, depth: usize) {
        std::fs::create_dir(path).expect("mkdir");
        let mut dir: OwnedFd = std::fs::File::open(path).expect("open").into();
        let name = "x".repeat(50);
        for _ in 0..depth {
            rustix::fs::mkdirat(&dir, &name, Mode::RWXU).expect("mkdir");
            dir = rustix::fs::openat(&dir, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("open");
        }
    }
}
