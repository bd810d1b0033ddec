//! The archive format for files that enter and leave a cell: a flat stream of entries that init unpacks or writes
//! inside.
//!
//! The host never opens a path in a cell. For input it writes entries to a memory file, and init creates the files
//! inside the cell. For output init writes entries to a pipe, and the host reads them ([`read_all`]) like everything
//! from a cell: it trusts nothing, checks paths and bounds sizes.
//!
//! An entry is a length-prefixed header and, for a file, its bytes. A stream has several sections: the working
//! directory is the first, the cell's volumes follow.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use serde::{Deserialize, Serialize};

use sandbox_base::RelativePath;

/// An entry of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ArchiveEntry {
    /// The following entries belong to this section.
    Into(u8),
    /// A directory.
    Directory { path: RelativePath },
    /// A file; its bytes follow.
    File { path: RelativePath, executable: bool, size: u64 },
    /// A symbolic link. Only inputs and volumes have them; only programs in cells follow them.
    Link { path: RelativePath, target: String },
    /// A path that was left out.
    Omitted { path: String, why: Omission },
    /// The end of the output of a cell. A stream without it was truncated.
    End { omitted: u64 },
}

/// Why a path is missing from the output of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Omission {
    /// The maximum number of files was reached.
    TooMany,
    /// The file would exceed the maximum total size.
    TooLarge,
    /// The path is nested too deeply.
    TooDeep,
    /// It is a symbolic link, pipe, socket or device.
    NotAFile,
    /// The name is not UTF-8.
    BadName,
    /// It could not be opened: the program removed the read permission and init has no more rights than the program, or
    /// the file changed.
    Unreadable,
    /// The cell ended, or its time was up, before this file and the following ones were collected.
    NotCollected,
}

impl Omission {
    /// The reason as text.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::TooMany => "there are too many files",
            Self::TooLarge => "the files are too large together",
            Self::TooDeep => "it is nested too deep",
            Self::NotAFile => "it is not a regular file",
            Self::BadName => "its name is not UTF-8",
            Self::Unreadable => "the program made it unreadable",
            Self::NotCollected => "the cell ended before it was collected",
        }
    }
}

/// Limits on the output of a cell's working directory, or of one of its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCaps {
    /// The number of files.
    pub count: u64,
    /// The total size in bytes.
    pub bytes: u64,
}

impl FileCaps {
    /// Deducts a file of this size from the remaining allowance.
    fn take(&mut self, size: u64) -> io::Result<()> {
        match (self.count.checked_sub(1), self.bytes.checked_sub(size)) {
            (Some(count), Some(bytes)) => {
                *self = Self { count, bytes };
                Ok(())
            }
            _ => Err(io::Error::other("the output of the cell exceeds its limits")),
        }
    }
}

/// The maximum number of omissions that are listed by path.
pub const MOST_NAMED: usize = 100;

/// The maximum length of a header: two paths of 1024 bytes and a few numbers.
const MAX_HEADER: usize = 2100;

/// Builds the input archive of a cell.
#[derive(Debug)]
pub struct Archive {
    file: File,
    entries: usize,
}

impl Archive {
    /// Creates an empty archive in memory.
    pub fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("sandbox-files", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Self { file: File::from(fd), entries: 0 })
    }

    /// Adds a file. Its parent directories are created as needed.
    pub fn add(&mut self, path: RelativePath, executable: bool, content: &[u8]) -> io::Result<()> {
        self.entries += 1;
        write_entry(&mut self.file, &ArchiveEntry::File { path, executable, size: content.len() as u64 })?;
        self.file.write_all(content)
    }

    /// Adds a symbolic link, which only programs in the cell follow.
    pub fn add_link(&mut self, path: RelativePath, target: String) -> io::Result<()> {
        self.entries += 1;
        write_entry(&mut self.file, &ArchiveEntry::Link { path, target })
    }

    /// Adds a directory.
    pub fn add_directory(&mut self, path: RelativePath) -> io::Result<()> {
        self.entries += 1;
        write_entry(&mut self.file, &ArchiveEntry::Directory { path })
    }

    /// Adds the output of a volume ([`Sink::volume`]) to the cell's volume with this number, counted from 0.
    pub fn add_volume(&mut self, number: u8, content: &mut File) -> io::Result<()> {
        self.entries += 1;
        write_entry(&mut self.file, &ArchiveEntry::Into(number.saturating_add(1)))?;
        content.rewind()?;
        io::copy(content, &mut self.file)?;
        write_entry(&mut self.file, &ArchiveEntry::Into(0))
    }

    /// Adds a section of another archive.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.entries += 1;
        self.file.write_all(bytes)
    }

    /// Whether the archive is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The memory file: the content of a volume for [`Archive::add_volume`].
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// The memory file, to be passed to init.
    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }
}

/// Receives the output of a cell.
pub trait Sink {
    /// A file in the working directory. Unread bytes of `content` are discarded.
    fn file(&mut self, path: &RelativePath, executable: bool, size: u64, content: &mut dyn Read) -> io::Result<()>;

    /// A path that was left out.
    fn omitted(&mut self, path: &str, why: Omission);

    /// A part of a volume, by the volume's number. All parts together form the input of [`Archive::add_volume`].
    fn volume(&mut self, number: u8, part: &mut dyn Read) -> io::Result<()>;
}

/// The part of a stream that arrived.
#[derive(Debug, Default)]
pub struct Arrival {
    /// The number of omissions, listed or not.
    pub omitted: u64,
    /// Why the stream ended early, if it did. The sink has every file that arrived completely before that, and no
    /// partial file.
    pub cut: Option<io::Error>,
}

/// Reads the whole output of a cell. Init enforces the limits of the working directory and of each volume, so a stream
/// that exceeds them was not written by init, and reading stops. Any error in the stream truncates it; only the sink
/// can make this function fail.
pub fn read_all(
    from: &mut impl Read,
    files: FileCaps,
    volumes: &[FileCaps],
    sink: &mut dyn Sink,
) -> io::Result<Arrival> {
    let mut left: Vec<FileCaps> = [files].into_iter().chain(volumes.iter().copied()).collect();
    let mut arrival = Arrival::default();
    let mut place = 0_u8;
    while arrival.cut.is_none() {
        match next_entry(from).and_then(|entry| entry.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())) {
            Ok(ArchiveEntry::End { omitted }) => {
                arrival.omitted = omitted;
                return Ok(arrival);
            }
            Ok(ArchiveEntry::Into(number)) if usize::from(number) < left.len() => place = number,
            Ok(ArchiveEntry::Into(_)) => arrival.cut = Some(io::Error::other("the output names an unknown volume")),
            Ok(ArchiveEntry::Omitted { .. }) if arrival.omitted >= MOST_NAMED as u64 => {
                arrival.cut = Some(io::Error::other("the output lists too many omissions"));
            }
            Ok(ArchiveEntry::Omitted { path, why }) => {
                arrival.omitted += 1;
                sink.omitted(&path, why);
            }
            Ok(entry) => {
                let Some(left) = left.get_mut(usize::from(place)) else { break };
                arrival.cut = take_entry(from, &entry, place, left, sink)?.err();
            }
            Err(error) => arrival.cut = Some(error),
        }
    }
    Ok(arrival)
}

/// Passes an entry with its content to the sink. The inner result is the stream's, the outer one the sink's.
fn take_entry(
    from: &mut impl Read,
    entry: &ArchiveEntry,
    place: u8,
    left: &mut FileCaps,
    sink: &mut dyn Sink,
) -> io::Result<io::Result<()>> {
    let size = if let ArchiveEntry::File { size, .. } = entry { *size } else { 0 };
    // In the working directory only files count.
    let counts = place > 0 || matches!(entry, ArchiveEntry::File { .. });
    if counts && let Err(error) = left.take(size) {
        return Ok(Err(error));
    }
    let mut content = Content { from, left: size, broken: None };
    let taken = match (entry, place.checked_sub(1)) {
        (ArchiveEntry::File { path, executable, size }, None) => sink.file(path, *executable, *size, &mut content),
        (_, None) => Ok(()),
        (entry, Some(volume)) => {
            let mut header = vec![];
            write_entry(&mut header, entry)?;
            sink.volume(volume, &mut header.as_slice().chain(&mut content))
        }
    };
    // If the sink fails because the stream broke, the stream is at fault.
    if content.broken.is_none() {
        taken?;
        let _ = io::copy(&mut content, &mut io::sink());
    }
    Ok(content.broken.map_or(Ok(()), Err))
}

/// The content of an output file. It never ends early without an error, so that a part is never taken for the whole.
struct Content<'a, R> {
    from: &'a mut R,
    left: u64,
    /// Why it ended early.
    broken: Option<io::Error>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let kind = match self.from.read(&mut buffer[..most]) {
            Ok(0) => io::ErrorKind::UnexpectedEof,
            Ok(read) => {
                self.left -= read as u64;
                return Ok(read);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                let kind = error.kind();
                self.broken = Some(error);
                return Err(kind.into());
            }
        };
        self.broken = Some(kind.into());
        Err(kind.into())
    }
}

/// Reads to the end, which must match the announced size.
fn skip(content: &mut io::Take<impl Read>) -> io::Result<()> {
    io::copy(content, &mut io::sink())?;
    if content.limit() > 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// Receives the entries of a volume: path, for a file its executable flag and size, and the content.
pub type TakeEntry<'a> = dyn FnMut(&RelativePath, Option<(bool, u64)>, &mut dyn Read) -> io::Result<()> + 'a;

/// Lists the directories and files of a volume, without links, for export to the host.
pub fn read_volume(from: &mut impl Read, take: &mut TakeEntry<'_>) -> io::Result<()> {
    while let Some(entry) = next_entry(from)? {
        match entry {
            ArchiveEntry::Directory { path } => take(&path, None, &mut io::empty())?,
            ArchiveEntry::File { path, executable, size } => {
                let mut content = from.by_ref().take(size);
                take(&path, Some((executable, size)), &mut content)?;
                skip(&mut content)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes an entry's header.
pub(crate) fn write_entry(to: &mut impl Write, entry: &ArchiveEntry) -> io::Result<()> {
    let header = postcard::to_stdvec(entry).map_err(io::Error::other)?;
    let length = u16::try_from(header.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_le_bytes(), header.as_slice()].concat())
}

/// Reads the next entry's header, or `None` at the end.
pub(crate) fn next_entry(from: &mut (impl Read + ?Sized)) -> io::Result<Option<ArchiveEntry>> {
    let mut length = [0; 2];
    match from.read(&mut length)? {
        0 => return Ok(None),
        1 => from.read_exact(&mut length[1..])?,
        _ => {}
    }
    let length = usize::from(u16::from_le_bytes(length));
    if length > MAX_HEADER {
        return Err(io::Error::other("archive entry header is too long"));
    }
    let mut header = vec![0; length];
    from.read_exact(&mut header)?;
    postcard::from_bytes(&header).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(path: &str) -> RelativePath {
        RelativePath::new(path).expect("path")
    }

    #[test]
    fn an_archive_round_trips() {
        let mut archive = Archive::new().expect("memfd");
        assert!(archive.is_empty());
        archive.add(path("main.py"), false, b"print(1)").expect("add");
        archive.add(path("bin/tool"), true, b"").expect("add");
        archive.add_directory(path("empty")).expect("add");
        let mut file = archive.as_file().try_clone().expect("clone");
        file.rewind().expect("rewind");
        let first = next_entry(&mut file).expect("read");
        assert_eq!(first, Some(ArchiveEntry::File { path: path("main.py"), executable: false, size: 8 }));
        let mut content = [0; 8];
        file.read_exact(&mut content).expect("content");
        assert_eq!(&content, b"print(1)");
        let second = next_entry(&mut file).expect("read");
        assert_eq!(second, Some(ArchiveEntry::File { path: path("bin/tool"), executable: true, size: 0 }));
        assert_eq!(next_entry(&mut file).expect("read"), Some(ArchiveEntry::Directory { path: path("empty") }));
        assert_eq!(next_entry(&mut file).expect("read"), None);
    }

    #[derive(Default)]
    struct TakenFiles {
        files: Vec<(String, Vec<u8>)>,
        omitted: Vec<String>,
        volumes: Vec<Vec<u8>>,
    }

    impl Sink for TakenFiles {
        fn file(&mut self, path: &RelativePath, _: bool, _: u64, content: &mut dyn Read) -> io::Result<()> {
            let mut bytes = vec![];
            content.read_to_end(&mut bytes)?;
            self.files.push((path.as_str().to_owned(), bytes));
            Ok(())
        }

        fn omitted(&mut self, path: &str, _: Omission) {
            self.omitted.push(path.to_owned());
        }

        fn volume(&mut self, number: u8, part: &mut dyn Read) -> io::Result<()> {
            self.volumes.resize(usize::from(number) + 1, vec![]);
            part.read_to_end(&mut self.volumes[usize::from(number)]).map(drop)
        }
    }

    /// A stream as init writes it.
    fn stream() -> Vec<u8> {
        let mut bytes = vec![];
        let file = |name: &str, size| ArchiveEntry::File { path: path(name), executable: false, size };
        let entries = [
            (file("a", 3), &b"abc"[..]),
            (ArchiveEntry::Omitted { path: "link".into(), why: Omission::NotAFile }, b""),
            (ArchiveEntry::Into(1), b""),
            (ArchiveEntry::Directory { path: path("d") }, b""),
            (file("d/b", 2), b"xy"),
            (ArchiveEntry::Link { path: path("l"), target: "d/b".into() }, b""),
            (ArchiveEntry::End { omitted: 7 }, b""),
        ];
        for (entry, content) in entries {
            write_entry(&mut bytes, &entry).expect("write");
            bytes.extend_from_slice(content);
        }
        bytes
    }

    const CAPS: FileCaps = FileCaps { count: 3, bytes: 3 };

    #[test]
    fn volume_output_can_be_listed_and_added_to_an_archive() {
        let mut taken = TakenFiles::default();
        let arrival = read_all(&mut stream().as_slice(), CAPS, &[CAPS], &mut taken).expect("whole");
        assert_eq!((arrival.omitted, arrival.cut.is_none()), (7, true));
        assert_eq!(taken.files, [("a".to_owned(), b"abc".to_vec())]);
        assert_eq!(taken.omitted, ["link"]);
        let mut seen = vec![];
        read_volume(&mut taken.volumes[0].as_slice(), &mut |path, file, content| {
            let mut text = String::new();
            content.read_to_string(&mut text)?;
            seen.push((path.as_str().to_owned(), file.map(|(_, size)| size), text));
            Ok(())
        })
        .expect("read");
        assert_eq!(seen, [("d".into(), None, String::new()), ("d/b".into(), Some(2), "xy".into())]);
    }

    #[test]
    fn a_truncated_stream_yields_the_complete_files() {
        let whole = stream();
        // The header of the first file, and its content.
        let first = whole.windows(3).position(|part| part == b"abc").expect("content") + 3;
        for end in 0..whole.len() {
            let mut taken = TakenFiles::default();
            let arrival = read_all(&mut &whole[..end], CAPS, &[CAPS], &mut taken).expect("the sink does not fail");
            assert!(arrival.cut.is_some(), "{end}");
            assert_eq!(taken.files.len(), usize::from(end >= first), "{end}");
            assert_eq!(arrival.omitted, taken.omitted.len() as u64, "{end}");
        }
    }

    #[test]
    fn a_stream_that_exceeds_its_limits_is_truncated() {
        let whole = stream();
        let cut = |files, volumes: &[FileCaps]| {
            read_all(&mut whole.as_slice(), files, volumes, &mut TakenFiles::default()).expect("sink").cut
        };
        assert!(cut(FileCaps { count: 1, bytes: 3 }, &[FileCaps { count: 3, bytes: 2 }]).is_none());
        for (files, volume) in [((0, 3), (3, 2)), ((1, 2), (3, 2)), ((1, 3), (2, 2)), ((1, 3), (3, 1))] {
            let caps = |(count, bytes)| FileCaps { count, bytes };
            assert!(cut(caps(files), &[caps(volume)]).is_some(), "{files:?} {volume:?}");
        }
        assert!(cut(CAPS, &[]).is_some(), "a volume that the cell does not have");
        let mut bytes = vec![];
        for _ in 0..=MOST_NAMED {
            write_entry(&mut bytes, &ArchiveEntry::Omitted { path: "x".into(), why: Omission::TooDeep })
                .expect("write");
        }
        write_entry(&mut bytes, &ArchiveEntry::End { omitted: 0 }).expect("write");
        let arrival = read_all(&mut bytes.as_slice(), CAPS, &[], &mut TakenFiles::default()).expect("sink");
        assert!(arrival.cut.is_some() && arrival.omitted == MOST_NAMED as u64);
    }

    #[test]
    fn a_failing_sink_is_not_reported_as_a_broken_stream() {
        struct Full;
        impl Sink for Full {
            fn file(&mut self, _: &RelativePath, _: bool, _: u64, _: &mut dyn Read) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn omitted(&mut self, _: &str, _: Omission) {}
            fn volume(&mut self, _: u8, _: &mut dyn Read) -> io::Result<()> {
                Ok(())
            }
        }
        let error = read_all(&mut stream().as_slice(), CAPS, &[CAPS], &mut Full).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_never_climbs(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut taken = TakenFiles::default();
            let _ = read_all(&mut bytes.as_slice(), CAPS, &[CAPS], &mut taken);
            prop_assert!(taken.files.iter().all(|(path, _)| !path.contains("..")));
            let _ = read_volume(&mut bytes.as_slice(), &mut |_, _, _| Ok(()));
        }
    }
}
