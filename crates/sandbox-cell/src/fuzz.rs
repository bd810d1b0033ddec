//! What fuzz targets see of this crate and nobody else does. It is there only when they are built.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::archive::{ArchiveEntry, Omission, write_entry};
use crate::wire::{FromCell, FromInit, ToCell, ToInit, ToKeeper, ToLauncher};
use sandbox_base::RelativePath;

/// Reads a message of each kind. What can be read can be written, and means the same when it is read again.
pub fn wire(bytes: &[u8]) {
    message::<ToKeeper>(bytes);
    message::<ToLauncher>(bytes);
    message::<ToCell>(bytes);
    message::<FromCell>(bytes);
    message::<ToInit>(bytes);
    message::<FromInit>(bytes);
}

fn message<M: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(message) = postcard::from_bytes::<M>(bytes) else { return };
    let written = postcard::to_stdvec(&message).expect("a message can be written");
    let again = postcard::from_bytes::<M>(&written).expect("and read again");
    assert_eq!(postcard::to_stdvec(&again).expect("and written again"), written);
}

/// An entry of a stream, to be written as init does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in the entry that it becomes")]
pub enum Piece {
    Into(u8),
    Directory(RelativePath),
    File { path: RelativePath, executable: bool, content: Vec<u8> },
    Link { path: RelativePath, target: String },
    Omitted(String),
    End(u64),
}

/// Writes an entry.
pub fn write(to: &mut Vec<u8>, piece: &Piece) -> io::Result<()> {
    let entry = match piece.clone() {
        Piece::Into(place) => ArchiveEntry::Into(place),
        Piece::Directory(path) => ArchiveEntry::Directory { path },
        Piece::File { path, executable, content } => {
            ArchiveEntry::File { path, executable, size: content.len() as u64 }
        }
        Piece::Link { path, target } => ArchiveEntry::Link { path, target },
        Piece::Omitted(path) => ArchiveEntry::Omitted { path, why: Omission::NotAFile },
        Piece::End(omitted) => ArchiveEntry::End { omitted },
    };
    write_entry(to, &entry)?;
    if let Piece::File { content, .. } = piece {
        to.extend_from_slice(content);
    }
    Ok(())
}
