//! Applies one layer on top of the previous ones.
//!
//! A layer is a tar file: its entries replace existing ones, `.wh.NAME` removes NAME of the layers below, and
//! `.wh..wh..opq` removes everything that they have in a directory. Entries that a cell cannot use are left out:
//! devices, pipes, set-id bits, owners, extended attributes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, Timestamps};
use sandbox_base::wait::timespec;
use tar::{Archive, Entry, EntryType};

use crate::read::TOO_LARGE;
use crate::tree::{DirHandle, Tree, names};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The remaining allowance for unpacking, and the totals so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Files, directories and links that may still be created.
    pub(crate) entries: u64,
    /// Bytes that files may still have.
    pub(crate) bytes: u64,
    /// Entries that were left out.
    pub(crate) skipped: u64,
}

impl Tally {
    fn count(&mut self, size: u64) -> io::Result<()> {
        self.entries = self
            .entries
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("it exceeds the maximum number of files in an image"))?;
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| io::Error::other(TOO_LARGE))?;
        Ok(())
    }
}

/// Applies a layer to a tree.
pub(crate) fn apply<R: Read>(tree: &Tree, layer: R, tally: &mut Tally) -> io::Result<()> {
    let mut archive = Archive::new(layer);
    // The entries that this layer has created, to which its own whiteouts do not apply.
    let mut own = HashSet::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path_bytes().into_owned();
        put(tree, &mut entry, &path, &mut own, tally).map_err(|error| about(&path, &error))?;
    }
    Ok(())
}

fn about(path: &[u8], error: &io::Error) -> io::Error {
    let path: String = String::from_utf8_lossy(path).chars().take(100).collect();
    io::Error::other(format!("{path:?}: {}", sandbox_base::reason(error)))
}

fn put<R: Read>(
    tree: &Tree,
    entry: &mut Entry<'_, R>,
    path: &[u8],
    own: &mut HashSet<Vec<u8>>,
    tally: &mut Tally,
) -> io::Result<()> {
    let kind = entry.header().entry_type();
    if matches!(kind, EntryType::XGlobalHeader) {
        return Ok(());
    }
    let names = names(path)?;
    let Some((name, parents)) = names.split_last() else { return Ok(()) };
    tally.count(0)?;
    let place = tree.directory(parents, true)?;
    if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
        return white_out(&place, name, OsStr::from_bytes(hidden), own);
    }
    let mode = entry.header().mode().unwrap_or(0o755);
    match kind {
        EntryType::Directory => make_directory(&place, name, mode)?,
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => make_file(&place, name, entry, tally)?,
        EntryType::Symlink => {
            let target = entry.link_name_bytes().ok_or_else(|| io::Error::other("the link target does not exist"))?;
            place.remove(name, &|_| false)?;
            rustix::fs::symlinkat(&*target, place.fd(), *name)?;
        }
        EntryType::Link => {
            let target = entry.link_name_bytes().ok_or_else(|| io::Error::other("the link target does not exist"))?;
            make_link(tree, &place, name, &target)?;
        }
        // Devices, pipes and unknown types.
        _ => {
            tally.skipped += 1;
            return Ok(());
        }
    }
    remember(own, &place, name);
    Ok(())
}

fn remember(own: &mut HashSet<Vec<u8>>, place: &DirHandle, name: &OsStr) {
    let mut path = place.path_of(name);
    // The parent directories too, as far as they are not known.
    while own.insert(path.clone()) {
        let Some(end) = path.iter().rposition(|byte| *byte == b'/') else { return };
        path.truncate(end);
    }
}

fn white_out(place: &DirHandle, name: &OsStr, hidden: &OsStr, own: &HashSet<Vec<u8>>) -> io::Result<()> {
    let keep = |path: &[u8]| own.contains(path);
    match hidden.as_bytes() {
        _ if name.as_bytes() == OPAQUE => place.clear(&keep),
        b"" | b"." | b".." => Err(io::Error::other("a whiteout without a name")),
        // Metadata of an older union file system.
        hidden if hidden.starts_with(WHITEOUT) => Ok(()),
        _ => place.remove(hidden, &keep),
    }
}

fn make_directory(place: &DirHandle, name: &OsStr, mode: u32) -> io::Result<()> {
    match place.look(name)? {
        Some((FileType::Directory, _)) => {}
        Some(_) => {
            place.remove(name, &|_| false)?;
            rustix::fs::mkdirat(place.fd(), name, Mode::from_raw_mode(0o700))?;
        }
        None => rustix::fs::mkdirat(place.fd(), name, Mode::from_raw_mode(0o700))?,
    }
    // The owner of the store must be able to remove it again.
    let mode = Mode::from_raw_mode(mode & 0o1777 | 0o700);
    Ok(rustix::fs::fchmod(place.subdirectory(name)?.fd(), mode)?)
}

fn make_file<R: Read>(place: &DirHandle, name: &OsStr, entry: &mut Entry<'_, R>, tally: &mut Tally) -> io::Result<()> {
    let (size, mode) = (entry.size(), entry.header().mode().unwrap_or(0o644));
    // Before anything is written: a sparse file can claim any size.
    tally.bytes = tally.bytes.checked_sub(size).ok_or_else(|| io::Error::other(TOO_LARGE))?;
    let mut file = place.make_file(name)?;
    if io::copy(&mut entry.take(size), &mut file)? < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777 | 0o400))?;
    if let Ok(seconds) = entry.header().mtime() {
        let time = timespec(Duration::from_secs(seconds.min(1 << 40)));
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    }
    Ok(())
}

/// A hard link to an existing file, which is resolved inside the image whatever the path is.
fn make_link(tree: &Tree, place: &DirHandle, name: &OsStr, target: &[u8]) -> io::Result<()> {
    let target = names(target)?;
    let Some((file, parents)) = target.split_last() else {
        return Err(io::Error::other("the link target does not exist"));
    };
    let from = tree.directory(parents, false)?;
    match from.look(file)? {
        Some((FileType::RegularFile | FileType::Symlink, _)) => {}
        Some(_) => return Err(io::Error::other("the link target is not a file")),
        None => return Err(io::Error::other("the link target does not exist")),
    }
    if from.path_of(file) == place.path_of(name) {
        return Ok(());
    }
    place.remove(name, &|_| false)?;
    Ok(rustix::fs::linkat(from.fd().as_fd(), *file, place.fd().as_fd(), name, AtFlags::empty())?)
}

#[cfg(test)]
mod tests;
