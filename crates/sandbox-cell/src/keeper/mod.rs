//! The keeper, as its callers see it.
//!
//! [`Keeper::start`] executes the keeper process; from then on the caller needs no privilege. [`Keeper::create`] makes
//! a [`Cell`], which is a connection: dropping it deletes the cell. If the caller dies, its connections close, the
//! keeper deletes every cell and ends. If the keeper dies, its cells end with it; a long-lived caller starts it with
//! [`Keeper::start_replaceable`] and gets another by [`Keeper::replace`].

mod bridges;
mod cell;
mod deadlines;
mod factory;
mod ids;
mod launch;
mod launcher;
mod networks;
mod privilege;
mod reduced;
mod serve;
mod supervise;
mod user_namespaces;
mod zygote_namespace;

pub use cell::{Cell, GatewaySockets, Parking, Ready, Start, Stdio, null};
pub use launch::keeper_main_if_asked;
pub(crate) use serve::IGNORED_SIGNALS;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::WaitIdOptions;

use self::launch::PrivilegedRole;
use self::launcher::KeeperLauncher;
use crate::bridge::BridgeMain;
use crate::error::Failure;
use crate::spec::CellSpec;
use crate::wire::{self, Sources, ToKeeper};
use sandbox_base::wait::{is_readable, timespec};

/// A running keeper process. When it and all its cells are dropped, that waits until it has ended, with nothing left.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<KeeperHandle>);

#[derive(Debug)]
struct KeeperHandle {
    /// The process that makes cells now. Cells belong to the one that made them.
    current: RwLock<Arc<KeeperProcess>>,
    /// Starts the next one, if this can be replaced.
    launcher: Option<Arc<KeeperLauncher>>,
}

#[derive(Debug)]
struct KeeperProcess {
    control: OwnedFd,
    pidfd: OwnedFd,
    /// Connections of cells that were lost; the keeper closes its ends when nothing is left of them.
    lost: Mutex<Vec<OwnedFd>>,
    /// Dropped last: a launcher ends after its keepers.
    _launcher: Option<Arc<KeeperLauncher>>,
}

/// How long it may take until nothing is left of a cell, or of a keeper with all its cells.
const DELETE: Duration = Duration::from_secs(10);

/// How long a keeper whose connections have closed takes at most to be seen as ended.
const END: Duration = Duration::from_millis(500);

/// The same when one of the keeper's cells is lost, which may take for ever.
const LEAVE: Duration = Duration::from_millis(100);

impl Keeper {
    /// Starts a keeper with the privileges of this process: this program again, executed anew, so that nothing in the memory
    /// or the environment of this process reaches cells. The program's `main` must begin with [`keeper_main_if_asked`].
    pub fn start() -> Result<Self, Failure> {
        let (ours, theirs) = patient_pair().map_err(|errno| Failure::os("cannot start the keeper", errno))?;
        let pidfd = launch::start(PrivilegedRole::Keeper, theirs)?.pidfd;
        Ok(Self::new(ours, pidfd, None))
    }

    /// Starts a keeper as a fork of this process, for commands that run once: cheaper than [`Keeper::start`].
    ///
    /// The program's `main` must begin with it, but for [`keeper_main_if_asked`], before it reads an argument or a variable:
    /// the keeper erases both where the kernel has put them, and cannot erase copies.
    pub fn start_first(bridge: Option<BridgeMain>) -> Result<Self, Failure> {
        let (ours, theirs) = patient_pair().map_err(|errno| Failure::os("cannot start the keeper", errno))?;
        let pidfd = launch::fork(&theirs, bridge)?.pidfd;
        Ok(Self::new(ours, pidfd, None))
    }

    /// Like [`Keeper::start`], but of a small process that keeps these privileges, and can start another keeper ([`Keeper::replace`]) when
    /// this process has dropped its own.
    pub fn start_replaceable() -> Result<Self, Failure> {
        let launcher = Arc::new(KeeperLauncher::start()?);
        let (control, pidfd) = launcher.launch()?;
        Ok(Self::new(control, pidfd, Some(launcher)))
    }

    fn new(control: OwnedFd, pidfd: OwnedFd, launcher: Option<Arc<KeeperLauncher>>) -> Self {
        let current = RwLock::new(Arc::new(KeeperProcess::new(control, pidfd, launcher.clone())));
        Self(Arc::new(KeeperHandle { current, launcher }))
    }

    fn current(&self) -> Arc<KeeperProcess> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts another keeper in place of one that has ended, with the same backend and confinement. Nothing is left of the
    /// cells of the last one when this returns. Blocks for a moment.
    pub fn replace(&self) -> Result<(), Failure> {
        let Some(launcher) = &self.0.launcher else {
            return Err(Failure::new("cannot start the keeper", "this program cannot replace it"));
        };
        let (control, pidfd) = launcher.launch()?;
        let next = Arc::new(KeeperProcess::new(control, pidfd, Some(Arc::clone(launcher))));
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Whether [`Keeper::replace`] can work: the process that starts keepers has not ended.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        self.0.launcher.as_ref().is_some_and(|launcher| launcher.is_alive())
    }

    /// A descriptor that becomes readable when the keeper process of this moment ends.
    pub fn end_notice(&self) -> std::io::Result<OwnedFd> {
        self.current().pidfd.try_clone()
    }

    /// Asks for a cell and returns at once: it is made while the caller prepares a command. If it cannot be made, the
    /// first call that waits for it ([`Cell::ready`], [`Cell::wait`], [`Cell::run`], [`Cell::metrics`]) says why.
    /// Several threads may do this at once.
    pub fn create(&self, spec: &CellSpec) -> Result<Cell, Failure> {
        const WHAT: &str = "cannot make the cell";
        let (ours, theirs) = patient_pair().map_err(|errno| Failure::os(WHAT, errno))?;
        let keeper = self.current();
        wire::send(&keeper.control, &ToKeeper::Create(Box::new(spec.clone())), &[theirs.as_fd()], SendFlags::empty())
            .map_err(|errno| keeper.failure(WHAT, errno))?;
        drop(theirs);
        Ok(Cell::new(ours, spec, keeper))
    }

    /// How many cells neither answer nor die, as far as their callers know.
    #[must_use]
    pub fn lost_cells(&self) -> usize {
        self.current().lost_cells()
    }

    /// Forbids all cells from now on to be shown anything else of the host than this and what is below it. It cannot be
    /// taken back, so that an attacker who takes over a confined caller gets no further through the keeper.
    pub fn confine(&self, sources: &Sources) -> Result<(), Failure> {
        self.tell(ToKeeper::Confine(sources.clone()))
    }

    /// Has all cells from now on served by bridges, which get these settings, or by the keeper itself again.
    pub fn use_bridges(&self, settings: Option<Vec<u8>>) -> Result<(), Failure> {
        self.tell(ToKeeper::UseBridges(settings))
    }

    /// Says that this process is in a container that was made for one cell: everything is where cells have it.
    pub fn contain(&self) -> Result<(), Failure> {
        self.tell(ToKeeper::Contain)
    }

    fn tell(&self, message: ToKeeper) -> Result<(), Failure> {
        let keeper = self.current();
        wire::send(&keeper.control, &message, &[], SendFlags::empty())
            .map_err(|errno| keeper.failure("cannot reach the keeper", errno))?;
        self.0.launcher.as_ref().map_or(Ok(()), |launcher| launcher.remember(message))
    }

    /// Whether the keeper process has not ended. Asks the kernel only, so that it costs next to nothing.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !is_readable(&[&self.current().pidfd], Duration::ZERO)
    }

    /// Says that no more cells will be asked for: the keeper ends with its last cell, and need not be told again.
    pub fn close(&self) {
        self.current().close();
    }
}

impl KeeperProcess {
    fn new(control: OwnedFd, pidfd: OwnedFd, launcher: Option<Arc<KeeperLauncher>>) -> Self {
        Self { control, pidfd, lost: Mutex::default(), _launcher: launcher }
    }

    fn close(&self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Write);
    }

    /// Whether the process has ended or, its connections being closed, is about to.
    fn is_ending(&self) -> bool {
        is_readable(&[&self.pidfd], END)
    }

    /// Why the keeper could not be reached.
    fn failure(&self, what: &str, errno: Errno) -> Failure {
        match errno {
            Errno::PIPE | Errno::CONNRESET if self.is_ending() => Failure::of_keeper(what),
            errno => Failure::os(what, errno),
        }
    }

    fn lost_cells(&self) -> usize {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|socket| {
            let mut fds = [PollFd::new(socket, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&timespec(Duration::ZERO)));
            !fds[0].revents().contains(PollFlags::HUP)
        });
        lost.len()
    }
}

impl Drop for KeeperProcess {
    fn drop(&mut self) {
        self.close();
        // The keeper is waited for, not left to PID 1: in many containers, PID 1 is a program that does not expect
        // children. A keeper whose cells do not die continues without this process, so that their ids stay taken.
        let patience = if self.lost_cells() > 0 { LEAVE } else { DELETE };
        let _ = wait_for(&self.pidfd, Instant::now() + patience);
        let pidfd = rustix::process::WaitId::PidFd(self.pidfd.as_fd());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        while let Err(Errno::INTR) = rustix::process::waitid(pidfd.clone(), options) {}
    }
}

/// A connected pair. Sending at our end, the first, fails if the other end does not read for long.
fn patient_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    const SEND: Duration = Duration::from_secs(2);
    let (ours, theirs) = wire::pair()?;
    set_socket_timeout(&ours, Timeout::Send, Some(SEND))?;
    Ok((ours, theirs))
}

/// Waits until there is something to read, or an end. False if there is nothing in time.
fn wait_for(fd: impl AsFd, until: Instant) -> rustix::io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timespec(left))) {
            Err(Errno::INTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}
