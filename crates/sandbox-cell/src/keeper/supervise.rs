//! One cell as the keeper supervises it: its state, its deadlines, and the enforcement of its limits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, pidfd_send_signal};
use sandbox_sys::process::{Child, SingleThreaded};

use super::ids::CellIds;
use super::zygote_namespace::ZygoteNamespace;
use crate::cgroup::{Cgroup, Counters};
use crate::error::Failure;
use crate::layer::{Layer, LayerSet};
use crate::outcome::{CellEnd, Outcome, RunStatus, StopReason, Usage};
use crate::rootfs;
use crate::spec::{self, CellSpec, Mount, Network};
use crate::step::StepError;
use crate::syscalls::EntryKey;
use crate::wire::{self, FromCell, Report, RunParams, ToInit};
use sandbox_base::limits::{Caps, LimitKind, Limits};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);

/// How long init may take to create the input files and start the program.
const START: Duration = Duration::from_secs(60);

/// How long init may take to report after it was told to kill everything, before it is killed itself. Reaping takes a
/// moment; a program cannot prolong it.
const REPORT: Duration = Duration::from_secs(1);

/// How long a killed init may take to die before its cell counts as lost. With `GRACE` and `REPORT` this stays well
/// below the two seconds after the deadline within which a caller gets its answer in any case.
const DIE: Duration = Duration::from_millis(400);

/// The extra memory that init gets to collect the files, when every program is dead.
const COLLECTION: u64 = 32 << 20;

/// How long a cell may take to die before it counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// The shortest interval between two checks of the CPU time.
const LOOK: Duration = Duration::from_millis(5);

/// A cell.
pub(super) struct CellEntry {
    pub(super) caller: OwnedFd,
    pub(super) init: OwnedFd,
    pub(super) child: Child,
    pub(super) group: Cgroup,
    pub(super) ids: CellIds,
    pub(super) spec: CellSpec,
    pub(super) layers: LayerSet,
    pub(super) counts_cpu: bool,
    pub(super) began: Instant,
    /// Whether no command has run yet.
    pub(super) fresh: bool,
    /// The key with which a zygote enters, if the cell was created in a zygote namespace.
    pub(super) key: Option<EntryKey>,
    /// Its zygote namespace, if it is the cell of a zygote.
    pub(super) zygote_namespace: Option<ZygoteNamespace>,
    /// Its mount namespace, if it has slots and init has got that far.
    pub(super) root: Option<OwnedFd>,
    pub(super) alone: SingleThreaded,
    pub(super) boot: BootPhase,
    /// A command that arrived before init could take it.
    pub(super) pending: Option<PendingRun>,
    pub(super) state: CellState,
}

/// What is left of a cell whose directory is large: a process removes it.
pub(super) struct ClearingCell {
    pub(super) helper: Child,
    pub(super) ids: CellIds,
    /// The caller's connection, which the keeper closes when nothing is left.
    pub(super) _caller: OwnedFd,
}

/// A command with its mounts and descriptors.
pub(super) struct PendingRun {
    pub(super) run: Box<RunParams>,
    pub(super) mounts: Vec<Mount>,
    pub(super) fds: Vec<OwnedFd>,
}

/// The progress of init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BootPhase {
    /// Init builds its root, and will ask for its ids.
    Building,
    /// Init has its ids, and reads commands as soon as it has locked the cell. In a zygote namespace, the first phase of
    /// a cell without slots.
    Locking,
    /// Init has locked the cell.
    Ready,
}

pub(super) enum CellState {
    Idle,
    Running(ActiveRun),
    /// Init was killed at `since`; once it is gone, `group` says when to try to remove the cgroup.
    Dying {
        group: Option<Instant>,
        since: Instant,
    },
}

/// A running command.
pub(super) struct ActiveRun {
    /// When the program was started, if it was.
    started: Option<Instant>,
    /// When it has to end.
    deadline: Instant,
    /// The cgroup's counters before the command.
    before: Counters,
    /// When to check the CPU time next, if it is limited.
    look_at_cpu: Option<Instant>,
    /// When to check whether the out-of-memory killer has killed a process.
    look_at_memory: Option<Instant>,
    ending: Option<RunEnding>,
    /// Whether init was killed because it did not respond.
    killed: bool,
}

/// A command that is being ended.
struct RunEnding {
    reason: StopReason,
    /// When to kill everything; `None` once that is done.
    kill: Option<Instant>,
    /// When to stop waiting for init.
    give_up: Instant,
}

impl CellEntry {
    /// When this cell next needs attention.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            CellState::Idle => None,
            CellState::Dying { group, .. } => *group,
            CellState::Running(run) => match &run.ending {
                Some(ending) => Some(ending.kill.unwrap_or(ending.give_up)),
                None => [Some(run.deadline), run.look_at_cpu, run.look_at_memory].into_iter().flatten().min(),
            },
        }
    }

    /// Sends a message to the caller, and drops it if the caller does not read.
    pub(super) fn tell(&self, message: &FromCell) {
        let _ = wire::send(&self.caller, message, &[], SendFlags::DONTWAIT);
    }

    fn tell_init(&self, message: &ToInit) {
        let _ = wire::send(&self.init, message, &[], SendFlags::DONTWAIT);
    }

    /// The init, if it may still live.
    pub(super) fn living_init(&self) -> Option<Pid> {
        match &self.state {
            CellState::Dying { group: Some(_), .. } => None,
            CellState::Idle | CellState::Running(_) | CellState::Dying { group: None, .. } => Some(self.child.pid),
        }
    }

    /// Whether its processes outlive their init.
    pub(super) fn shares_pids(&self) -> bool {
        !self.layers.contains(Layer::Pid) && !self.is_in_zygote_namespace()
    }

    /// Whether it was created inside the user and PID namespace of a zygote.
    fn is_in_zygote_namespace(&self) -> bool {
        self.key.is_some()
    }

    /// Writes the id map of the cell's user namespace, if it has one, and notifies init.
    pub(super) fn map_ids(&mut self, proc: &OwnedFd) -> Result<(), Failure> {
        let pid = self.child.pid.as_raw_nonzero();
        let map = self.ids.map();
        let files = [("setgroups", "deny"), ("uid_map", &map), ("gid_map", &map)];
        let needs_map = self.layers.contains(Layer::User) && !self.is_in_zygote_namespace();
        for (file, text) in files.into_iter().filter(|_| needs_map) {
            let path = format!("{pid}/{file}");
            let written = rustix::fs::openat(proc, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                .and_then(|file| rustix::io::write(&file, text.as_bytes()));
            written.map_err(|e| Failure::os(format!("cannot assign ids to the cell ({file})"), e))?;
        }
        if !self.spec.slots.is_empty() {
            // Opened now, because init is about to make its /proc entry inaccessible.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let root = rustix::fs::openat(proc, format!("{pid}/ns/mnt"), flags, Mode::empty());
            self.root = Some(root.map_err(|e| Failure::os("cannot open the cell's mount namespace", e))?);
        }
        self.tell_init(&ToInit::Mapped);
        self.boot = BootPhase::Locking;
        if let Some(pending_run) = self.pending.take() {
            self.pass_on(pending_run);
        }
        if let CellState::Running(ActiveRun { ending: Some(ending), .. }) = &self.state {
            self.tell_init(if ending.kill.is_some() { &ToInit::Terminate } else { &ToInit::Kill });
        }
        Ok(())
    }

    /// The cell is locked. Descriptors that come with this message are the gateway's sockets, or for a zygote.
    pub(super) fn on_ready(&mut self, number: u64, landlock: bool, fds: &[OwnedFd]) {
        self.boot = BootPhase::Ready;
        if !landlock {
            let landlock: LayerSet = [Layer::Landlock].into_iter().collect();
            self.layers = self.layers.without(landlock);
        }
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let zygote_namespace = self.zygote_namespace.is_some().then_some(spec::ZygoteNamespaceId(number));
        let id = self.ids.program().map(|(uid, _)| uid);
        let (isolation, prepare) = (self.layers, self.began.elapsed());
        let key = self.key;
        let ready = FromCell::Ready { isolation, prepare, zygote_namespace, id, key, landlock };
        let _ = wire::send(&self.caller, &ready, &fds, SendFlags::DONTWAIT);
    }

    /// A zygote's child waits in the cell. Its usage so far is not charged to the run.
    pub(super) fn on_parked(&mut self) {
        self.fresh = false;
        self.tell(&FromCell::Parked);
    }

    /// Accepts a command for init.
    pub(super) fn run(&mut self, pending_run: PendingRun) {
        if let Some(limits) = &pending_run.run.limits
            && let Err(failure) = self.adjust(limits)
        {
            self.tell(&FromCell::Failed(failure));
            return;
        }
        self.state = CellState::Running(ActiveRun {
            started: None,
            deadline: Instant::now() + START,
            before: if self.fresh { Counters::default() } else { self.group.counters() },
            look_at_cpu: None,
            look_at_memory: None,
            ending: None,
            killed: false,
        });
        self.fresh = false;
        if self.boot == BootPhase::Building {
            self.pending = Some(pending_run);
        } else {
            self.pass_on(pending_run);
        }
    }

    /// Changes the limits of later commands.
    fn adjust(&mut self, limits: &Limits) -> Result<(), Failure> {
        let own = &self.spec.limits;
        if !limits.is_valid() || (limits.disk(), limits.inodes()) != (own.disk(), own.inodes()) {
            return Err(Failure::of_request(
                "cannot change the cell's limits",
                "disk and inode limits cannot change after the cell was created",
            ));
        }
        self.group
            .adjust(own, limits, self.spec.disabled_layers())
            .and_then(|()| {
                let has_sockets = self.spec.network != Network::None && self.layers.contains(Layer::Memory);
                if has_sockets { self.group.limit_sockets(limits.memory()) } else { Ok(()) }
            })
            .map_err(|error| Failure::os("cannot change the cell's limits", error))?;
        self.spec.limits = limits.clone();
        Ok(())
    }

    fn pass_on(&mut self, pending_run: PendingRun) {
        let PendingRun { run, mounts, fds } = pending_run;
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        for fd in borrowed.iter().skip(1).take(3) {
            self.give_pipe(*fd);
        }
        if let Err(failure) = self.show(&mounts) {
            self.tell(&FromCell::Failed(failure));
            self.state = CellState::Idle;
            return;
        }
        if let Err(errno) = wire::send(&self.init, &ToInit::Run(run), &borrowed, SendFlags::DONTWAIT) {
            self.tell(&FromCell::Failed(Failure::os("cannot reach the cell's init", errno)));
            self.state = CellState::Idle;
        }
    }

    /// Mounts a command's host directories at the cell's slots.
    fn show(&self, mounts: &[Mount]) -> Result<(), Failure> {
        let (false, Some(root)) = (mounts.is_empty(), &self.root) else { return Ok(()) };
        let shown = match self.ids {
            CellIds::Two { .. } => rootfs::show_at_slots(self.alone, root.as_fd(), mounts),
            CellIds::One => rootfs::show_at_slots_from_outside(self.alone, root.as_fd(), mounts),
        };
        shown.map_err(|e| Failure::os("cannot mount a directory in the cell", e))
    }

    /// Makes the program's user the owner of a pipe, so that the program can open it again as `/dev/stdout` or
    /// `/dev/stderr`. Anything but a pipe keeps its owner.
    fn give_pipe(&self, fd: BorrowedFd<'_>) {
        const PIPEFS_MAGIC: u64 = 0x5049_5045;
        if rustix::fs::fstatfs(fd).is_ok_and(|stat| stat.f_type.cast_unsigned() == PIPEFS_MAGIC) {
            let (uid, gid) = self.ids.owner();
            let _ = rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
    }

    /// The program runs: its clock starts.
    pub(super) fn on_started(&mut self) {
        let now = Instant::now();
        let watched = self.spec.limits.cpu_time().filter(|_| self.counts_cpu);
        let look_at_cpu = watched.map(|limit| now + self.soonest(limit));
        if let CellState::Running(run) = &mut self.state {
            run.started = Some(now);
            run.deadline = now + self.spec.limits.wall_time();
            run.look_at_cpu = look_at_cpu;
        }
    }

    /// The earliest moment at which this much CPU time can be used up.
    fn soonest(&self, cpu: Duration) -> Duration {
        let cpus = self.spec.limits.milli_cpus().max(1);
        let micros = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros.saturating_mul(1000) / cpus).max(LOOK)
    }

    /// Starts to end the command.
    pub(super) fn stop(&mut self, reason: StopReason) {
        let CellState::Running(run) = &mut self.state else { return };
        if run.ending.is_some() {
            return;
        }
        let now = Instant::now();
        let message = if reason.is_graceful() {
            run.ending = Some(RunEnding { reason, kill: Some(now + GRACE), give_up: now + GRACE + REPORT });
            ToInit::Terminate
        } else {
            run.ending = Some(RunEnding { reason, kill: None, give_up: now + REPORT });
            ToInit::Kill
        };
        // While init builds its root it does not read this message; it gets it later.
        if self.boot != BootPhase::Building {
            self.tell_init(&message);
        }
    }

    /// Init has ended the command because of a limit that it enforces itself.
    pub(super) fn on_limit_exceeded(&mut self, kind: LimitKind) {
        if let CellState::Running(run) = &mut self.state
            && run.ending.is_none()
        {
            let give_up = Instant::now() + REPORT;
            run.ending = Some(RunEnding { reason: StopReason::Limit(kind), kill: None, give_up });
        }
    }

    /// Memory is full; whether the kernel killed a process becomes visible shortly after.
    pub(super) fn on_memory_alarm(&mut self) {
        self.group.acknowledge_alarm();
        if let CellState::Running(run) = &mut self.state {
            run.look_at_memory = Some(Instant::now());
        }
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        let CellState::Running(run) = &mut self.state else { return };
        if let Some(ending) = &mut run.ending {
            if ending.kill.is_some_and(|at| at <= now) {
                ending.kill = None;
                if self.boot != BootPhase::Building {
                    self.tell_init(&ToInit::Kill);
                }
            } else if ending.give_up <= now {
                // Init does not respond. The kernel kills it with everything in the cell; the outcome is reported then.
                let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
                ending.give_up = now + DIE;
                if std::mem::replace(&mut run.killed, true) {
                    self.lose(now);
                }
            }
            return;
        }
        if now >= run.deadline && run.started.is_none() {
            // Init is stuck and is killed. The caller learns that when init is gone.
            let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
            run.deadline = now + DIE;
            if std::mem::replace(&mut run.killed, true) {
                self.lose(now);
            }
            return;
        }
        if now >= run.deadline {
            self.stop(StopReason::Limit(LimitKind::WallTime));
            return;
        }
        let before = run.before;
        let (look_at_memory, look_at_cpu) = (run.look_at_memory, run.look_at_cpu);
        if look_at_memory.is_some_and(|at| at <= now) {
            let killed = self.group.counters().oom_kills > before.oom_kills;
            if let CellState::Running(run) = &mut self.state {
                // The alarm comes before the kill; check again until the kill is visible or the run ends.
                run.look_at_memory = Some(now + LOOK);
            }
            if killed {
                self.stop(StopReason::Limit(LimitKind::Memory));
                return;
            }
        }
        if look_at_cpu.is_some_and(|at| at <= now)
            && let Some(limit) = self.spec.limits.cpu_time()
        {
            let used = self.group.counters().cpu.saturating_sub(before.cpu);
            if used >= limit {
                self.stop(StopReason::Limit(LimitKind::CpuTime));
            } else {
                let next = now + self.soonest(limit.saturating_sub(used));
                if let CellState::Running(run) = &mut self.state {
                    run.look_at_cpu = Some(next);
                }
            }
        }
    }

    /// Init survives SIGKILL. The caller gets its answer; the cell is deleted when that becomes possible.
    fn lose(&mut self, now: Instant) {
        let dying = CellState::Dying { group: None, since: now };
        if let CellState::Running(run) = std::mem::replace(&mut self.state, dying) {
            self.account_for(&run, CellEnd::Lost);
        }
    }

    /// Whether it should be gone but is not.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, CellState::Dying { since, .. } if since.elapsed() > LOST)
    }

    /// The usage so far.
    pub(super) fn sample(&self) {
        let now = self.group.counters();
        let mut usage = Usage { memory_peak: now.memory_peak, ..Usage::default() };
        if let CellState::Running(run) = &self.state {
            usage.wall = run.started.map_or(Duration::ZERO, |at| at.elapsed());
            usage.cpu = now.cpu.saturating_sub(run.before.cpu);
            usage.processes_peak = now.processes_peak;
        }
        self.tell(&FromCell::Sample(usage));
    }

    /// The command has ended and init has killed its processes.
    pub(super) fn on_ended(&mut self, report: &Report) {
        let CellState::Running(run) = std::mem::replace(&mut self.state, CellState::Idle) else { return };
        let now = self.group.counters();
        let usage = Self::usage(report, &run.before, &now);
        let mut stopped = run.ending.map(|ending| ending.reason);
        if now.oom_kills > run.before.oom_kills {
            // Whatever the status of the program, this is why it ended.
            stopped = Some(StopReason::Limit(LimitKind::Memory));
        }
        let reached = self.reached(report, &run.before, &now, &usage);
        let (status, end) = (report.status, CellEnd::Orderly);
        self.tell(&FromCell::Ended(Box::new(Outcome { status, stopped, reached, usage, end })));
        if report.needs_memory {
            self.make_room();
            self.tell_init(&ToInit::Collect);
        }
    }

    /// Gives init memory for the collection: the program's files may take all of it, and the kernel would kill init. If
    /// this fails, the collection may be truncated, which its reader notices.
    fn make_room(&mut self) {
        let mut roomy = self.spec.limits.clone();
        let most = LimitKind::Memory.info().most;
        let memory = roomy.memory().saturating_add(COLLECTION).min(most);
        if roomy.set(LimitKind::Memory, memory, &Caps::default()).is_ok()
            && self.group.adjust(&self.spec.limits, &roomy, self.spec.disabled_layers()).is_ok()
        {
            self.spec.limits = roomy;
        }
    }

    /// Combines the counters of the cgroup and of init. The cgroup's are authoritative. It does not split the CPU time
    /// into user and system time, so init's proportion is used.
    fn usage(report: &Report, before: &Counters, now: &Counters) -> Usage {
        // Init's numbers come out of the cell. No run lasts longer than this bound, so no sum can overflow.
        let sane = |duration: Duration| duration.min(Duration::from_secs(366 * 86_400));
        let (user, system, wall) = (sane(report.cpu_user), sane(report.cpu_system), sane(report.wall));
        let reaped = user + system;
        let counted = now.cpu.saturating_sub(before.cpu);
        let cpu = if counted.is_zero() { reaped } else { counted };
        let share = if reaped.is_zero() { 1.0 } else { user.as_secs_f64() / reaped.as_secs_f64() };
        let cpu_user = cpu.mul_f64(share.clamp(0.0, 1.0));
        Usage {
            wall,
            cpu,
            cpu_user,
            cpu_system: cpu.saturating_sub(cpu_user),
            memory_peak: now.memory_peak.max(report.sampled_memory),
            processes_peak: now.processes_peak.max(report.sampled_processes),
            io_read: report.io_read,
            io_write: report.io_write,
            disk: report.disk,
        }
    }

    /// The limits that the program ran into.
    fn reached(&self, report: &Report, before: &Counters, now: &Counters, usage: &Usage) -> Vec<(LimitKind, u64)> {
        let limits = &self.spec.limits;
        let mut reached = vec![];
        if now.processes_refused > before.processes_refused {
            reached.push((LimitKind::Processes, usage.processes_peak.max(limits.processes())));
        }
        if report.disk_full {
            reached.push((LimitKind::Disk, report.disk));
        }
        if report.inodes_full {
            reached.push((LimitKind::Inodes, report.inodes));
        }
        if report.file_at_limit || report.status == RunStatus::Signaled(libc::SIGXFSZ) {
            reached.push((LimitKind::FileSize, limits.file_size()));
        }
        reached
    }

    /// A step of init failed: this ends a booting cell, and otherwise the command.
    pub(super) fn on_failed(&mut self, error: &StepError) {
        let failure = if self.boot == BootPhase::Ready { error.of_command() } else { error.of_cell() };
        self.tell(&FromCell::Failed(failure));
        if let CellState::Running(_) = self.state {
            self.state = CellState::Idle;
        }
    }

    /// Init is gone, and everything with it. If a command was running, its outcome is made without init.
    pub(super) fn on_init_gone(&mut self) {
        if self.boot != BootPhase::Ready {
            let failure = Failure::new("cannot lock the cell", "its init ended before it was ready");
            self.tell(&FromCell::Failed(failure));
            return;
        }
        match std::mem::replace(&mut self.state, CellState::Idle) {
            CellState::Running(run) => self.account_for(&run, CellEnd::InitDied),
            CellState::Idle | CellState::Dying { .. } => {}
        }
    }

    /// Sends the outcome of a command that init did not report.
    fn account_for(&self, run: &ActiveRun, end: CellEnd) {
        let now = self.group.counters();
        let full = now.oom_kills > run.before.oom_kills;
        if run.started.is_none() && !full {
            let why = if end == CellEnd::Lost { "init survives SIGKILL" } else { "init ended before the start" };
            return self.tell(&FromCell::Failed(Failure::new("cannot start the program", why)));
        }
        let wall = run.started.map_or(Duration::ZERO, |at| at.elapsed());
        let cpu = now.cpu.saturating_sub(run.before.cpu);
        let ending = run.ending.as_ref().map(|ending| ending.reason);
        let stopped = if full { Some(StopReason::Limit(LimitKind::Memory)) } else { ending };
        let (memory_peak, processes_peak) = (now.memory_peak, now.processes_peak);
        let usage = Usage { wall, cpu, cpu_user: cpu, memory_peak, processes_peak, ..Usage::default() };
        let mut reached = vec![];
        if now.processes_refused > run.before.processes_refused {
            reached.push((LimitKind::Processes, processes_peak.max(self.spec.limits.processes())));
        }
        let status = RunStatus::Signaled(libc::SIGKILL);
        self.tell(&FromCell::Ended(Box::new(Outcome { status, stopped, reached, usage, end })));
    }
}
