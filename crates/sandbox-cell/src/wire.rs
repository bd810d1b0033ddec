//! Messages between caller, keeper and init, and the descriptors that travel with them.
//!
//! Every connection is a `SOCK_SEQPACKET` pair: a message arrives whole or not at all, with its descriptors. A
//! receiver trusts nothing: sizes and descriptor counts are bounded, and what does not parse ends the connection.

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
use crate::backend::{Backend, ToolEnvironment};
use crate::error::Failure;
use crate::layer::LayerSet;
use crate::outcome::{Outcome, RunStatus, StopReason, Usage};
use crate::spec::{CellSpec, Command, MOST_PORTS, Mount, ZygoteNamespaceId};
use crate::step::StepError;
use crate::syscalls::EntryKey;
use sandbox_base::limits::{LimitKind, Limits};
use sandbox_zygote::protocol;

/// The longest message.
pub(crate) const MAX_MESSAGE: usize = 160 * 1024;

/// The longest command: 128 KiB of arguments and environment, and what it takes to write them down.
const MAX_COMMAND: usize = 160 * 1024;

/// The most descriptors in one message: what a zygote needs to enter a cell, which is a socket, seven namespaces, a
/// Landlock ruleset and four groups. (Others have fewer, such as the sockets of a gateway.)
const MAX_FDS: usize = 6 + MOST_PORTS;
const _: () = assert!(protocol::MOST_FDS <= MAX_FDS);

// A zygote's child gets its command as text, which is not longer than the file, and with a few limits.
const _: () = assert!(MAX_COMMAND + 16 * protocol::MOST_LIMITS + 64 <= protocol::MOST_COMMAND);

/// Caller to keeper, on the control connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// Make a cell. A new connection for it comes with this.
    Create(Box<CellSpec>),
    /// From now on, show cells nothing else of the host than what is here or below.
    Confine(Sources),
    /// From now on, have cells made by this backend, whose programs get this environment.
    Use { backend: Backend, environment: ToolEnvironment },
    /// The process is in a container that was made for one cell: everything is where cells have it.
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

/// What of the host cells may be shown, besides the system.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sources {
    /// What they may read.
    pub readable: Vec<PathBuf>,
    /// What they may write to, and read.
    pub writable: Vec<PathBuf>,
}

/// Caller to keeper, on a cell's connection. Closing the connection deletes the cell.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToCell {
    /// Run a command, with this shown of the host at the cell's slots.
    Run { run: Box<RunParams>, mounts: Vec<Mount> },
    /// Start a companion, before any command. Its command file and standard streams come with it.
    Accompany,
    /// End what is running.
    Stop(StopReason),
    /// Say what has been used so far.
    Sample,
}

/// How to run a command. The command file ([`command_file`]) comes with it, then standard input, output and error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunParams {
    /// What it may use, if that differs from what the cell was made for.
    pub(crate) limits: Option<Limits>,
    /// Whether a descriptor comes that the program gets as number 3.
    pub(crate) extra: bool,
    /// Whether an archive of input files comes too.
    pub(crate) files: bool,
    /// What is to be collected when the command has ended, into a pipe that comes last.
    pub(crate) collect: Option<FileCaps>,
    /// Whether the cell ends with the command.
    pub(crate) last: bool,
}

/// Keeper to caller, on a cell's connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCell {
    /// The cell is ready. Its gateway's sockets come with it, if it has one, or what a zygote needs to enter it.
    Ready {
        isolation: LayerSet,
        prepare: Duration,
        zygote_namespace: Option<ZygoteNamespaceId>,
        id: Option<u32>,
        key: Option<EntryKey>,
        landlock: bool,
    },
    /// A zygote's child waits in the cell for something to run.
    Parked,
    /// The command has ended and nothing of it is left running.
    Ended(Box<Outcome>),
    /// What has been used so far.
    Sample(Usage),
    /// The cell could not be made, or the command could not be started.
    Failed(Failure),
}

/// Keeper to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToInit {
    /// What the keeper made while init mounted its root: a network namespace to enter and, on cgroup v1, groups to
    /// join, first `init` of them by init, the others by the program. The last `back` lead back out of the program's.
    Handover { init: u8, back: u8 },
    /// The user namespace has its ids.
    Mapped,
    /// Start this program.
    Run(Box<RunParams>),
    /// Start a companion of programs to come. Its command file and standard streams come with it.
    Accompany,
    /// Send a signal to every process in the cell: SIGTERM (and SIGCONT, so that stopped ones get it).
    Terminate,
    /// Kill every process in the cell.
    Kill,
    /// There is memory to collect the files with; the answer to a report that asks for it.
    Collect,
}

/// Init to keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// The user namespace exists and needs its ids.
    NeedsMap,
    /// A zygote's child waits for something to run.
    Parked,
    /// Everything is locked; a command can come. The gateway's sockets come with it, if there is one, or what a zygote needs
    /// to enter the cell.
    Ready { landlock: bool },
    /// The program runs: its time begins.
    Started,
    /// The program has ended, everything else was killed, all is reaped.
    Ended(Report),
    /// A limit that init itself watches was exceeded; init has killed everything and will report `Ended`.
    LimitExceeded(LimitKind),
    /// A step failed: of locking the cell, or of starting a command.
    Failed(StepError),
}

/// What init saw of a run.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) status: RunStatus,
    pub(crate) wall: Duration,
    pub(crate) cpu_user: Duration,
    pub(crate) cpu_system: Duration,
    pub(crate) io_read: u64,
    pub(crate) io_write: u64,
    /// Bytes and inodes used in the writable directories when it ended.
    pub(crate) disk: u64,
    pub(crate) inodes: u64,
    /// Whether the writable directories were full when it ended.
    pub(crate) disk_full: bool,
    pub(crate) inodes_full: bool,
    /// Whether it left a file that is exactly as large as a file may be.
    pub(crate) file_at_limit: bool,
    /// Peaks that init sampled, where no cgroup keeps them.
    pub(crate) sampled_memory: u64,
    pub(crate) sampled_processes: u64,
    /// Whether what the program left takes so much of the memory that init waits for [`ToInit::Collect`].
    pub(crate) needs_memory: bool,
}

/// A connected pair.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// A command on its way to init, in a memory file. The keeper passes the descriptor on and never reads it: arguments and
/// environment of one cell must not be in the memory that the inits of later cells are forked from.
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
pub(crate) fn read_command(file: OwnedFd) -> rustix::io::Result<Command> {
    let file = File::from(file);
    let mut bytes = vec![0; MAX_COMMAND + 1];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    if length > MAX_COMMAND {
        return Err(Errno::TOOBIG);
    }
    postcard::from_bytes(&bytes[..length]).map_err(|_| Errno::INVAL)
}

/// Sends a message with its descriptors.
pub(crate) fn send<M: Serialize>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<()> {
    send_with(socket, &postcard::to_stdvec(message).map_err(|_| Errno::INVAL)?, MAX_MESSAGE, fds, flags)
}

/// Sends bytes that are nobody's message but a program's, with descriptors.
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

/// A message that was received, or the end of the connection.
pub(crate) enum Received<M> {
    /// A message and its descriptors.
    Message(M, Vec<OwnedFd>),
    /// The other side is gone, or sent something that is not a message.
    Closed,
}

/// Receives a message of at most `buffer`'s size, and clears the buffer: it must not outlive the message in processes that
/// are forked later.
pub(crate) fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<Received<M>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut slices, &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
            // A reset says that the other side closed without reading everything, and it says so before giving what
            // that side had sent. It comes once; the messages or the end follow.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    // Collect before judging, so that whatever came is closed again on every path.
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
    fn last_words_arrive_though_the_speaker_did_not_listen() {
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
    fn a_message_that_is_cut_off_is_not_a_message() {
        let (a, b) = pair().expect("socketpair");
        send(&a, &run(vec![mount(1000)]), &[], SendFlags::empty()).expect("send");
        let received = receive::<ToCell>(&b, &mut [0; 100], RecvFlags::empty());
        assert!(matches!(received, Ok(Received::Closed)));
    }

    #[test]
    fn a_message_beyond_the_bound_is_refused_by_the_sender() {
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
    fn a_command_survives_its_file() {
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
