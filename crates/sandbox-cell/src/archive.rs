//! Files on their way into a cell: a flat stream of entries that init unpacks inside.
//!
//! The host never opens a path in a cell; it writes entries to a memory file and init, which is inside, makes the
//! files. An entry is a header (length-prefixed) and the file's bytes.

use std::fs::File;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::path::RelativePath;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Where it goes, below the working directory.
    pub path: RelativePath,
    /// Whether it may be executed.
    pub executable: bool,
    /// How many bytes follow.
    pub size: u64,
}

/// The longest header: a path of 1024 bytes and a few numbers.
const MAX_HEADER: usize = 1100;

/// Collects files for a cell.
#[derive(Debug)]
pub struct Archive {
    file: File,
    entries: usize,
}

impl Archive {
    /// An empty archive, kept in memory.
    pub fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("sandbox-files", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Self { file: File::from(fd), entries: 0 })
    }

    /// Adds a file. Its directories are made as needed.
    pub fn add(&mut self, path: RelativePath, executable: bool, content: &[u8]) -> io::Result<()> {
        let header = Header { path, executable, size: content.len() as u64 };
        let header = postcard::to_stdvec(&header).map_err(io::Error::other)?;
        let length = u16::try_from(header.len()).map_err(io::Error::other)?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&header)?;
        self.file.write_all(content)?;
        self.entries += 1;
        Ok(())
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The memory file, to be handed to init.
    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }
}

/// Reads the next header, or `None` at the end.
pub(crate) fn next_header(from: &mut impl Read) -> io::Result<Option<Header>> {
    let mut length = [0; 2];
    match from.read(&mut length)? {
        0 => return Ok(None),
        1 => from.read_exact(&mut length[1..])?,
        _ => {}
    }
    let length = usize::from(u16::from_le_bytes(length));
    if length > MAX_HEADER {
        return Err(io::Error::other("file header is too long"));
    }
    let mut header = vec![0; length];
    from.read_exact(&mut header)?;
    postcard::from_bytes(&header).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Seek;

    #[test]
    fn what_goes_in_comes_out() {
        let mut archive = Archive::new().expect("memfd");
        assert!(archive.is_empty());
        archive.add(RelativePath::new("main.py").expect("path"), false, b"print(1)").expect("add");
        archive.add(RelativePath::new("bin/tool").expect("path"), true, b"").expect("add");
        let mut file = archive.as_file().try_clone().expect("clone");
        file.rewind().expect("rewind");
        let first = next_header(&mut file).expect("read").expect("entry");
        assert_eq!((first.path.as_str(), first.executable, first.size), ("main.py", false, 8));
        let mut content = [0; 8];
        file.read_exact(&mut content).expect("content");
        assert_eq!(&content, b"print(1)");
        let second = next_header(&mut file).expect("read").expect("entry");
        assert_eq!((second.path.as_str(), second.executable, second.size), ("bin/tool", true, 0));
        assert_eq!(next_header(&mut file).expect("read"), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_never_climbs(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut from = bytes.as_slice();
            while let Ok(Some(header)) = next_header(&mut from) {
                prop_assert!(!header.path.as_str().contains(".."));
            }
        }
    }
}
