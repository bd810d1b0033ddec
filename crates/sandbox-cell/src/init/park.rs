//! Cells for the children of zygotes: how a child enters, and how init tells it what to run.
//!
//! A zygote's child is started before its command is known. It waits on a socket, locked like any other program, and
//! init sends it the command that init would otherwise have executed.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, exit_now, fork_into};
use sandbox_zygote::protocol::{ChildCommand, NAMESPACES, STREAMS, decode_pid};

use crate::step::{InitStep, StepError, at};
use crate::wire;

/// Where a zygote's child waits.
pub(super) struct Park {
    pub(super) socket: OwnedFd,
    /// The child, once it waits.
    pub(super) child: Option<Pid>,
}

/// The cell's namespaces, in the order in which a zygote expects them.
pub(super) fn namespaces(proc: &OwnedFd) -> Result<Vec<OwnedFd>, StepError> {
    let open = |name: &str| {
        rustix::fs::openat(proc, format!("self/ns/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(at(InitStep::OpenNamespace(name.to_owned())))
    };
    NAMESPACES.into_iter().map(open).collect()
}

impl Park {
    /// Creates the socket on which a child waits, and the descriptors with which a zygote enters.
    pub(super) fn new(
        namespaces: Vec<OwnedFd>,
        landlock: Option<&OwnedFd>,
        groups: Vec<OwnedFd>,
    ) -> rustix::io::Result<(Self, Vec<OwnedFd>)> {
        let (ours, theirs) = wire::pair()?;
        let landlock = landlock.map(OwnedFd::try_clone).transpose().map_err(|_| Errno::MFILE)?;
        let fds = [theirs].into_iter().chain(namespaces).chain(landlock).chain(groups).collect();
        Ok((Self { socket: ours, child: None }, fds))
    }

    /// Receives the notice that the child waits. Returns false if the child is gone.
    pub(super) fn receive_pid(&mut self) -> bool {
        let mut id = [0; 4];
        let length = rustix::io::read(&self.socket, &mut id).unwrap_or(0);
        self.child = decode_pid(&id[..length]).and_then(Pid::from_raw).filter(|_| self.child.is_none());
        self.child.is_some()
    }

    /// Sends the child its command and its standard streams.
    pub(super) fn send_command(
        self,
        command: &ChildCommand<'_, CString>,
        streams: [BorrowedFd<'_>; STREAMS],
    ) -> rustix::io::Result<()> {
        let mut message = vec![];
        command.encode(|bytes| message.extend_from_slice(bytes));
        wire::send_bytes(&self.socket, &message, &streams)
    }
}

/// A process outside the new user namespace that writes its id map, because the keeper is not in the parent namespace.
pub(super) struct Mapper {
    child: Child,
    go: OwnedFd,
}

impl Mapper {
    pub(super) fn start(alone: SingleThreaded, proc: &OwnedFd, map: &str) -> Result<Self, StepError> {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(at(InitStep::MakePipe))?;
        let main = || {
            let mut byte = [0];
            let told = rustix::io::read(&reader, &mut byte) == Ok(1);
            let write = |(file, text): (&str, &str)| {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(proc, format!("1/{file}"), flags, Mode::empty())?;
                rustix::io::write(&file, text.as_bytes()).map(drop)
            };
            let files = [("setgroups", "deny"), ("uid_map", map), ("gid_map", map)];
            let written: rustix::io::Result<()> = files.into_iter().try_for_each(write);
            exit_now(i32::from(!told || written.is_err()));
        };
        let child = fork_into(alone, Namespaces::NONE, None, main).map_err(at(InitStep::Fork))?;
        Ok(Self { child, go: writer })
    }

    /// Writes the id map of the namespace that this process is in now.
    pub(super) fn map(self) -> Result<(), StepError> {
        let failed = |errno| StepError::new(InitStep::GiveIds, errno);
        rustix::io::write(&self.go, b"!").map_err(failed)?;
        let ended = rustix::process::waitpid(Some(self.child.pid), WaitOptions::empty()).map_err(failed)?;
        let worked = ended.is_some_and(|(_, status)| status.exit_status() == Some(0));
        if worked { Ok(()) } else { Err(failed(Errno::PERM)) }
    }
}

/// The socket to wait on, until the child has arrived.
pub(super) fn waiting(park: Option<&Park>) -> Option<BorrowedFd<'_>> {
    park.filter(|park| park.child.is_none()).map(|park| park.socket.as_fd())
}
