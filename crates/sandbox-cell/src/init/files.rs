//! Input and output files, handled inside the cell.
//!
//! Paths are resolved one component at a time without following links, because an earlier program of this cell may have
//! planted some. When files are collected every program is dead, so nothing changes meanwhile. Where a program may
//! survive, changed files are left out or end the stream. Memory for names is bounded, however many files there are,
//! because init lives under the memory limit of the program that created them.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid};
use rustix::io::Errno;

use super::InitParams;
use crate::archive::{ArchiveEntry, FileCaps, MOST_NAMED, Omission, next_entry, write_entry};
use crate::reduced::CellLayout;
use crate::spec::{Volume, WORK_DIR};
use sandbox_base::wait::timespec;
use sandbox_base::{MAX_DEPTH, MAX_LENGTH, RelativePath};

/// The stamp of an input file, which shows whether a program has changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    size: i64,
    modified: (i64, u64),
    mode: u32,
}

impl FileStamp {
    fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            mode: stat.st_mode,
        }
    }
}

/// The directories of a cell that hold input and output files.
pub(super) struct Files<'a> {
    volumes: &'a [Volume],
    /// Their location on the host, if the cell has no root file system.
    layout: Option<&'a CellLayout>,
    /// Their owner, if it is not init's user.
    owner: Option<(u32, u32)>,
    /// The input files that were created in the working directory.
    inputs: HashMap<String, FileStamp>,
}

impl<'a> Files<'a> {
    pub(super) fn new(params: &InitParams<'a>) -> Self {
        let (volumes, layout, owner) =
            (params.spec.volumes.as_slice(), params.environment.layout(), params.program_ids);
        Self { volumes, layout, owner, inputs: HashMap::new() }
    }

    /// Whether init has no more rights over files than programs have, and programs cannot change file modes.
    fn is_powerless(&self) -> bool {
        self.layout.is_some() && self.owner.is_none()
    }

    fn open_place(&self, number: u8) -> io::Result<OwnedFd> {
        let path = match number.checked_sub(1) {
            None => std::path::Path::new(WORK_DIR),
            Some(volume) => {
                let volume = self.volumes.get(usize::from(volume));
                &volume.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?.target
            }
        };
        let real = self.layout.and_then(|layout| layout.find(path));
        Ok(rustix::fs::openat(CWD, real.as_deref().unwrap_or(path), DIRECTORY, Mode::empty())?)
    }

    /// Unpacks an archive. Most are small, and are read in one piece.
    pub(super) fn unpack(&mut self, archive: OwnedFd) -> io::Result<()> {
        let mut archive = File::from(archive);
        let size = rustix::fs::fstat(&archive)?.st_size;
        match usize::try_from(size) {
            Ok(size) if size <= SMALL_ARCHIVE => {
                let mut bytes = vec![0; size];
                archive.read_exact_at(&mut bytes, 0)?;
                self.unpack_from(&mut bytes.as_slice())
            }
            _ => {
                archive.rewind()?;
                self.unpack_from(&mut archive)
            }
        }
    }

    fn unpack_from(&mut self, archive: &mut impl Read) -> io::Result<()> {
        let (mut place, mut number) = (self.open_place(0)?, 0);
        // Input files get an old timestamp, so that any change by a program shows.
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(ONE_SECOND);
        while let Some(entry) = next_entry(archive)? {
            match entry {
                ArchiveEntry::Into(other) => (place, number) = (self.open_place(other)?, other),
                ArchiveEntry::Directory { path } => drop(self.make_directories(&place, path.as_str().split('/'))?),
                ArchiveEntry::File { path, executable, size } => {
                    let mut content = archive.by_ref().take(size);
                    let stat = self.make_file(&place, &path, executable, &mut content, stamp)?;
                    if content.limit() > 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    if number == 0 {
                        self.inputs.insert(path.into(), FileStamp::of(&stat));
                    }
                }
                ArchiveEntry::Link { path, target } => {
                    let (parent, name) = self.parent(&place, &path)?;
                    let parent = parent.as_ref().unwrap_or(&place);
                    rustix::fs::symlinkat(&target, parent, name)?;
                    self.own(parent, name)?;
                    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    if number == 0 {
                        self.inputs.insert(path.into(), FileStamp::of(&stat));
                    }
                }
                ArchiveEntry::Omitted { .. } | ArchiveEntry::End { .. } => {}
            }
        }
        Ok(())
    }

    fn make_file(
        &self,
        place: &OwnedFd,
        path: &RelativePath,
        executable: bool,
        content: &mut impl Read,
        stamp: Duration,
    ) -> io::Result<Stat> {
        let (parent, name) = self.parent(place, path)?;
        let parent = parent.as_ref().unwrap_or(place);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let mut file = File::from(rustix::fs::openat(parent, name, flags, mode)?);
        self.own(parent, name)?;
        io::copy(content, &mut file)?;
        let time = timespec(stamp);
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        Ok(rustix::fs::fstat(&file)?)
    }

    /// Opens the parent directory of a path, creating it as needed; returns it with the last component. None if it is the
    /// place itself.
    fn parent<'p>(&self, place: &OwnedFd, path: &'p RelativePath) -> io::Result<(Option<OwnedFd>, &'p str)> {
        match path.as_str().rsplit_once('/') {
            Some((dirs, name)) => Ok((Some(self.make_directories(place, dirs.split('/'))?), name)),
            None => Ok((None, path.as_str())),
        }
    }

    fn make_directories<'p>(&self, place: &OwnedFd, parts: impl Iterator<Item = &'p str>) -> io::Result<OwnedFd> {
        let mut dir = rustix::fs::openat(place, c".", DIRECTORY, Mode::empty())?;
        for part in parts {
            match rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(0o755)) {
                Ok(()) => self.own(&dir, part)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            dir = rustix::fs::openat(&dir, part, DIRECTORY, Mode::empty())?;
        }
        Ok(dir)
    }

    fn own(&self, dir: &OwnedFd, name: &str) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Sends the output: everything in the volumes, which are bounded by their size, and new and changed files of the
    /// working directory, within the limits. Volumes come first because they matter more if time runs out.
    pub(super) fn collect(&self, caps: FileCaps, to: OwnedFd) -> io::Result<()> {
        let mut collector =
            Collector { files: self, to: buffered(to), left: caps, place: 0, named: 0, omitted: 0, room: NAMES };
        for (number, volume) in (1..).zip(self.volumes) {
            collector.place = number;
            collector.left = FileCaps { count: u64::MAX, bytes: volume.size };
            write_entry(&mut collector.to, &ArchiveEntry::Into(number))?;
            collector.directory(&self.open_place(number)?, "", 0)?;
        }
        if !self.volumes.is_empty() {
            (collector.place, collector.left) = (0, caps);
            write_entry(&mut collector.to, &ArchiveEntry::Into(0))?;
        }
        match self.open_place(0) {
            Ok(place) => collector.directory(&place, "", 0)?,
            Err(_) => collector.omit(".", Omission::Unreadable)?,
        }
        write_entry(&mut collector.to, &ArchiveEntry::End { omitted: collector.omitted })?;
        collector.to.flush()
    }
}

/// Entries and small files go out in one piece: each write may wake the reader.
fn buffered(to: OwnedFd) -> BufWriter<File> {
    BufWriter::with_capacity(SMALL, File::from(to))
}

/// Up to this size, a file is sent with what is before and after it.
const SMALL: usize = 4096;

/// Up to this size, an archive is read before it is unpacked.
const SMALL_ARCHIVE: usize = 64 << 10;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const ONE_SECOND: Duration = Duration::from_secs(1);

/// Sends output files.
struct Collector<'a> {
    files: &'a Files<'a>,
    to: BufWriter<File>,
    /// The remaining allowance.
    left: FileCaps,
    place: u8,
    named: usize,
    omitted: u64,
    /// The remaining memory for names.
    room: usize,
}

/// How many bytes of names are held at a time, across all directories of the current path: enough for the default
/// number of files, and far less than the memory that init gets for the collection.
const NAMES: usize = 8 << 20;

impl Collector<'_> {
    /// Sends everything in a directory, sorted by name. A directory whose names do not fit is sent in directory order,
    /// because sorting would require reading all of it before the first file is sent.
    fn directory(&mut self, dir: &OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        match names(dir, self.room) {
            Ok(Some((mut names, taken))) => {
                names.sort_unstable();
                self.room -= taken;
                names.iter().try_for_each(|name| self.entry(dir, name, path, depth))?;
                self.room += taken;
                Ok(())
            }
            Ok(None) => {
                let Ok(entries) = Dir::read_from(dir) else { return self.omit(path, Omission::Unreadable) };
                for entry in entries.flatten().filter(|entry| is_own(entry.file_name())) {
                    self.entry(dir, entry.file_name(), path, depth)?;
                }
                Ok(())
            }
            Err(_) => self.omit(path, Omission::Unreadable),
        }
    }

    fn entry(&mut self, dir: &OwnedFd, name: &CStr, path: &str, depth: usize) -> io::Result<()> {
        let lossy = format!("{path}{}", name.to_string_lossy());
        let Ok(name) = name.to_str() else { return self.omit(&lossy, Omission::BadName) };
        let Ok(relative) = RelativePath::new(lossy.clone()) else {
            let deep = depth >= MAX_DEPTH || lossy.len() > MAX_LENGTH;
            return self.omit(&lossy, if deep { Omission::TooDeep } else { Omission::BadName });
        };
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return self.omit(&lossy, Omission::Unreadable);
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                if self.place > 0 {
                    write_entry(&mut self.to, &ArchiveEntry::Directory { path: relative })?;
                }
                match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
                    Ok(inner) => self.directory(&inner, &format!("{lossy}/"), depth + 1),
                    Err(_) => self.omit(&lossy, Omission::Unreadable),
                }
            }
            FileType::RegularFile => self.file(dir.as_fd(), name, relative, &stat),
            FileType::Symlink if self.place > 0 => self.link(dir.as_fd(), name, relative),
            FileType::Symlink if self.is_input(&relative, &stat) => Ok(()),
            _ => self.omit(&lossy, Omission::NotAFile),
        }
    }

    /// Whether it is an input that no program has changed.
    fn is_input(&self, path: &RelativePath, stat: &Stat) -> bool {
        self.place == 0 && self.files.inputs.get(path.as_str()) == Some(&FileStamp::of(stat))
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &str, path: RelativePath, stat: &Stat) -> io::Result<()> {
        if self.is_input(&path, stat) {
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if self.left.count == 0 {
            return self.omit(path.as_str(), Omission::TooMany);
        }
        if size > self.left.bytes {
            return self.omit(path.as_str(), Omission::TooLarge);
        }
        // If the file was replaced by a pipe meanwhile, opening it must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Ok(file) if rustix::fs::fstat(&file).is_ok_and(|now| FileStamp::of(&now) == FileStamp::of(stat)) => {
                File::from(file)
            }
            _ => return self.omit(path.as_str(), Omission::Unreadable),
        };
        self.left.count -= 1;
        self.left.bytes -= size;
        // Where programs cannot change modes, linkers cannot mark their output executable.
        let program = self.files.is_powerless() && is_program(&file);
        write_entry(
            &mut self.to,
            &ArchiveEntry::File { path, executable: program || stat.st_mode & 0o111 != 0, size },
        )?;
        // If the file shrinks from here on, the announced size is wrong: the stream ends, and the reader notices.
        let mut content = file.take(size);
        let copied = if size <= SMALL as u64 {
            let mut bytes = Vec::with_capacity(SMALL);
            content.read_to_end(&mut bytes)?;
            self.to.write_all(&bytes)?;
            bytes.len() as u64
        } else {
            io::copy(&mut content, &mut self.to)?
        };
        if copied == size { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn link(&mut self, dir: BorrowedFd<'_>, name: &str, path: RelativePath) -> io::Result<()> {
        let target = rustix::fs::readlinkat(dir, name, vec![]).ok().and_then(|target| target.into_string().ok());
        match target {
            Some(target) if target.len() <= 1024 => write_entry(&mut self.to, &ArchiveEntry::Link { path, target }),
            _ => self.omit(path.as_str(), Omission::BadName),
        }
    }

    fn omit(&mut self, path: &str, why: Omission) -> io::Result<()> {
        self.omitted += 1;
        if self.named == MOST_NAMED {
            return Ok(());
        }
        self.named += 1;
        let path = path.chars().take(250).collect();
        write_entry(&mut self.to, &ArchiveEntry::Omitted { path, why })
    }
}

/// The names in a directory and the memory they take, if it does not exceed `room`.
fn names(dir: &OwnedFd, room: usize) -> rustix::io::Result<Option<(Vec<CString>, usize)>> {
    let (mut names, mut taken) = (vec![], 0);
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !is_own(entry.file_name()) {
            continue;
        }
        taken += entry.file_name().count_bytes() + 2 * size_of::<CString>();
        if taken > room {
            return Ok(None);
        }
        names.push(entry.file_name().to_owned());
    }
    Ok(Some((names, taken)))
}

/// Whether a name is an entry of the directory, and not `.` or `..`.
fn is_own(name: &CStr) -> bool {
    !matches!(name.to_bytes(), b"." | b"..")
}

/// Whether a file is an ELF program.
fn is_program(file: &File) -> bool {
    let mut start = [0; 4];
    file.read_at(&mut start, 0).is_ok_and(|read| read == start.len()) && start == *b"\x7fELF"
}

/// The maximum number of files visited to find one of a given size.
const MOST_VISITED: usize = 50_000;

/// Whether one of the writable directories holds a regular file of exactly this size.
pub(super) fn any_of_size(params: &InitParams<'_>, size: u64) -> bool {
    let mut dirs: Vec<std::path::PathBuf> = match params.environment.layout() {
        None => crate::rootfs::writable_dirs().iter().map(std::path::PathBuf::from).collect(),
        Some(layout) => layout.writable().map(std::path::PathBuf::from).collect(),
    };
    let top = dirs.iter().map(|dir| dir.components().count()).max().unwrap_or(0);
    let mut visited = 0;
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            visited += 1;
            if visited > MOST_VISITED {
                return false;
            }
            // `metadata` does not follow links.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && metadata.len() == size {
                return true;
            }
            // As deep as input paths may go; a program can create deeper directories than a path can express.
            if metadata.is_dir() && dir.components().count() < top + sandbox_base::MAX_DEPTH {
                dirs.push(entry.path());
            }
        }
    }
    false
}
