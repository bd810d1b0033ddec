//! The keeper process: creates cells, supervises them, deletes them.
//!
//! # Theory of operation
//!
//! The keeper is a single thread in one loop around `epoll`. It waits for requests on the control connection, for
//! messages from each cell's caller and init, for each init's end (a pidfd), for memory alarms, and for the nearest
//! deadline. It never waits for one cell while another needs it, never reads a program's output, and never opens a path
//! that a program could have shaped.
//!
//! A cell is **idle**, **running** or **dying**. A dying cell has no init any more, and so no process in its PID
//! namespace; its cgroup is removed once the last process is gone. A new cell is not ready at first: init locks itself
//! and asks for its ids meanwhile. In every state the caller can close its connection, which makes the cell dying. The
//! keeper closes its own end only when nothing is left. When the control connection closes, no more cells will be
//! created, and the keeper exits with its last cell.
//!
//! A cell whose init survives SIGKILL (it is blocked in the kernel, or frozen) is **lost**: its caller gets an answer,
//! and the cell stays dying, with its ids and its cgroup, until the kernel releases it. Nothing waits for it except a
//! descriptor in the loop. Too many lost cells indicate a broken host, and the keeper creates no more cells.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_send_signal};
use sandbox_sys::process::{Child, SingleThreaded};

use super::bridges::Bridges;
use super::deadlines::Deadlines;
use super::factory::{CellFactory, kill_and_wait};
use super::ids::CellIds;
use super::supervise::{BootPhase, CellEntry, CellState, ClearingCell, PendingRun};
use super::zygote_namespace::ZygoteNamespace;
use crate::bridge::BridgeMain;
use crate::cgroup::Alarm;
use crate::descendants;
use crate::error::Failure;
use crate::spec::{CellSpec, Role};
use crate::stdio;
use crate::step::MAX_REPORT;
use crate::wire::{self, FromCell, FromInit, Received, ToCell, ToKeeper};
use sandbox_base::wait::timespec;

/// Signals that the keeper ignores, and that every init resets.
pub(crate) const IGNORED_SIGNALS: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTSTP];

/// The source of an event: the low bits of an epoll token. The higher bits are the cell's number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventSource {
    Caller,
    Init,
    Alarm,
    Exit,
}

const CONTROL: u64 = u64::MAX;

/// The maximum number of lost cells; at this number no more cells are created.
const MOST_LOST: usize = 64;

/// The most cells whose files are being removed before no more are created.
const MOST_CLEARING: usize = if cfg!(test) { 3 } else { 64 };

/// How long the removal of a dead cell is delayed while the CPU may be needed for requests.
const LATER: Duration = Duration::from_millis(1);

fn token(number: u64, source: EventSource) -> epoll::EventData {
    epoll::EventData::new_u64(number << 2 | source as u64)
}

struct KeeperServer<'a> {
    control: &'a OwnedFd,
    epoll: OwnedFd,
    factory: Result<CellFactory, Failure>,
    cells: HashMap<u64, CellEntry>,
    /// When cells next need attention. Most cells of a pool are idle and have no deadline.
    deadlines: Deadlines,
    /// Dead cells whose directories are being removed.
    clearing: HashMap<u64, ClearingCell>,
    /// The bridges to cells of other backends.
    bridges: Bridges,
    /// Processes other than inits that will end by themselves or were killed, to be reaped when they have ended.
    leaving: HashMap<u64, Child>,
    next: u64,
    /// Whether the control connection has closed.
    closing: bool,
    /// Whether the cgroups of killed keepers have been swept.
    swept: bool,
    buffer: Vec<u8>,
}

/// The keeper's main function: serves until its caller is gone and its last cell is deleted.
pub(super) fn main(alone: SingleThreaded, control: &OwnedFd, bridge: Option<BridgeMain>) -> Result<(), Errno> {
    detach(control, c"sandbox-keeper")?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, control, epoll::EventData::new_u64(CONTROL), epoll::EventFlags::IN)?;
    let mut server = KeeperServer {
        control,
        epoll,
        factory: CellFactory::open(alone),
        cells: HashMap::new(),
        deadlines: Deadlines::default(),
        clearing: HashMap::new(),
        bridges: Bridges::new(bridge),
        leaving: HashMap::new(),
        next: 0,
        closing: false,
        swept: false,
        buffer: vec![0; wire::MAX_MESSAGE],
    };
    let result = server.run();
    // The cells of this keeper may all have ended without an answer from their inits.
    if server.next > 0 {
        server.sweep();
    }
    if let Ok(factory) = &server.factory {
        factory.tree.remove();
    }
    result
}

/// Leaves the caller's session, streams and signals: a Ctrl-C is for the caller, which then notifies the keeper.
pub(super) fn detach(control: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    let _ = rustix::thread::set_name(name);
    let _ = rustix::process::setsid();
    // The kernel counts descriptors in flight per user, and compares the count with the limit of the sender. Cells that
    // share the keeper's user must not keep it from sending, so they get a separate limit.
    let files = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    sandbox_sys::signal::reset(sandbox_sys::signal::CLASSIC);
    sandbox_sys::signal::ignore(IGNORED_SIGNALS);
    sandbox_sys::process::close_all_except(&[control.as_fd()])?;
    stdio::let_go_of_input_and_output()
}

impl KeeperServer<'_> {
    fn run(&mut self) -> Result<(), Errno> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        while !(self.closing && self.is_empty()) {
            // epoll counts in whole milliseconds here: round up, or the last millisecond is spent spinning.
            let round_up = Duration::from_micros(999);
            let left = |at: Instant| timespec(at.saturating_duration_since(Instant::now()) + round_up);
            let timeout = self.deadlines.nearest().map(left);
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            // Existing cells come first, because creating another takes a while.
            let tokens = || events.iter().map(|event| event.data.u64());
            for token in tokens().filter(|token| *token != CONTROL) {
                self.on_cell(token >> 2, token & 3);
                self.schedule(token >> 2);
            }
            if tokens().any(|token| token == CONTROL) {
                self.on_control();
            }
            self.on_time();
            debug_assert_eq!(self.deadlines.nearest(), self.cells.values().filter_map(CellEntry::deadline).min());
        }
        Ok(())
    }

    /// Removes the cgroups of killed keepers, once, when no answer is due.
    fn sweep(&mut self) {
        if let (false, Ok(factory)) = (std::mem::replace(&mut self.swept, true), &self.factory) {
            factory.tree.sweep();
        }
    }

    /// Whether nothing is left to supervise.
    fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.clearing.is_empty() && self.bridges.is_empty() && self.leaving.is_empty()
    }

    /// Notes when a cell next needs attention. To be called after everything that may have changed that.
    fn schedule(&mut self, number: u64) {
        self.deadlines.set(number, self.cells.get(&number).and_then(CellEntry::deadline));
    }

    /// A request for a cell, or the end of requests.
    fn on_control(&mut self) {
        match wire::receive(self.control, &mut self.buffer, RecvFlags::DONTWAIT) {
            Ok(Received::Message(ToKeeper::Create(spec), mut fds)) => {
                if let Some(caller) = fds.pop() {
                    self.create(*spec, caller);
                }
            }
            Ok(Received::Message(ToKeeper::Confine(sources), _)) => {
                // The programs of other backends need system calls that the filter refuses.
                let lock = !self.bridges.are_wanted();
                if let Ok(factory) = &mut self.factory
                    && factory.confine(sources, lock).is_err()
                {
                    // An unconfined keeper must not serve a caller that believes it is confined.
                    sandbox_sys::process::exit_now(1);
                }
            }
            Ok(Received::Message(ToKeeper::UseBridges(settings), _)) => {
                // The message names programs to start: a confined caller may not choose them any more.
                if self.factory.as_ref().is_ok_and(|factory| !factory.is_confined()) {
                    self.bridges.settings = settings;
                }
            }
            Ok(Received::Message(ToKeeper::Contain, _)) => {
                if let Ok(factory) = &mut self.factory {
                    factory.contained = true;
                }
            }
            Ok(Received::Message(ToKeeper::Launched { caller, predecessor }, _)) => {
                if let Ok(factory) = &mut self.factory {
                    factory.launched(caller, predecessor.as_deref());
                }
            }
            Err(Errno::AGAIN) => {}
            Ok(Received::Closed) | Err(_) => {
                self.closing = true;
                let _ = epoll::delete(&self.epoll, self.control);
            }
        }
    }

    fn create(&mut self, spec: CellSpec, caller: OwnedFd) {
        let number = self.next;
        let reply = caller.try_clone();
        let lost = match self.cells.len() {
            ..MOST_LOST => 0,
            _ => self.cells.values().filter(|cell| cell.is_lost()).count(),
        };
        if lost >= MOST_LOST {
            let why = format!("{lost} cells survive SIGKILL; check the kernel log of the host");
            let failed = FromCell::Failed(Failure::new("cannot create the cell", why));
            let _ = wire::send(&caller, &failed, &[], SendFlags::DONTWAIT);
            return;
        }
        // Their files take room on the disk, which must not grow with every run.
        let clearing = self.clearing.len();
        if clearing >= MOST_CLEARING {
            let why = format!("the files of {clearing} earlier cells are still being removed; try again later");
            let failed = FromCell::Failed(Failure::new("cannot create the cell", why));
            let _ = wire::send(&caller, &failed, &[], SendFlags::DONTWAIT);
            return;
        }
        if let (Ok(factory), true) = (&mut self.factory, self.bridges.are_wanted()) {
            let bridged = self.bridges.add(factory, number, &spec, &caller).and_then(|pidfd| {
                let added = epoll::add(&self.epoll, pidfd, token(number, EventSource::Exit), epoll::EventFlags::IN);
                added.map_err(|errno| Failure::os("cannot watch the cell", errno))
            });
            self.next += 1;
            if let (Err(failure), Ok(caller)) = (bridged, reply) {
                let _ = wire::send(&caller, &FromCell::Failed(failure), &[], SendFlags::DONTWAIT);
            }
            return;
        }
        let zygote_namespace = match spec.role {
            Role::Child(zygote_namespace) => {
                self.cells.get(&zygote_namespace.0).and_then(|zygote| zygote.zygote_namespace.as_ref())
            }
            Role::Plain | Role::Zygote => None,
        };
        let made = match &mut self.factory {
            Ok(_) if zygote_namespace.is_none() && matches!(spec.role, Role::Child(_)) => {
                Err(Failure::new("cannot create the cell", "its zygote has ended"))
            }
            Ok(factory) => factory.make(number, spec, caller, zygote_namespace),
            Err(failure) => Err(failure.clone()),
        };
        let leaving = match &mut self.factory {
            Ok(factory) => std::mem::take(&mut factory.leaving),
            Err(_) => vec![],
        };
        let failure = match made {
            Ok(cell) => match self.watch(number, &cell) {
                Ok(()) => {
                    self.next += 1;
                    self.cells.insert(number, cell);
                    self.leave(leaving);
                    return;
                }
                Err(errno) => {
                    let gone = kill_and_wait(&cell.child);
                    let _ = cell.group.remove();
                    if let (Ok(factory), true) = (&mut self.factory, gone) {
                        factory.ids.give_back(cell.ids);
                    }
                    self.next += 1;
                    self.leave(cell.zygote_namespace.map(ZygoteNamespace::end));
                    Failure::os("cannot watch the cell", errno)
                }
            },
            Err(failure) => failure,
        };
        self.leave(leaving);
        if let Ok(caller) = reply {
            let _ = wire::send(&caller, &FromCell::Failed(failure), &[], SendFlags::DONTWAIT);
        }
    }

    /// Reaps processes as soon as they have ended.
    fn leave(&mut self, children: impl IntoIterator<Item = Child>) {
        for child in children {
            let number = self.next;
            self.next += 1;
            if epoll::add(&self.epoll, &child.pidfd, token(number, EventSource::Exit), epoll::EventFlags::IN).is_ok() {
                self.leaving.insert(number, child);
            }
        }
    }

    fn watch(&self, number: u64, cell: &CellEntry) -> rustix::io::Result<()> {
        let add = |fd, source, flags| epoll::add(&self.epoll, fd, token(number, source), flags);
        add(cell.caller.as_fd(), EventSource::Caller, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
        add(cell.init.as_fd(), EventSource::Init, epoll::EventFlags::IN)?;
        add(cell.child.pidfd.as_fd(), EventSource::Exit, epoll::EventFlags::IN)?;
        match cell.group.memory_alarm() {
            Some(Alarm::Readable(fd)) => add(fd, EventSource::Alarm, epoll::EventFlags::IN),
            Some(Alarm::Priority(fd)) => add(fd, EventSource::Alarm, epoll::EventFlags::PRI | epoll::EventFlags::ET),
            None => Ok(()),
        }
    }

    fn on_cell(&mut self, number: u64, source: u64) {
        if let Ok(factory) = &mut self.factory {
            self.bridges.on_exit(factory, number);
        }
        if let Some(child) = self.leaving.remove(&number) {
            reap(&child);
            return;
        }
        if source == EventSource::Exit as u64
            && let Some(cell) = self.clearing.remove(&number)
        {
            reap(&cell.helper);
            self.give_back(cell.ids);
            return;
        }
        let Some(cell) = self.cells.get_mut(&number) else { return };
        if source == EventSource::Caller as u64 {
            self.on_caller(number);
        } else if source == EventSource::Init as u64 {
            self.on_init(number);
        } else if source == EventSource::Alarm as u64 {
            cell.on_memory_alarm();
        } else {
            self.on_exit(number);
        }
    }

    fn on_caller(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number) else { return };
        match wire::receive(&cell.caller, &mut self.buffer, RecvFlags::DONTWAIT) {
            Ok(Received::Message(message, fds)) => match (message, &cell.state) {
                (ToCell::Run { run, mounts }, CellState::Idle) => {
                    let allowed =
                        self.factory.as_ref().map_or(Ok(()), |shop| shop.check_late_mounts(&cell.spec, &mounts));
                    match allowed {
                        Ok(()) => cell.run(PendingRun { run, mounts, fds }),
                        Err(failure) => cell.tell(&FromCell::Failed(failure)),
                    }
                }
                (ToCell::Stop(reason), CellState::Running(_)) => cell.stop(reason),
                (ToCell::Stop(_), _) => {}
                (ToCell::Sample, _) => cell.sample(),
                // A second command while one runs.
                (ToCell::Run { .. }, _) => self.kill(number),
            },
            Err(Errno::AGAIN) => {}
            Ok(Received::Closed) | Err(_) => self.kill(number),
        }
    }

    /// Handles a message of init. Returns false when there is none.
    fn on_init(&mut self, number: u64) -> bool {
        let Some(cell) = self.cells.get_mut(&number) else { return false };
        let Ok(factory) = &self.factory else { return false };
        // Init is trusted, but runs among untrusted programs: its messages are small and bounded.
        let mut small = [0; MAX_REPORT];
        match wire::receive(&cell.init, &mut small, RecvFlags::DONTWAIT) {
            Ok(Received::Message(message, fds)) => match message {
                FromInit::NeedsMap if cell.boot == BootPhase::Building => {
                    if let Err(failure) = cell.map_ids(&factory.proc) {
                        cell.tell(&FromCell::Failed(failure));
                        self.kill(number);
                    }
                }
                FromInit::Ready { landlock } if cell.boot != BootPhase::Ready => cell.on_ready(number, landlock, &fds),
                FromInit::Parked => cell.on_parked(),
                // Once is enough.
                FromInit::NeedsMap | FromInit::Ready { .. } => self.kill(number),
                FromInit::Started => cell.on_started(),
                FromInit::LimitExceeded(kind) => cell.on_limit_exceeded(kind),
                FromInit::Ended(report) => {
                    cell.on_ended(&report);
                    // The caller has its answer, and the kernel tears the cell's namespaces down.
                    self.sweep();
                }
                FromInit::Failed(error) => {
                    let was_ready = cell.boot == BootPhase::Ready;
                    cell.on_failed(&error);
                    if !was_ready {
                        self.kill(number);
                    }
                }
            },
            Err(Errno::AGAIN) => return false,
            Ok(Received::Closed) | Err(_) => {
                let _ = epoll::delete(&self.epoll, &cell.init);
                return false;
            }
        }
        true
    }

    /// Kills a cell: when init dies, the kernel kills every process in its PID namespace.
    fn kill(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number) else { return };
        if let CellState::Dying { group: Some(_), .. } = cell.state {
            // Init is gone already, and the cell is about to be removed.
            return;
        }
        let _ = pidfd_send_signal(&cell.child.pidfd, Signal::KILL);
        if self.closing {
            let_go_of_stderr();
        }
        // A zygote's processes belong to its zygote namespace, not to its init.
        let zygote_namespace = cell.zygote_namespace.take();
        let _ = epoll::delete(&self.epoll, &cell.caller);
        if !matches!(cell.state, CellState::Dying { .. }) {
            cell.state = CellState::Dying { group: None, since: Instant::now() };
        }
        self.leave(zygote_namespace.map(ZygoteNamespace::end));
    }

    /// Init has ended, and with it everything in the cell.
    fn on_exit(&mut self, number: u64) {
        // Init's last messages may still be in the receive queue.
        while self.on_init(number) {}
        let Some(cell) = self.cells.get_mut(&number) else { return };
        cell.on_init_gone();
        let zygote_namespace = cell.zygote_namespace.take();
        let _ = epoll::delete(&self.epoll, &cell.child.pidfd);
        let _ = epoll::delete(&self.epoll, &cell.init);
        let _ = epoll::delete(&self.epoll, &cell.caller);
        reap(&cell.child);
        let now = Instant::now();
        // The caller that was just notified should not compete with this clean-up for a CPU.
        let when = if self.closing { now } else { now + LATER };
        cell.state = CellState::Dying { group: Some(when), since: now };
        self.leave(zygote_namespace.map(ZygoteNamespace::end));
    }

    /// Removes a dead cell's cgroup and forgets the cell, or tries again shortly, because the last process may still be
    /// exiting.
    fn remove_group(&mut self, number: u64) {
        const PATIENCE: Duration = Duration::from_secs(5);
        const SELDOM: Duration = Duration::from_secs(1);
        let left = self.cells.get(&number).is_some_and(CellEntry::shares_pids) && self.end_orphans() > 0;
        let Some(cell) = self.cells.get_mut(&number) else { return };
        let CellState::Dying { group, since } = &mut cell.state else { return };
        // The cgroup stays while it holds memory to reclaim.
        let reclaims = since.elapsed() < PATIENCE / 2 && cell.group.reclaim_some();
        let removed = !reclaims && cell.group.remove().is_ok();
        if left || !removed {
            let patient = since.elapsed() < PATIENCE;
            if patient || !self.closing {
                // The ids are not reused while a process has them.
                *group = Some(Instant::now() + if patient { Duration::from_millis(1) } else { SELDOM });
                return;
            }
        }
        let helper = if left { None } else { self.factory.as_ref().ok().and_then(|factory| factory.clear(number)) };
        // Otherwise it was removed, or is given up at the end: the next keeper sweeps it.
        let Some(CellEntry { caller, ids, .. }) = self.cells.remove(&number) else { return };
        if let Ok(factory) = &mut self.factory {
            factory.trim();
        }
        if let Some(helper) = helper
            && epoll::add(&self.epoll, &helper.pidfd, token(number, EventSource::Exit), epoll::EventFlags::IN).is_ok()
        {
            self.clearing.insert(number, ClearingCell { helper, ids, _caller: caller });
            if self.closing {
                let_go_of_stderr();
            }
            return;
        }
        self.give_back(ids);
    }

    /// Kills the remaining processes of cells without a PID namespace, which the keeper has adopted. Returns their number.
    fn end_orphans(&self) -> usize {
        // Spare the live inits, which end their processes themselves, and the keeper's own helpers.
        let helpers = self.leaving.values().chain(self.clearing.values().map(|cell| &cell.helper));
        let inits = self.cells.values().filter_map(CellEntry::living_init);
        let spared: Vec<_> = inits.chain(helpers.map(|child| child.pid)).collect();
        let own = rustix::process::getpid();
        let left = descendants::signal(own, &spared, Signal::KILL);
        descendants::each(own, &spared, |member| {
            if member.ended && member.parent == own {
                let _ = rustix::process::waitpid(Some(member.pid), WaitOptions::NOHANG);
            }
        });
        left
    }

    /// Lets other cells have the ids of a cell of which nothing is left, or nothing that this keeper can remove.
    fn give_back(&mut self, ids: CellIds) {
        if let Ok(factory) = &mut self.factory {
            factory.ids.give_back(ids);
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        for number in self.deadlines.due(now) {
            let Some(cell) = self.cells.get_mut(&number) else { continue };
            if let CellState::Dying { .. } = cell.state {
                self.remove_group(number);
            } else {
                cell.on_time(now);
                if self.closing && matches!(cell.state, CellState::Dying { .. }) {
                    let_go_of_stderr();
                }
            }
            self.schedule(number);
        }
    }
}

/// Closes the caller's standard error. A keeper whose last cell does not die outlives its caller, and a reader of the
/// caller's standard error must not wait for that.
fn let_go_of_stderr() {
    let _ = stdio::let_go_of_errors();
}

/// Reaps a child that has ended. A child of a zygote namespace cannot be reaped here.
fn reap(child: &Child) {
    let _ = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}
