//! Zip archives: what common tools write. Encrypted archives, Zip64 and compression other than deflate are refused.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use flate2::CrcReader;
use flate2::read::DeflateDecoder;
use sandbox_base::reason;

use super::{ArchiveReader, is_link};

/// The record at the end, which a comment of up to 64 KiB may follow.
const END_SIGNATURE: &[u8] = b"PK\x05\x06";
const END_SIZE: usize = 22;
/// The entries of the directory of contents.
const ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const ENTRY_SIZE: usize = 46;
/// The header before the content of a file.
const FILE_SIGNATURE: &[u8] = b"PK\x03\x04";
const FILE_SIZE: usize = 30;

/// The maximum size of the directory of contents.
const MAX_DIRECTORY: u64 = 64 << 20;

/// An entry of the directory of contents.
struct ZipEntry<'a> {
    name: &'a [u8],
    is_encrypted: bool,
    method: u16,
    checksum: u32,
    compressed: u64,
    size: u64,
    /// The mode, if the archive was written on a system with modes.
    mode: u32,
    /// Where the header of its content is.
    at: u64,
}

/// Reads the files of an archive.
pub(super) fn read(file: &File, reader: &mut ArchiveReader) -> Result<(), String> {
    let directory = read_directory(file)?;
    let mut rest = directory.as_slice();
    while !rest.is_empty() {
        let (entry, after) = parse_entry(rest).ok_or_else(damaged)?;
        rest = after;
        let shown = String::from_utf8_lossy(entry.name);
        if entry.mode & 0o170_000 == 0o120_000 {
            return Err(is_link(entry.name));
        }
        if entry.name.ends_with(b"/") {
            continue;
        }
        if entry.is_encrypted {
            return Err(format!("'{shown}' is encrypted"));
        }
        let content = content(file, &entry)?;
        let is_executable = entry.mode & 0o100 != 0;
        let (name, size) = (entry.name, entry.size);
        let mut checked: CrcReader<Box<dyn Read>> = match entry.method {
            0 if entry.compressed == size => CrcReader::new(Box::new(content)),
            8 => CrcReader::new(Box::new(DeflateDecoder::new(content))),
            _ => return Err(format!("'{shown}' is compressed with an unsupported method")),
        };
        reader.add(name, is_executable, size, &mut checked)?;
        if checked.crc().sum() != entry.checksum {
            return Err(format!("invalid archive: the checksum of '{shown}' does not match"));
        }
    }
    Ok(())
}

/// Reads the directory of contents, which the record at the end locates.
fn read_directory(file: &File) -> Result<Vec<u8>, String> {
    let length = file.metadata().map_err(|error| reason(&error))?.len();
    let start = length.saturating_sub((END_SIZE + usize::from(u16::MAX)) as u64);
    let tail = read_at(file, start, length - start)?;
    let is_end = |at: &usize| {
        let record = &tail[*at..];
        record.starts_with(END_SIGNATURE)
            && number(record, 20, 2).is_some_and(|comment| comment == (record.len() - END_SIZE) as u64)
    };
    let at = (0..(tail.len() + 1).saturating_sub(END_SIZE)).rev().find(is_end).ok_or_else(damaged)?;
    let field = |at: usize, width: usize| number(&tail, at, width).ok_or_else(damaged);
    let (size, offset, end) = (field(at + 12, 4)?, field(at + 16, 4)?, start + at as u64);
    if offset == u64::from(u32::MAX) {
        return Err("it is a Zip64 archive, which is not supported; use .tar.gz".to_owned());
    }
    if size > MAX_DIRECTORY || offset + size > end {
        return Err(damaged());
    }
    read_at(file, offset, size)
}

/// The first entry of the directory of contents, and what follows it.
fn parse_entry(bytes: &[u8]) -> Option<(ZipEntry<'_>, &[u8])> {
    let field = |at: usize, width: usize| number(bytes, at, width);
    let length = |at: usize| usize::try_from(field(at, 2)?).ok();
    if !bytes.starts_with(ENTRY_SIGNATURE) || bytes.len() < ENTRY_SIZE {
        return None;
    }
    let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
    let is_unix = field(4, 2)? >> 8 == 3;
    let entry = ZipEntry {
        name: bytes.get(ENTRY_SIZE..ENTRY_SIZE + name)?,
        is_encrypted: field(8, 2)? & 1 != 0,
        method: u16::try_from(field(10, 2)?).ok()?,
        checksum: u32::try_from(field(16, 4)?).ok()?,
        compressed: field(20, 4)?,
        size: field(24, 4)?,
        mode: if is_unix { u32::try_from(field(38, 4)? >> 16).ok()? } else { 0 },
        at: field(42, 4)?,
    };
    Some((entry, bytes.get(ENTRY_SIZE + name + extra + comment..)?))
}

/// The compressed content of a file.
fn content(file: &File, entry: &ZipEntry<'_>) -> Result<impl Read + use<>, String> {
    let header = read_at(file, entry.at, FILE_SIZE as u64)?;
    let field = |at: usize| number(&header, at, 2).filter(|_| header.starts_with(FILE_SIGNATURE)).ok_or_else(damaged);
    let at = entry.at + FILE_SIZE as u64 + field(26)? + field(28)?;
    let length = file.metadata().map_err(|error| reason(&error))?.len();
    // Deflate makes nothing much longer. Entries could else share their content, and have all of it read for each.
    let is_longer = entry.compressed > entry.size + entry.size / 100 + 1024;
    if is_longer || at.saturating_add(entry.compressed) > length {
        return Err(damaged());
    }
    Ok(std::io::Cursor::new(read_at(file, at, entry.compressed)?))
}

/// A little-endian number.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    Some(bytes.get(at..at + width)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Reads a part of the file, which has it all.
fn read_at(file: &File, at: u64, length: u64) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged())?];
    file.read_exact_at(&mut bytes, at).map_err(|error| format!("invalid archive: {}", reason(&error)))?;
    Ok(bytes)
}

fn damaged() -> String {
    "invalid archive: it is damaged, or not a zip file".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// An archive of one uncompressed file.
    fn zip(name: &str, content: &[u8]) -> Vec<u8> {
        let mut checksum = flate2::Crc::new();
        checksum.update(content);
        let number = |number: usize, width: usize| number.to_le_bytes()[..width].to_vec();
        let size = number(content.len(), 4);
        let sizes = [checksum.sum().to_le_bytes().to_vec(), size.clone(), size, number(name.len(), 2)].concat();
        let head =
            [FILE_SIGNATURE.to_vec(), vec![0; 10], sizes.clone(), vec![0; 2], name.into(), content.to_vec()].concat();
        let version = [ENTRY_SIGNATURE.to_vec(), vec![0, 3], vec![0; 10], sizes, vec![0; 8]].concat();
        let entry = [version, number(0o100_755 << 16, 4), vec![0; 4], name.into()].concat();
        let end = [END_SIGNATURE.to_vec(), vec![0; 8], number(entry.len(), 4), number(head.len(), 4), vec![0; 2]];
        [head, entry, end.concat()].concat()
    }

    fn files(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>, bool)>, String> {
        let mut file = tempfile::tempfile().expect("tempfile");
        file.write_all(bytes).expect("write");
        let caps = super::super::ProjectCaps { files: 10, bytes: 1000 };
        let mut reader = ArchiveReader { caps, files: vec![], bytes: 0 };
        read(&file, &mut reader)?;
        let files = reader.files.into_iter();
        Ok(files.map(|file| (file.path.as_str().to_owned(), file.content, file.executable)).collect())
    }

    #[test]
    fn damaged_archives_give_what_was_stored_or_an_error() {
        let whole = zip("a/x.py", b"print(1)");
        let stored = (b"print(1)".to_vec(), true);
        assert_eq!(files(&whole), Ok(vec![("a/x.py".to_owned(), stored.0.clone(), stored.1)]));
        assert_eq!(files(&[&b"comment before "[..], &whole].concat()), Err(damaged()));
        for length in 0..whole.len() {
            assert!(files(&whole[..length]).is_err(), "the first {length} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                // Names and modes have no checksum.
                for (_, content, _) in files(&bytes).unwrap_or_default() {
                    assert!(content == stored.0 || content.is_empty(), "byte {at} is {value}");
                }
            }
        }
    }
}
