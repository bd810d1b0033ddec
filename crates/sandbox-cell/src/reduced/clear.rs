//! Removing what programs have left, whatever it looks like.
//!
//! Nothing is ever followed: a name is removed as what it is, and only what has just been found to be a directory is entered.
//! Every process that could change that meanwhile is dead. Directories are not descended into; what is in them is moved
//! up, so that it does not matter how deep they are.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Removes everything in a directory, however long that takes. The directory itself stays.
pub(crate) fn clear(top: BorrowedFd<'_>) -> rustix::io::Result<()> {
    clear_some(top, usize::MAX).map(drop)
}

/// Removes what is in a directory if that is at most `most` names, and otherwise a part of it. Returns whether everything
/// is gone.
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

/// Removes a name, unless it is a directory's.
fn unlink(dir: BorrowedFd<'_>, name: &CString) -> rustix::io::Result<bool> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory, which its owner may have closed to everybody.
fn enter(dir: BorrowedFd<'_>, name: &CString) -> rustix::io::Result<OwnedFd> {
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let open = || rustix::fs::openat(dir, name, DIRECTORY, Mode::empty());
    let opened = open();
    // Of one that may be read, nothing can be removed unless it may be written to as well.
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
            // A directory that moves is written to: it has another parent then.
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
    fn everything_goes_and_nothing_else() {
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
    fn a_part_is_removed_at_a_time() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("mkdir");
        for number in 0..10 {
            std::fs::write(dir.path().join(format!("a/b/{number}")), "x").expect("write");
        }
        let top = std::fs::File::open(dir.path()).expect("open");
        let mut turns = 1;
        while !clear_some(top.as_fd(), 4).expect("cleared in part") {
            turns += 1;
            assert!(turns < 20, "it does not come to an end");
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        assert!(turns > 2, "{turns}");
        assert!(clear_some(top.as_fd(), 4).expect("nothing is there"));
    }

    /// Directories within directories, deeper than a path can say.
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
