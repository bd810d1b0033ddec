//! A directory tree in which untrusted paths are resolved without ever leaving it.
//!
//! The kernel is only asked for single names in open directories, and never follows a link. Links are resolved here:
//! `..` leads to the parent directory, at most to the root, and an absolute link starts at the root. So a path has the
//! meaning that it will have in the cell whose root this is, whatever else is on the host.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The maximum depth of a directory.
const MAX_DEPTH: usize = 128;

/// The maximum number of links that a path may lead through.
const MOST_LINKS: usize = 40;

/// The maximum length of a name in a directory.
const MAX_NAME: usize = 255;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A root.
pub(crate) struct Tree {
    root: Rc<OwnedFd>,
}

/// A directory in a tree, with its path.
#[derive(Clone)]
pub(crate) struct DirHandle {
    dirs: Vec<(OsString, Rc<OwnedFd>)>,
    root: Rc<OwnedFd>,
}

/// The components of a path, without empty ones and `.`. A path with `..` is refused.
pub(crate) fn names(path: &[u8]) -> io::Result<Vec<&OsStr>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let names: Vec<&OsStr> = parts.map(OsStr::from_bytes).collect();
    for name in &names {
        check_name(name).map_err(|why| {
            let path: String = String::from_utf8_lossy(path).chars().take(100).collect();
            io::Error::other(format!("the path {path:?} {why}"))
        })?;
    }
    Ok(names)
}

fn check_name(name: &OsStr) -> Result<(), &'static str> {
    match name.as_bytes() {
        b".." => Err("climbs"),
        name if name.contains(&0) => Err("has a NUL byte"),
        name if name.len() > MAX_NAME => Err("is too long"),
        _ => Ok(()),
    }
}

impl Tree {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root: Rc::new(root) }
    }

    /// The root itself.
    pub(crate) fn root(&self) -> DirHandle {
        DirHandle { dirs: vec![], root: Rc::clone(&self.root) }
    }

    /// The directory at a path; missing directories are created if requested.
    pub(crate) fn directory(&self, names: &[&OsStr], make: bool) -> io::Result<DirHandle> {
        let mut place = self.root();
        let mut ahead: VecDeque<OsString> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            match name.as_bytes() {
                b"" | b"." => continue,
                b".." => {
                    place.dirs.pop();
                    continue;
                }
                _ => {}
            }
            match place.enter(&name) {
                Ok(()) => continue,
                Err(Errno::NOENT) if make => {
                    rustix::fs::mkdirat(place.fd(), &name, Mode::from_raw_mode(0o755))?;
                    place.enter(&name)?;
                    continue;
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(errno.into()),
            }
            let target = match rustix::fs::readlinkat(place.fd(), &name, vec![]) {
                Ok(target) => target.into_bytes(),
                // Neither a directory nor a link.
                Err(Errno::INVAL) => return Err(Errno::NOTDIR.into()),
                Err(errno) => return Err(errno.into()),
            };
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            if target.starts_with(b"/") {
                place.dirs.clear();
            }
            for part in target.split(|byte| *byte == b'/').rev() {
                ahead.push_front(OsString::from_vec(part.to_vec()));
            }
        }
        Ok(place)
    }
}

impl DirHandle {
    pub(crate) fn fd(&self) -> &OwnedFd {
        self.dirs.last().map_or(&self.root, |(_, fd)| fd)
    }

    /// Its resolved path.
    pub(crate) fn path(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.dirs.iter().map(|(name, _)| name.as_bytes()).collect();
        names.join(&b'/')
    }

    /// The resolved path of an entry.
    pub(crate) fn path_of(&self, name: &OsStr) -> Vec<u8> {
        let mut path = self.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }

    fn enter(&mut self, name: &OsStr) -> rustix::io::Result<()> {
        if self.dirs.len() == MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let fd = rustix::fs::openat(self.fd(), name, DIRECTORY, Mode::empty())?;
        self.dirs.push((name.to_owned(), Rc::new(fd)));
        Ok(())
    }

    /// Opens a subdirectory, but not a link to one.
    pub(crate) fn subdirectory(&self, name: &OsStr) -> io::Result<Self> {
        let mut inner = self.clone();
        inner.enter(name)?;
        Ok(inner)
    }

    /// The metadata of an entry, if it exists.
    pub(crate) fn look(&self, name: &OsStr) -> io::Result<Option<(FileType, Stat)>> {
        match rustix::fs::statat(self.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((FileType::from_raw_mode(stat.st_mode), stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The names of its entries.
    pub(crate) fn entries(&self) -> io::Result<Vec<OsString>> {
        let mut names = vec![];
        for entry in Dir::read_from(self.fd())? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes an entry with its content, except what `keep` selects; directories that are not empty then stay.
    pub(crate) fn remove(&self, name: &OsStr, keep: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
        let Some((kind, _)) = self.look(name)? else { return Ok(()) };
        let kept = keep(&self.path_of(name));
        if kind != FileType::Directory {
            return if kept { Ok(()) } else { Ok(rustix::fs::unlinkat(self.fd(), name, AtFlags::empty())?) };
        }
        self.subdirectory(name)?.clear(keep)?;
        if kept {
            return Ok(());
        }
        match rustix::fs::unlinkat(self.fd(), name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Removes its content, except what `keep` selects.
    pub(crate) fn clear(&self, keep: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
        self.entries()?.iter().try_for_each(|name| self.remove(name, keep))
    }

    /// Creates a file in place of any entry with its name.
    pub(crate) fn make_file(&self, name: &OsStr) -> io::Result<std::fs::File> {
        self.remove(name, &|_| false)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.fd().as_fd(), name, flags, Mode::from_raw_mode(0o600))?;
        Ok(std::fs::File::from(file))
    }
}
