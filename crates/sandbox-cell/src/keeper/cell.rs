//! A cell, as its caller sees it: a connection to the keeper.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use sandbox_zygote::protocol::EnterParams;

use super::{DELETE, KeeperProcess, wait_for};
use crate::archive::{Archive, FileCaps};
use crate::error::Failure;
use crate::layer::LayerSet;
use crate::outcome::{Outcome, StopReason, Usage};
use crate::spec::{CellSpec, Command, Gateway, Mount, Network, ZygoteNamespaceId};
use crate::stdio;
use crate::syscalls::EntryKey;
use crate::wire::{self, FromCell, Received, RunParams, ToCell};
use sandbox_base::limits::Limits;
use sandbox_base::wait::is_readable;

/// How long a cell may take to become ready, with any backend. The keeper gives up earlier.
const READY: Duration = Duration::from_secs(65);

/// The time limit of the keeper's answer about the usage of a cell.
const SAMPLE: Duration = Duration::from_secs(10);

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
    pub collect: Option<(FileCaps, BorrowedFd<'a>)>,
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
    /// The zygote namespace, if it is a zygote's.
    pub zygote_namespace: Option<ZygoteNamespaceId>,
}

/// The message, with descriptors, with which a zygote forks a child into a cell.
#[derive(Debug)]
pub struct Parking {
    /// What the zygote has to be told: a message, and the descriptors that go with it.
    pub message: [u8; EnterParams::SIZE],
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
    /// Its gateway with its sockets, until they are taken.
    gateway: Option<(Gateway, Vec<OwnedFd>)>,
    has_terminal: bool,
    /// The caller's end of its terminal, until it is taken.
    terminal: Option<OwnedFd>,
    buffer: Vec<u8>,
    /// The data with which a zygote enters it, until it is taken.
    parking: Option<Parking>,
    /// Whether a zygote's child waits in it.
    parked: bool,
    /// An end that arrived while waiting for something else.
    ended: Option<Box<Outcome>>,
    /// The usage that the keeper last reported.
    sample: Option<Usage>,
    /// Dropped last: a keeper ends after its cells.
    keeper: Arc<KeeperProcess>,
}

impl Cell {
    /// A cell that a keeper has been asked for.
    pub(super) fn new(socket: OwnedFd, spec: &CellSpec, keeper: Arc<KeeperProcess>) -> Self {
        let gateway = match &spec.network {
            Network::Gateway(gateway) => Some((gateway.clone(), vec![])),
            Network::None | Network::Localhost => None,
        };
        let (has_terminal, terminal) = (spec.terminal.is_some(), None);
        let (ready, parking, parked, ended, sample, buffer) = (None, None, false, None, None, vec![0; 4096]);
        Self { socket, ready, gateway, has_terminal, terminal, buffer, parking, parked, ended, sample, keeper }
    }

    /// Waits until the cell is ready and returns its properties.
    pub fn ready(&mut self) -> Result<Ready, Failure> {
        self.ready_unless(&[])?.ok_or_else(|| Failure::new("the cell did not get ready", "the wait was cancelled"))
    }

    /// The same, unless one of `cancel` becomes readable first: then there is no answer.
    pub fn ready_unless(&mut self, cancel: &[BorrowedFd<'_>]) -> Result<Option<Ready>, Failure> {
        let until = Instant::now() + READY;
        loop {
            if let Some(ready) = self.ready {
                return Ok(Some(ready));
            }
            if !cancel.is_empty() {
                let fds: Vec<_> = [self.socket.as_fd()].into_iter().chain(cancel.iter().copied()).collect();
                let arrived = is_readable(&fds, until.saturating_duration_since(Instant::now()));
                if is_readable(cancel, Duration::ZERO) {
                    return Ok(None);
                }
                // A signal ends a wait early.
                if !arrived && Instant::now() < until {
                    continue;
                }
            }
            self.wait_until(until, "the cell did not get ready")?;
            if let Some(FromCell::Ended(outcome)) = self.receive()? {
                self.ended = Some(outcome);
            }
        }
    }

    /// What the cell is made of, if it has been heard to be ready.
    #[must_use]
    pub fn is_ready(&self) -> Option<Ready> {
        self.ready
    }

    /// Starts a command as soon as the cell is ready, and returns at once; [`Cell::wait`] returns its outcome. A cell
    /// runs one command at a time.
    pub fn start(&self, start: &Start<'_>) -> Result<(), Failure> {
        let Start { command, stdio, mounts, limits, extra, files, collect, last } = start;
        let command = command_file(command)?;
        let mut fds = vec![command.as_fd(), stdio.stdin, stdio.stdout, stdio.stderr];
        fds.extend(*extra);
        let files = files.filter(|files| !files.is_empty());
        fds.extend(files.map(|files| files.as_file().as_fd()));
        fds.extend(collect.map(|(_, pipe)| pipe));
        let collect = collect.map(|(caps, _)| caps);
        let (limits, extra, files) = (limits.cloned(), extra.is_some(), files.is_some());
        let run = RunParams { limits, extra, files, collect, last: *last };
        self.say(&ToCell::Run { run: Box::new(run), mounts: mounts.to_vec() }, &fds)
    }

    /// The sockets of a cell with a gateway, once it is ready. Their holder decides what the cell can reach.
    pub fn take_gateway(&mut self) -> Result<Option<GatewaySockets>, Failure> {
        self.ready()?;
        let Some((gateway, sockets)) = self.gateway.take() else { return Ok(None) };
        let mut sockets = sockets.into_iter();
        let mut next = |wanted: bool| if wanted { sockets.next() } else { None };
        let (proxy, dns) = (next(gateway.proxy), next(gateway.dns));
        Ok(Some(GatewaySockets { proxy, dns, ports: sockets.collect() }))
    }

    /// The caller's end of the terminal of a cell that has one ([`CellSpec::terminal`]), once it is ready: what is written
    /// to it is typed, and what the program prints can be read. The streams of a command are then not used.
    pub fn take_terminal(&mut self) -> Result<Option<OwnedFd>, Failure> {
        self.ready()?;
        Ok(self.terminal.take())
    }

    /// What a zygote needs to fork a child into the cell, once it is ready. For cells that are made for that.
    pub fn take_parking(&mut self) -> Result<Option<Parking>, Failure> {
        self.ready()?;
        Ok(self.parking.take())
    }

    /// Waits until a zygote's child waits in the cell, but not longer than this.
    pub fn wait_until_parked(&mut self, patience: Duration) -> Result<(), Failure> {
        let until = Instant::now() + patience;
        while !self.parked {
            self.wait_until(until, "no zygote has entered the cell")?;
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for a message; if none comes in time, `what` did not happen.
    fn wait_until(&self, until: Instant, what: &str) -> Result<(), Failure> {
        match wait_for(&self.socket, until) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(what, "it took too long")),
            Err(errno) => Err(Failure::os("cannot wait for the cell", errno)),
        }
    }

    /// Runs a command to its end. For callers that follow no streams.
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
        self.sample = None;
        self.ask()?;
        let until = Instant::now() + SAMPLE;
        loop {
            if let Some(usage) = self.sample.take() {
                return Ok(usage);
            }
            self.wait_until(until, "the keeper did not say what the cell has used")?;
            if let Some(FromCell::Ended(outcome)) = self.receive()? {
                self.ended = Some(outcome);
            }
        }
    }

    /// Asks for the usage of the cell up to now, without waiting for the answer.
    pub fn ask(&self) -> Result<(), Failure> {
        self.say(&ToCell::Sample, &[])
    }

    /// The answer to [`Cell::ask`], once [`Cell::poll`] has taken it in.
    pub fn take_sample(&mut self) -> Option<Usage> {
        self.sample.take()
    }

    /// Gives up a cell that does not end. It counts as lost ([`crate::Keeper::lost_cells`]) until nothing is left of it.
    pub fn abandon(self) {
        /// More than the keeper has cells.
        const MOST: usize = 2048;
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        let mut lost = self.keeper.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.len() < MOST {
            lost.push(self.socket);
        }
    }

    /// Deletes the cell and returns when nothing of it is left: no process, mount or control group.
    pub fn delete(mut self) -> Result<(), Failure> {
        let failed = |errno| Failure::os("cannot delete the cell", errno);
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write).map_err(failed)?;
        let until = Instant::now() + DELETE;
        self.wait_until(until, "the cell cannot be deleted yet")?;
        while let Received::Message(_, _) =
            wire::receive::<FromCell>(&self.socket, &mut self.buffer, RecvFlags::empty()).map_err(failed)?
        {
            self.wait_until(until, "the cell cannot be deleted yet")?;
        }
        Ok(())
    }

    fn say(&self, message: &ToCell, fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        wire::send(&self.socket, message, fds, SendFlags::empty())
            .or_else(|errno| match errno {
                // The keeper has given the cell up; its reason is waiting to be received.
                Errno::PIPE | Errno::CONNRESET => Ok(()),
                errno => Err(errno),
            })
            .map_err(|errno| Failure::os("cannot reach the cell", errno))
    }

    /// Receives a message; keeps for itself that the cell is ready.
    fn receive(&mut self) -> Result<Option<FromCell>, Failure> {
        match wire::receive(&self.socket, &mut self.buffer, RecvFlags::empty()) {
            Ok(Received::Message(
                FromCell::Ready { isolation, prepare, zygote_namespace, id, key, landlock },
                mut fds,
            )) => {
                if self.has_terminal {
                    self.terminal = fds.pop();
                }
                self.ready = Some(Ready { isolation, prepare, zygote_namespace });
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
            Ok(Received::Message(FromCell::Sample(usage), _)) => {
                self.sample = Some(usage);
                Ok(None)
            }
            Ok(Received::Message(FromCell::Failed(failure), _)) => Err(failure),
            Ok(Received::Message(message, _)) => Ok(Some(message)),
            Ok(Received::Closed) if self.keeper.is_ending() => Err(Failure::of_keeper("the cell is gone")),
            Ok(Received::Closed) => Err(Failure::new("the cell is gone", "the keeper closed its connection")),
            Err(errno) => Err(self.keeper.failure("cannot reach the cell", errno)),
        }
    }
}

/// A command in the file in which init gets it.
fn command_file(command: &Command) -> Result<OwnedFd, Failure> {
    wire::command_file(command).map_err(|errno| match errno {
        Errno::TOOBIG => Failure::of_request("cannot run the command", "its arguments and environment exceed 128 KiB"),
        errno => Failure::os("cannot write the command down", errno),
    })
}

impl Parking {
    fn new(fds: Vec<OwnedFd>, id: Option<u32>, key: Option<EntryKey>, landlock: bool) -> Self {
        let mut params = EnterParams { landlock, groups: 0, id, key: key.map_or(0, |key| key.0) };
        params.groups = u32::try_from(fds.len().saturating_sub(params.first_group())).unwrap_or(u32::MAX);
        Self { message: params.encode(), fds }
    }
}

impl AsFd for Cell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `/dev/null`, for streams that are not wanted.
pub fn null() -> std::io::Result<File> {
    Ok(stdio::open_null()?.into())
}
