//! Cells for the children of zygotes: how a child enters, and how it gets its command from init.
//!
//! A zygote's child is started before its command is known. It waits on a socket, locked like any other program, and
//! init sends it the command that init would otherwise have executed.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use sandbox_zygote::protocol::{ChildCommand, NAMESPACES, STREAMS, decode_pid};

use crate::step::{InitStep, StepError, at};
use crate::wire;

/// A zygote's child that waits in the cell, and its socket.
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

/// The socket to wait on, until the child has arrived.
pub(super) fn waiting(park: Option<&Park>) -> Option<BorrowedFd<'_>> {
    park.filter(|park| park.child.is_none()).map(|park| park.socket.as_fd())
}
