//! Making the input files, from inside the cell.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, openat2};

use crate::archive::{Header, next_header};
use crate::spec::WORK_DIR;

/// Links planted by an earlier program of this cell are not followed, and nothing outside is reached.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Unpacks an archive into the working directory; everything belongs to `owner` if that differs from init.
pub(super) fn unpack(archive: OwnedFd, owner: Option<(u32, u32)>) -> io::Result<()> {
    let mut archive = File::from(archive);
    archive.rewind()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, WORK_DIR, flags, Mode::empty())?;
    while let Some(header) = next_header(&mut archive)? {
        make_file(&root, &header, &mut archive, owner)?;
    }
    Ok(())
}

fn make_file(root: &OwnedFd, header: &Header, archive: &mut File, owner: Option<(u32, u32)>) -> io::Result<()> {
    for dir in header.path.parents() {
        match make_dir(root, dir, owner) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = if header.executable { 0o755 } else { 0o644 };
    let file = openat2(root, header.path.as_str(), flags, Mode::from_raw_mode(mode), INSIDE)?;
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    let copied = io::copy(&mut archive.take(header.size), &mut File::from(file))?;
    if copied != header.size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn make_dir(root: &OwnedFd, path: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(root, parent, flags, Mode::empty(), INSIDE)?;
    rustix::fs::mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o755))?;
    if let Some((uid, gid)) = owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::fs::chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// The most files that are looked at to find one of a given size.
const MOST_VISITED: usize = 50_000;

/// Whether one of the writable directories holds a regular file of exactly this size.
pub(super) fn any_of_size(size: u64) -> bool {
    let mut dirs: Vec<std::path::PathBuf> =
        crate::rootfs::writable_dirs().iter().map(std::path::PathBuf::from).collect();
    let mut visited = 0;
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            visited += 1;
            if visited > MOST_VISITED {
                return false;
            }
            // Does not follow links.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && metadata.len() == size {
                return true;
            }
            // As deep as input paths may go; a program can nest deeper than a path can say.
            if metadata.is_dir() && dir.components().count() < crate::path::MAX_DEPTH {
                dirs.push(entry.path());
            }
        }
    }
    false
}
