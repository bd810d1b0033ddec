//! Messages between caller, keeper and init, and the descriptors that travel with them.
//!
//! Every connection is a `SOCK_SEQPACKET` pair: a message arrives complete or not at all, with its descriptors. A
//! receiver trusts nothing: sizes and descriptor counts are bounded, and an invalid message ends the connection.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::archive::FileCaps;
use crate::error::Failure;
use crate::layer::LayerSet;
use crate::outcome::{Outcome, RunStatus, StopReason, Usage};
use crate::spec::{CellSpec, Command, MOST_PORTS, Mount, ZygoteNamespaceId};
use crate::step::StepError;
use crate::syscalls::EntryKey;
use sandbox_base::limits::{LimitKind, Limits};
use sandbox_zygote::protocol;

/// The maximum length of a message.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// The maximum length of a command: 128 KiB of arguments and environment, and the overhead of the encoding.
const MAX_COMMAND: usize = 160 * 1024;

/// The maximum number of descriptors in one message. The largest message lets a zygote enter a cell: a socket, seven
/// namespaces, a Landlock ruleset and four cgroups.
const MAX_FDS: usize = 6 + MOST_PORTS;
const _: () = assert!(protocol::MOST_FDS <= MAX_FDS);

// A zygote's child gets its command as text, which is not longer than the file, and a few limits.
const _: () = assert!(MAX_COMMAND + 16 * protocol::MOST_LIMITS + 64 <= protocol::MOST_COMMAND);

/// Caller to keeper, on the control connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// Create a cell. A new connection for it comes with this message.
    Create(Box<CellSpec>),
    /// From now on, cells may mount only these host paths and those below.
    Confine(Sources),
    /// From now on, create cells with this backend, whose programs get this environment.
    UseBridges(Option<Vec<u8>>),
    /// The process is in a container that was created for one cell: all paths are the usual ones.
    Contain,
    /// A launcher has started this keeper for the process `caller`. `predecessor` is the group name of a keeper that was
    /// killed before.
    Launched { caller: i32, predecessor: Option<String> },
}

/// Caller to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// Tell this to every keeper from now on. Refused after [`ToKeeper::Confine`].
    Remember(Box<ToKeeper>),
    /// Start a keeper.
    Launch,
}

/// Launcher to caller, in answer to [`ToLauncher::Launch`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromLauncher {
    /// The keeper was started. Its control connection and its pidfd come with this.
    Launched,
    /// The keeper could not be started.
    Failed(Failure),
}

/// The host paths that cells may mount, besides the system.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sources {
    /// Paths that they may read.
    pub readable: Vec<PathBuf>,
    /// Paths that they may read and write.
    pub writable: Vec<PathBuf>,
}

/// Caller to keeper, on a cell's connection. Closing the connection deletes the cell.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToCell {
    /// Run a command, with these mounts at the cell's slots.
    Run {
        /// How to run it.
        run: Box<RunParams>,
        /// The mounts.
        mounts: Vec<Mount>,
    },
    /// End the running command.
    Stop(StopReason),
    /// Report the usage so far.
    Sample,
}

/// How to run a command. The command file (`command_file`) comes with this message, then standard input, output and
/// error.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunParams {
    /// The limits, if they differ from those of the cell.
    pub limits: Option<Limits>,
    /// Whether a descriptor comes that the program gets as number 3.
    pub extra: bool,
    /// Whether an archive of input files comes too.
    pub files: bool,
    /// The limits of the output files, which go into a pipe that comes last.
    pub collect: Option<FileCaps>,
    /// Whether the cell ends with the command.
    pub last: bool,
}

/// Keeper to caller, on a cell's connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromCell {
    /// The cell is ready. Its gateway's sockets come with this message, if it has one, or the descriptors with which a
    /// zygote enters it.
    Ready {
        /// The layers that it has.
        isolation: LayerSet,
        /// How long it took to make.
        prepare: Duration,
        /// The namespaces of a zygote's cell.
        zygote_namespace: Option<ZygoteNamespaceId>,
        /// The user id of its programs, if that is not init's.
        id: Option<u32>,
        /// What its zygote needs to enter it.
        key: Option<EntryKey>,
        /// Whether its Landlock rules are in force.
        landlock: bool,
    },
    /// A zygote's child waits in the cell for a command.
    Parked,
    /// The command has ended and none of its processes is left.
    Ended(Box<Outcome>),
    /// The usage so far.
    Sample(Usage),
    /// The cell could not be created, or the command could not be started.
    Failed(Failure),
}

/// Keeper to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToInit {
    /// What the keeper created while init mounted its root: a network namespace to enter and, on cgroup v1, cgroups to
    /// join. Init joins the first `init` of them, the program the others. The last `back` lead out of the program's.
    Handover { init: u8, back: u8 },
    /// The id map of the user namespace was written.
    Mapped,
    /// Start this program.
    Run(Box<RunParams>),
    /// Send a signal to every process in the cell: SIGTERM (and SIGCONT, so that stopped ones get it).
    Terminate,
    /// Kill every process in the cell.
    Kill,
    /// There is memory for the collection of files; the answer to a report that asks for it.
    Collect,
}

/// Init to keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// The user namespace exists and needs its id map.
    NeedsMap,
    /// A zygote's child waits for a command.
    Parked,
    /// Everything is locked; a command can be sent. The gateway's sockets come with this message, if there is one, or
    /// the descriptors with which a zygote enters the cell.
    Ready { landlock: bool },
    /// The program runs: its clock starts.
    Started,
    /// The program has ended, and everything else was killed and reaped.
    Ended(Report),
    /// A limit that init enforces was exceeded; init has killed everything and will report `Ended`.
    LimitExceeded(LimitKind),
    /// A step failed: of locking the cell, or of starting a command.
    Failed(StepError),
}

/// The observations of init about a run.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) status: RunStatus,
    pub(crate) wall: Duration,
    pub(crate) cpu_user: Duration,
    pub(crate) cpu_system: Duration,
    pub(crate) io_read: u64,
    pub(crate) io_write: u64,
    /// Bytes and inodes used in the writable directories at the end.
    pub(crate) disk: u64,
    pub(crate) inodes: u64,
    /// Whether the writable directories were full at the end.
    pub(crate) disk_full: bool,
    pub(crate) inodes_full: bool,
    /// Whether a file has exactly the maximum file size.
    pub(crate) file_at_limit: bool,
    /// Peaks that init sampled, where no cgroup keeps them.
    pub(crate) sampled_memory: u64,
    pub(crate) sampled_processes: u64,
    /// Whether the program's files take so much of the memory that init waits for [`ToInit::Collect`].
    pub(crate) needs_memory: bool,
}

/// A connected pair.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// A command for init, in a memory file. The keeper passes the descriptor on and never reads it: arguments and
/// environment of one cell must not be in the memory from which the inits of later cells are forked.
pub(crate) fn command_file(command: &Command) -> rustix::io::Result<OwnedFd> {
    let bytes = postcard::to_stdvec(command).map_err(|_| Errno::INVAL)?;
    if bytes.len() > MAX_COMMAND {
        return Err(Errno::TOOBIG);
    }
    let mut file = File::from(rustix::fs::memfd_create("sandbox-command", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(file.into())
}

/// Reads a command from its file.
pub fn read_command(file: OwnedFd) -> rustix::io::Result<Command> {
    let file = File::from(file);
    // Most commands are small, and touching new memory costs more than reading them.
    let mut bytes = vec![0; 4096];
    let mut length = 0;
    loop {
        if length == bytes.len() {
            if length > MAX_COMMAND {
                return Err(Errno::TOOBIG);
            }
            bytes.resize(MAX_COMMAND + 1, 0);
        }
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    postcard::from_bytes(&bytes[..length]).map_err(|_| Errno::INVAL)
}

/// Sends a message with its descriptors.
pub fn send<M: Serialize>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<()> {
    send_with(socket, &postcard::to_stdvec(message).map_err(|_| Errno::INVAL)?, MAX_MESSAGE, fds, flags)
}

/// Sends raw bytes to a program, with descriptors.
pub(crate) fn send_bytes(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    send_with(socket, bytes, protocol::MOST_COMMAND, fds, SendFlags::DONTWAIT)
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    most: usize,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<()> {
    if bytes.len() > most || fds.len() > MAX_FDS {
        return Err(Errno::TOOBIG);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// A received message, or the end of the connection.
pub enum Received<M> {
    /// A message and its descriptors.
    Message(M, Vec<OwnedFd>),
    /// The peer is gone, or sent an invalid message.
    Closed,
}

/// Receives a message of at most `buffer`'s size, and clears the buffer: it must not be in the memory of processes that
/// are forked later.
pub fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<Received<M>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut slices, &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
            // ECONNRESET means that the peer closed without reading everything. The kernel reports it once, before the
            // messages that the peer had sent; those or the end follow.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    // Collect all descriptors before judging the message, so that they are closed on every path.
    let mut fds = vec![];
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if result.bytes == 0 || result.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Ok(Received::Closed);
    }
    let message = postcard::from_bytes(&buffer[..result.bytes]);
    buffer[..result.bytes].fill(0);
    Ok(message.map_or(Received::Closed, |message| Received::Message(message, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(mounts: Vec<Mount>) -> ToCell {
        let run = RunParams { limits: None, extra: false, files: false, collect: None, last: true };
        ToCell::Run { run: Box::new(run), mounts }
    }

    fn mount(length: usize) -> Mount {
        Mount::read_only("x".repeat(length), "/x")
    }

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) = pair().expect("socketpair");
        let (r, w) = rustix::pipe::pipe().expect("pipe");
        send(&a, &ToCell::Sample, &[w.as_fd()], SendFlags::empty()).expect("send");
        drop(w);
        let mut buffer = vec![0; MAX_MESSAGE];
        let Received::Message(ToCell::Sample, fds) = receive(&b, &mut buffer, RecvFlags::empty()).expect("receive")
        else {
            panic!("not the message that was sent");
        };
        rustix::io::write(&fds[0], b"x").expect("write through the passed descriptor");
        assert_eq!(rustix::io::read(&r, &mut [0_u8; 4][..]), Ok(1));
        drop(a);
        assert!(matches!(receive::<ToCell>(&b, &mut buffer, RecvFlags::empty()), Ok(Received::Closed)));
    }

    #[test]
    fn messages_arrive_from_a_peer_that_closed_without_reading() {
        let (a, b) = pair().expect("socketpair");
        send(&b, &ToCell::Sample, &[], SendFlags::empty()).expect("send");
        send(&a, &ToCell::Stop(StopReason::Cancelled), &[], SendFlags::empty()).expect("send");
        drop(a);
        let mut buffer = vec![0; 100];
        let received = receive::<ToCell>(&b, &mut buffer, RecvFlags::empty());
        assert!(matches!(received, Ok(Received::Message(ToCell::Stop(_), _))));
        assert!(matches!(receive::<ToCell>(&b, &mut buffer, RecvFlags::empty()), Ok(Received::Closed)));
    }

    #[test]
    fn a_truncated_message_is_refused() {
        let (a, b) = pair().expect("socketpair");
        send(&a, &run(vec![mount(1000)]), &[], SendFlags::empty()).expect("send");
        let received = receive::<ToCell>(&b, &mut [0; 100], RecvFlags::empty());
        assert!(matches!(received, Ok(Received::Closed)));
    }

    #[test]
    fn the_sender_refuses_a_message_that_is_too_long() {
        let (a, _b) = pair().expect("socketpair");
        assert_eq!(send(&a, &run(vec![mount(MAX_MESSAGE)]), &[], SendFlags::empty()), Err(Errno::TOOBIG));
    }

    #[test]
    fn a_received_message_is_cleared_from_the_buffer() {
        let (a, b) = pair().expect("socketpair");
        send(&a, &run(vec![mount(1000)]), &[], SendFlags::empty()).expect("send");
        let mut buffer = vec![0; MAX_MESSAGE];
        let received = receive::<ToCell>(&b, &mut buffer, RecvFlags::empty());
        assert!(matches!(received, Ok(Received::Message(ToCell::Run { .. }, _))));
        assert!(buffer.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_command_round_trips_through_its_file() {
        let command = Command::new(["echo", "hello"]);
        assert_eq!(read_command(command_file(&command).expect("written")), Ok(command));
        let long = Command::new(["x".repeat(MAX_COMMAND)]);
        assert_eq!(command_file(&long).err(), Some(Errno::TOOBIG));
    }

    #[test]
    fn a_file_that_is_not_a_command_is_refused() {
        let file = |content: &[u8]| {
            let mut file = File::from(rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd"));
            file.write_all(content).expect("written");
            OwnedFd::from(file)
        };
        assert_eq!(read_command(file(&[0xff; 100])), Err(Errno::INVAL));
        assert_eq!(read_command(file(&vec![0; MAX_COMMAND + 1])), Err(Errno::TOOBIG));
        let (reader, _writer) = rustix::pipe::pipe().expect("pipe");
        assert!(read_command(reader).is_err());
    }

    proptest! {
        #[test]
        fn garbage_closes_the_connection_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let (a, b) = pair().expect("socketpair");
            rustix::io::write(&a, &bytes).expect("write");
            let mut buffer = vec![0; MAX_MESSAGE];
            let _ = receive::<FromInit>(&b, &mut buffer, RecvFlags::empty()).expect("receive");
            rustix::io::write(&a, &bytes).expect("write");
            let _ = receive::<ToCell>(&b, &mut buffer, RecvFlags::empty()).expect("receive");
            rustix::io::write(&a, &bytes).expect("write");
            let _ = receive::<ToKeeper>(&b, &mut buffer, RecvFlags::empty()).expect("receive");
        }
    }
}
