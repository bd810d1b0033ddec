//! The protocol between a cell's bridge and the guest, over the container's standard streams: the only channel that
//! every runtime offers, whether it starts a process, a virtual machine or a container on a remote host.
//!
//! A frame is a length and a message. Neither side trusts the other's lengths.

use std::io::{self, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use sandbox_cell::bridge::{MAX_MESSAGE, RunParams};
use sandbox_cell::{CellSpec, Command, Failure, LayerSet, Outcome, StopReason, Usage};

/// The maximum number of bytes of a stream in one frame.
pub(super) const CHUNK: usize = 32 * 1024;

/// How many bytes of input may be in flight. The bridge sends more once the program has read some, so that control
/// messages never wait behind input that the program does not read.
pub(super) const WINDOW: usize = 64 * 1024;

/// The maximum length of a frame: a command, or a chunk of a stream.
const MAX_FRAME: usize = MAX_MESSAGE + 1024;

/// Bridge to guest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToGuest {
    /// Create a cell.
    Create(Box<CellSpec>),
    /// A part of the input files.
    Files(Vec<u8>),
    /// Run a command.
    Run { command: Box<Command>, run: Box<RunParams> },
    /// Input of the command.
    Input(Vec<u8>),
    /// End of input.
    InputEnd,
    /// End the command.
    Stop(StopReason),
    /// Report the resource usage so far.
    Sample,
}

/// Guest to bridge.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromGuest {
    /// The cell is ready.
    Ready { isolation: LayerSet, prepare: Duration },
    /// The program read this many bytes of input.
    Room(u32),
    /// Output of the command, on standard output or standard error.
    Output { error: bool, bytes: Vec<u8> },
    /// The command ended; all of its output was sent before.
    Ended(Box<Outcome>),
    /// A part of the output files.
    Collected(Vec<u8>),
    /// The resource usage so far.
    Sample(Usage),
    /// An operation failed.
    Failed(Failure),
}

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

/// A frame's bytes.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    frame.extend(postcard::to_stdvec(message).map_err(io::Error::other)?);
    let length = frame.len() - 4;
    if length > MAX_FRAME {
        return Err(io::Error::other("message is too long"));
    }
    frame[..4].copy_from_slice(&u32::try_from(length).map_err(io::Error::other)?.to_le_bytes());
    Ok(frame)
}

/// Reassembles frames from the incoming bytes.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// Reads once. Returns false at the end of the stream.
    pub(super) fn read(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let mut buffer = vec![0; CHUNK];
        let read = from.read(&mut buffer)?;
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read > 0)
    }

    /// The next message, if it has arrived completely.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(io::Error::other("message is too long"));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = postcard::from_bytes(message).map_err(io::Error::other)?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_are_reassembled_from_any_split() {
        let mut bytes = encode(&ToGuest::Input(vec![7; 1000])).expect("short");
        bytes.extend(encode(&ToGuest::InputEnd).expect("short"));
        let mut incoming = Incoming::default();
        let mut seen = vec![];
        for part in bytes.chunks(7) {
            assert!(incoming.read(&mut &part[..]).expect("read"));
            while let Some(message) = incoming.next::<ToGuest>().expect("valid") {
                seen.push(message);
            }
        }
        assert!(matches!(&seen[..], [ToGuest::Input(bytes), ToGuest::InputEnd] if bytes.len() == 1000));
        assert!(!incoming.read(&mut &[][..]).expect("the end"));
        let long = encode(&ToGuest::Files(vec![0; MAX_FRAME + 1]));
        assert!(long.is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut incoming = Incoming { bytes };
            while let Ok(Some(_)) = incoming.next::<FromGuest>() {}
        }
    }
}
