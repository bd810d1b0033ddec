//! The keeper, as its callers see it.
//!
//! [`Keeper::start`] forks the keeper process; from then on the caller needs no privilege. [`Keeper::create`] makes
//! a [`Cell`], which is a connection: dropping it deletes the cell. If the caller dies, its connections close, the
//! keeper deletes every cell and ends.

mod attendants;
mod bare;
mod ids;
mod nest;
mod power;
mod serve;
mod supervise;
mod workshop;

pub(crate) use serve::IGNORED_SIGNALS;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::WaitIdOptions;
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, fork_into};

use crate::archive::{Archive, Caps};
use crate::backend::Backend;
use crate::error::Failure;
use crate::layer::LayerSet;
use crate::limits::Limits;
use crate::outcome::{Outcome, StopReason, Usage};
use crate::spec::{CellSpec, Command, Gateway, Mount, Nest, Network};
use crate::syscalls::EntryKey;
use crate::wire::{self, FromCell, Received, Run, Sources, ToCell, ToKeeper};

/// A running keeper process. When it and all its cells are dropped, that waits until it has ended, with nothing left.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<Process>);

#[derive(Debug)]
struct Process {
    control: OwnedFd,
    child: Child,
}

impl Keeper {
    /// Starts a keeper with the privileges of this process.
    ///
    /// The process must have a single thread, because the keeper is a fork of it. Start it first thing in `main`.
    pub fn start() -> Result<Self, Failure> {
        let alone = SingleThreaded::prove().ok_or_else(|| {
            Failure::new("cannot start the keeper", "this process has several threads")
                .with_fix("call Keeper::start before anything that starts a thread")
        })?;
        let failed = |errno: Errno| Failure::os("cannot start the keeper", errno);
        let (ours, theirs) = wire::pair().map_err(failed)?;
        let child = fork_into(alone, Namespaces::NONE, None, || serve::main(alone, &theirs)).map_err(failed)?;
        Ok(Self(Arc::new(Process { control: ours, child })))
    }

    /// Asks for a cell and returns at once: it is made while the caller prepares a command. If it cannot be made, the
    /// first call that waits for it ([`Cell::ready`], [`Cell::wait`], [`Cell::run`], [`Cell::metrics`]) says why.
    /// Several threads may do this at once.
    pub fn create(&self, spec: &CellSpec) -> Result<Cell, Failure> {
        let failed = |errno: Errno| Failure::os("cannot reach the keeper", errno);
        let (ours, theirs) = wire::pair().map_err(failed)?;
        wire::send(&self.0.control, &ToKeeper::Create(Box::new(spec.clone())), &[theirs.as_fd()], SendFlags::empty())
            .map_err(failed)?;
        drop(theirs);
        let gateway = match &spec.network {
            Network::Gateway(gateway) => Some((gateway.clone(), vec![])),
            Network::None | Network::Localhost => None,
        };
        let keeper = Arc::clone(&self.0);
        let (ready, parking, parked, ended) = (None, None, false, None);
        Ok(Cell { socket: ours, ready, gateway, buffer: vec![0; 4096], parking, parked, ended, _keeper: keeper })
    }

    /// Forbids all cells from now on to be shown anything else of the host than this and what is below it. It cannot be
    /// taken back, so that whoever gets hold of a confined caller gets no further through the keeper.
    pub fn confine(&self, sources: &Sources) -> Result<(), Failure> {
        self.tell(&ToKeeper::Confine(sources.clone()))
    }

    /// Has all cells from now on made by another backend.
    pub fn use_backend(&self, backend: &Backend) -> Result<(), Failure> {
        self.tell(&ToKeeper::Use(backend.clone()))
    }

    /// Says that this process is in a container that was made for one cell; see [`crate::backend`].
    pub(crate) fn contain(&self) -> Result<(), Failure> {
        self.tell(&ToKeeper::Contain)
    }

    fn tell(&self, message: &ToKeeper) -> Result<(), Failure> {
        wire::send(&self.0.control, message, &[], SendFlags::empty())
            .map_err(|errno| Failure::os("cannot reach the keeper", errno))
    }

    /// Says that no more cells will be asked for: the keeper ends with its last cell, and need not be told again.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Process {
    fn close(&self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Write);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.close();
        // Waited for, not left to PID 1: in many containers that is a program which does not expect children.
        let pidfd = rustix::process::WaitId::PidFd(self.child.pidfd.as_fd());
        while let Err(Errno::INTR) = rustix::process::waitid(pidfd.clone(), WaitIdOptions::EXITED) {}
    }
}

/// The three standard streams of a program.
#[derive(Debug, Clone, Copy)]
pub struct Stdio<'a> {
    /// Where it reads from.
    pub stdin: BorrowedFd<'a>,
    /// Where its output goes.
    pub stdout: BorrowedFd<'a>,
    /// Where its errors go.
    pub stderr: BorrowedFd<'a>,
}

/// A command to start, with all that belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// What to run.
    pub command: &'a Command,
    /// Its streams.
    pub stdio: Stdio<'a>,
    /// What is to be shown of the host at the cell's slots, read-only.
    pub mounts: &'a [Mount],
    /// What it may use, if that differs from what the cell was made for. Disk and inodes are the cell's own.
    pub limits: Option<&'a Limits>,
    /// A descriptor that the program gets as number 3.
    pub extra: Option<BorrowedFd<'a>>,
    /// Files to make before.
    pub files: Option<&'a Archive>,
    /// What to collect afterwards, and the pipe to send it through: what the command left in its working directory,
    /// and what is in the cell's volumes. [`crate::archive::read_all`] reads it, after the command's end.
    pub collect: Option<(Caps, BorrowedFd<'a>)>,
    /// Whether it is the only or last command: the cell is deleted as soon as it has ended.
    pub last: bool,
}

impl<'a> Start<'a> {
    /// A command with its streams and nothing else, after which others may come.
    #[must_use]
    pub fn new(command: &'a Command, stdio: Stdio<'a>) -> Self {
        Self { command, stdio, mounts: &[], limits: None, extra: None, files: None, collect: None, last: false }
    }
}

/// A cell that is ready for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The layers that are in force in it.
    pub isolation: LayerSet,
    /// How long it took to make.
    pub prepare: Duration,
    /// The nest, if it is a zygote's.
    pub nest: Option<Nest>,
}

/// What a zygote needs to fork a child into a cell.
#[derive(Debug)]
pub struct Parking {
    /// What the zygote has to be told: a message, and the descriptors that go with it.
    pub message: [u8; 24],
    /// The descriptors.
    pub fds: Vec<OwnedFd>,
}

/// The sockets of a cell's gateway. They belong to the cell's network wherever they are served.
#[derive(Debug)]
pub struct GatewaySockets {
    /// Listens for clients of a proxy.
    pub proxy: Option<OwnedFd>,
    /// Receives questions for a resolver, as datagrams.
    pub dns: Option<OwnedFd>,
    /// For each port, listens for connections to any address.
    pub ports: Vec<OwnedFd>,
}

/// A cell: one single-use sandbox. Dropping it deletes it without waiting; [`Cell::delete`] waits.
///
/// As a descriptor ([`AsFd`]) it becomes readable when [`Cell::poll`] has something to take in.
#[derive(Debug)]
pub struct Cell {
    socket: OwnedFd,
    ready: Option<Ready>,
    /// Its gateway with its sockets, until somebody takes them.
    gateway: Option<(Gateway, Vec<OwnedFd>)>,
    buffer: Vec<u8>,
    /// What a zygote needs to enter it, until somebody takes that.
    parking: Option<Parking>,
    /// Whether a zygote's child waits in it.
    parked: bool,
    /// An end that arrived while waiting for something else.
    ended: Option<Box<Outcome>>,
    /// Dropped last: a keeper ends after its cells.
    _keeper: Arc<Process>,
}

impl Cell {
    /// Waits until the cell is ready and says what it is made of.
    pub fn ready(&mut self) -> Result<Ready, Failure> {
        loop {
            if let Some(ready) = self.ready {
                return Ok(ready);
            }
            if let Some(FromCell::Ended(outcome)) = self.receive()? {
                self.ended = Some(outcome);
            }
        }
    }

    /// What the cell is made of, if it has been heard to be ready.
    pub(crate) fn is_ready(&self) -> Option<Ready> {
        self.ready
    }

    /// Starts a command as soon as the cell is ready, and returns at once; [`Cell::wait`] tells how it ended. A cell
    /// runs one command at a time.
    pub fn start(&self, start: &Start<'_>) -> Result<(), Failure> {
        let Start { command, stdio, mounts, limits, extra, files, collect, last } = start;
        let mut fds = vec![stdio.stdin, stdio.stdout, stdio.stderr];
        fds.extend(*extra);
        let files = files.filter(|files| !files.is_empty());
        fds.extend(files.map(|files| files.as_file().as_fd()));
        fds.extend(collect.map(|(_, pipe)| pipe));
        let collect = collect.map(|(caps, _)| caps);
        let (command, limits, extra, files) = ((*command).clone(), limits.cloned(), extra.is_some(), files.is_some());
        let run = Run { command, limits, extra, files, collect, last: *last };
        self.say(&ToCell::Run { run: Box::new(run), mounts: mounts.to_vec() }, &fds)
    }

    /// Starts a companion in a cell that is ready: a program that gets ready to help the command that comes later, and
    /// ends with it. What it says goes where `stdio` says; that it cannot be started is said as a command's failure is.
    pub fn accompany(&self, companion: &Command, stdio: Stdio<'_>) -> Result<(), Failure> {
        self.say(&ToCell::Accompany(companion.clone()), &[stdio.stdin, stdio.stdout, stdio.stderr])
    }

    /// The sockets of a cell with a gateway, once it is ready. Whoever has them decides what the cell can reach.
    pub fn take_gateway(&mut self) -> Result<Option<GatewaySockets>, Failure> {
        self.ready()?;
        let Some((gateway, sockets)) = self.gateway.take() else { return Ok(None) };
        let mut sockets = sockets.into_iter();
        let mut next = |wanted: bool| if wanted { sockets.next() } else { None };
        let (proxy, dns) = (next(gateway.proxy), next(gateway.dns));
        Ok(Some(GatewaySockets { proxy, dns, ports: sockets.collect() }))
    }

    /// What a zygote needs to fork a child into the cell, once it is ready. For cells that are made for that.
    pub fn take_parking(&mut self) -> Result<Option<Parking>, Failure> {
        self.ready()?;
        Ok(self.parking.take())
    }

    /// Waits until a zygote's child waits in the cell, but not longer than this.
    pub fn wait_until_parked(&mut self, patience: Duration) -> Result<(), Failure> {
        let deadline = std::time::Instant::now() + patience;
        while !self.parked {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Err(Failure::new("no zygote has entered the cell", "it took too long")),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Failure::os("cannot wait for the zygote", errno)),
            }
            self.receive()?;
        }
        Ok(())
    }

    /// Runs a command to its end. Without streams of its own to follow, this is all there is to it.
    ///
    /// Output goes where `stdio` says; to capture it, pass files, or use [`Cell::start`] with pipes and read them
    /// while waiting for [`Cell::wait`].
    pub fn run(&mut self, command: &Command, stdio: Stdio<'_>, files: Option<&Archive>) -> Result<Outcome, Failure> {
        self.start(&Start { files, ..Start::new(command, stdio) })?;
        self.wait()
    }

    /// Waits for the end of the command. Nothing that it started is left then.
    pub fn wait(&mut self) -> Result<Outcome, Failure> {
        loop {
            if let Some(outcome) = self.ended.take() {
                return Ok(*outcome);
            }
            if let Some(FromCell::Ended(outcome)) = self.receive()? {
                self.ended = Some(outcome);
            }
        }
    }

    /// Takes in what has arrived, without waiting: the end of the command, if that is what it was. For callers that
    /// wait for several things at once.
    pub fn poll(&mut self) -> Result<Option<Outcome>, Failure> {
        if self.ended.is_none()
            && let Some(FromCell::Ended(outcome)) = self.receive()?
        {
            self.ended = Some(outcome);
        }
        Ok(self.ended.take().map(|outcome| *outcome))
    }

    /// Ends the command. [`Cell::wait`] reports its end as always.
    pub fn stop(&self, reason: StopReason) -> Result<(), Failure> {
        self.say(&ToCell::Stop(reason), &[])
    }

    /// What the cell has used up to now.
    pub fn metrics(&mut self) -> Result<Usage, Failure> {
        self.say(&ToCell::Sample, &[])?;
        loop {
            match self.receive()? {
                Some(FromCell::Sample(usage)) => return Ok(usage),
                Some(FromCell::Ended(outcome)) => self.ended = Some(outcome),
                _ => {}
            }
        }
    }

    /// Deletes the cell and returns when nothing of it is left: no process, mount or control group.
    pub fn delete(mut self) -> Result<(), Failure> {
        let failed = |errno| Failure::os("cannot delete the cell", errno);
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write).map_err(failed)?;
        while let Received::Message(_, _) =
            wire::receive::<FromCell>(&self.socket, &mut self.buffer, RecvFlags::empty()).map_err(failed)?
        {}
        Ok(())
    }

    fn say(&self, message: &ToCell, fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        wire::send(&self.socket, message, fds, SendFlags::empty())
            .or_else(|errno| match errno {
                // The keeper has given the cell up; its reason is waiting to be received.
                Errno::PIPE | Errno::CONNRESET => Ok(()),
                errno => Err(errno),
            })
            .map_err(|errno| match errno {
                Errno::TOOBIG => {
                    Failure::of_request("cannot run the command", "its arguments and environment exceed 128 KiB")
                }
                errno => Failure::os("cannot reach the cell", errno),
            })
    }

    /// Receives a message; keeps for itself that the cell is ready.
    fn receive(&mut self) -> Result<Option<FromCell>, Failure> {
        match wire::receive(&self.socket, &mut self.buffer, RecvFlags::empty()) {
            Ok(Received::Message(FromCell::Ready { isolation, prepare, nest, id, key, landlock }, fds)) => {
                self.ready = Some(Ready { isolation, prepare, nest });
                if let Some((_, sockets)) = &mut self.gateway {
                    *sockets = fds;
                } else if !fds.is_empty() {
                    self.parking = Some(Parking::new(fds, id, key, landlock));
                }
                Ok(None)
            }
            Ok(Received::Message(FromCell::Parked, _)) => {
                self.parked = true;
                Ok(None)
            }
            Ok(Received::Message(FromCell::Failed(failure), _)) => Err(failure),
            Ok(Received::Message(message, _)) => Ok(Some(message)),
            Ok(Received::Closed) => Err(Failure::new("the cell is gone", "the keeper closed its connection")),
            Err(errno) => Err(Failure::os("cannot reach the cell", errno)),
        }
    }
}

impl Parking {
    /// As the zygote reads it: `Kit` in `sandbox-sys/zygote/lib.rs`.
    fn new(fds: Vec<OwnedFd>, id: Option<u32>, key: Option<EntryKey>, landlock: bool) -> Self {
        let groups = fds.len().saturating_sub(8 + usize::from(landlock));
        let words =
            [u32::from(landlock), u32::try_from(groups).unwrap_or(u32::MAX), id.is_some().into(), id.unwrap_or(0)];
        let mut message = [0; 24];
        for (bytes, word) in message.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        message[16..].copy_from_slice(&key.map_or(0, |key| key.0).to_ne_bytes());
        Self { message, fds }
    }
}

impl AsFd for Cell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `/dev/null`, for streams that are not wanted.
pub fn null() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}
