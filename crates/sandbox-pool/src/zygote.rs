//! Zygotes: interpreters that were warmed up, and are forked into a fresh cell for each run.
//!
//! A zygote is an ordinary program in a cell of a special kind ([`Role::Zygote`]). It says when it is warm, and from then
//! on it is sent cells to fork a child into. The child waits there, locked, for what a run wants of it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair,
};
use sandbox_base::RelativePath;
use sandbox_base::limits::{Caps, LimitKind, Limits};
use sandbox_base::wait::is_readable;
use sandbox_cell::archive::Archive;
use sandbox_cell::{Cell, CellSpec, Failure, Keeper, Layer, Network, Role, Start, Stdio, ZygoteNamespaceId, null};
use sandbox_runtimes::{RESULT_DIR, RUNNER_FILE, ZYGOTE_LIBRARY_FILE};
use sandbox_zygote::protocol::{GREETING, MOST_FDS};
use sandbox_zygote::{LARGE_PAGES_FILE, ZYGOTE_LIBRARY};

use crate::failure;
use crate::prestart::Prestart;

/// A zygote that is warm. Dropping it ends it, and every cell in its zygote namespace.
#[derive(Debug)]
pub(crate) struct Zygote {
    _cell: Cell,
    control: OwnedFd,
    namespace: ZygoteNamespaceId,
}

/// The time limit for a zygote to warm up.
const WARM_UP: Duration = Duration::from_secs(60);

/// The time limit for a child to enter its cell.
const ENTER: Duration = Duration::from_secs(10);

/// The most memory of a zygote. What its children do not change is counted here and not there.
const MEMORY: u64 = 1 << 30;

impl Zygote {
    /// Whether there are zygotes on this architecture.
    pub(crate) const POSSIBLE: bool = !ZYGOTE_LIBRARY.is_empty();

    /// Starts a zygote for cells like `spec` and waits until it is warm.
    pub(crate) fn start(keeper: &Keeper, spec: &CellSpec, prestart: &Prestart) -> Result<Self, Failure> {
        let internal = |error: std::io::Error| failure("cannot start a zygote", &error);
        let gone = || Failure::new("a zygote did not get warm", "it ended");
        let mut limits = Limits::default();
        let longest = LimitKind::WallTime.info().most;
        for (kind, value) in [(LimitKind::Memory, MEMORY), (LimitKind::WallTime, longest), (LimitKind::Cpus, 2_000)] {
            let _ = limits.set(kind, value, &Caps::default());
        }
        let role = Role::Zygote;
        // Children keep its syscall filter, so it may make the sockets that they may. There is nothing to reach from it.
        let network = if spec.network == Network::None { Network::None } else { Network::Localhost };
        let mut volumes = spec.volumes.clone();
        volumes.retain(|volume| volume.target == Path::new(RESULT_DIR) && prestart.runner_file.is_some());
        let spec = CellSpec { role, limits, network, volumes, slots: vec![], ..spec.clone() };
        let mut cell = keeper.create(&spec)?;
        let ready = cell.ready()?;
        let namespace = ready.zygote_namespace.ok_or_else(gone)?;
        let files = files(prestart, ready.isolation.contains(Layer::Memory)).map_err(internal)?;
        let (control, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| internal(errno.into()))?;
        let null = null().map_err(internal)?;
        let stdio = Stdio { stdin: null.as_fd(), stdout: null.as_fd(), stderr: null.as_fd() };
        let extra = Some(theirs.as_fd());
        cell.start(&Start { extra, files: Some(&files), last: true, ..Start::new(&prestart.command, stdio) })?;
        drop(theirs);
        let zygote = Self { _cell: cell, control, namespace };
        if !zygote.is_readable(WARM_UP) || !zygote.says_something() {
            return Err(gone());
        }
        Ok(zygote)
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_readable(Duration::ZERO)
    }

    fn is_readable(&self, patience: Duration) -> bool {
        // A zygote that ends closes its end of this.
        is_readable(&[&self.control], patience)
    }

    fn says_something(&self) -> bool {
        let (mut buffer, mut none) = ([0; GREETING.len()], RecvAncillaryBuffer::default());
        let received = recvmsg(&self.control, &mut [IoSliceMut::new(&mut buffer)], &mut none, RecvFlags::DONTWAIT);
        received.is_ok_and(|message| message.bytes == GREETING.len()) && buffer == GREETING
    }

    /// Begins to make a cell like `spec` for a child.
    pub(crate) fn make(&self, keeper: &Keeper, spec: &CellSpec) -> Result<Cell, Failure> {
        keeper.create(&CellSpec { role: Role::Child(self.namespace), ..spec.clone() })
    }

    /// Has a child forked into a cell that was made for one.
    pub(crate) fn enter(&self, cell: &mut Cell) -> Result<(), Failure> {
        let Some(parking) = cell.take_parking()? else { return Ok(()) };
        let fds: Vec<_> = parking.fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&self.control, &[IoSlice::new(&parking.message)], &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|errno| failure("cannot reach the zygote", &errno.into()))
    }

    /// Waits until the child is in its cell.
    pub(crate) fn wait(cell: &mut Cell) -> Result<(), Failure> {
        cell.wait_until_parked(ENTER)
    }
}

/// The files that a zygote needs besides an interpreter.
fn files(prestart: &Prestart, large_pages: bool) -> std::io::Result<Archive> {
    let mut files = Archive::new()?;
    let path = |name: &str| RelativePath::new(name).map_err(std::io::Error::other);
    files.add(path(ZYGOTE_LIBRARY_FILE)?, true, ZYGOTE_LIBRARY)?;
    if large_pages {
        files.add(path(LARGE_PAGES_FILE)?, false, &[][..])?;
    }
    if let Some(text) = &prestart.runner_file {
        let mut content = Archive::new()?;
        content.add(path(RUNNER_FILE)?, false, text.as_bytes())?;
        files.add_volume(0, &mut content.into_file())?;
    }
    Ok(files)
}
