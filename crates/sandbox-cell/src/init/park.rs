//! Cells of zygotes' children: what init does so that one can enter, and how it tells it what to run.
//!
//! A zygote's child is a program that was started before it is known what it shall run. It waits on a socket, locked like
//! any other program, and init sends it what it would else have executed.

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
    /// A place to wait, and what a zygote needs to get there.
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

    /// Hears from the child that it waits. False if it is gone.
    pub(super) fn hear(&mut self) -> bool {
        let mut id = [0; 4];
        let length = rustix::io::read(&self.socket, &mut id).unwrap_or(0);
        self.child = decode_pid(&id[..length]).and_then(Pid::from_raw).filter(|_| self.child.is_none());
        self.child.is_some()
    }

    /// Sends the child what to run, and its standard streams.
    pub(super) fn go(
        self,
        command: &ChildCommand<'_, CString>,
        streams: [BorrowedFd<'_>; STREAMS],
    ) -> rustix::io::Result<()> {
        let mut message = vec![];
        command.encode(|bytes| message.extend_from_slice(bytes));
        wire::send_bytes(&self.socket, &message, &streams)
    }
}

/// Gives a user namespace its ids from the one above it, where the keeper is not: a process that stays behind.
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

    /// Has the ids given to the namespace that this process is in now.
    pub(super) fn map(self) -> Result<(), StepError> {
        let failed = |errno| StepError::new(InitStep::GiveIds, errno);
        rustix::io::write(&self.go, b"!").map_err(failed)?;
        let ended = rustix::process::waitpid(Some(self.child.pid), WaitOptions::empty()).map_err(failed)?;
        let worked = ended.is_some_and(|(_, status)| status.exit_status() == Some(0));
        if worked { Ok(()) } else { Err(failed(Errno::PERM)) }
    }
}

/// Whether a descriptor is there to be waited for.
pub(super) fn waiting(park: Option<&Park>) -> Option<BorrowedFd<'_>> {
    park.filter(|park| park.child.is_none()).map(|park| park.socket.as_fd())
}
