//! One cell in the keeper's care: its state, its deadlines, and what becomes of its limits.

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

/// What a program gets between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);

/// How long init has to make the input files and start the program.
const START: Duration = Duration::from_secs(60);

/// How long init has to report after it was told to kill everything, before it is killed itself. Reaping the
/// dead takes a moment; a program cannot prolong it.
const REPORT: Duration = Duration::from_secs(1);

/// How long an init that was killed has to die, before its cell is lost. With `GRACE` and `REPORT` this stays well below
/// the two seconds after its deadline in which a caller gets its answer, whatever becomes of the cell.
const DIE: Duration = Duration::from_millis(400);

/// What init gets on top of the memory limit to collect the files with, when every program is dead.
const COLLECTION: u64 = 32 << 20;

/// How long a cell may take to die before it counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// The shortest time between two looks at the CPU time used.
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
    /// If it was made in a zygote namespace: what its zygote needs to enter it.
    pub(super) key: Option<EntryKey>,
    /// Its own zygote namespace, if it is a zygote's.
    pub(super) zygote_namespace: Option<ZygoteNamespace>,
    /// Its mount namespace, if it has slots and is far enough.
    pub(super) root: Option<OwnedFd>,
    pub(super) alone: SingleThreaded,
    pub(super) boot: BootPhase,
    /// A command that came before init could take it.
    pub(super) pending: Option<PendingRun>,
    pub(super) state: CellState,
}

/// A command with what is shown of the host for it, and its descriptors.
pub(super) struct PendingRun {
    pub(super) run: Box<RunParams>,
    pub(super) mounts: Vec<Mount>,
    pub(super) fds: Vec<OwnedFd>,
}

/// How far init is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BootPhase {
    /// It builds its root.
    Building,
    /// It has its ids, and reads commands as soon as it has locked the cell.
    Locking,
    /// It has locked the cell.
    Ready,
}

pub(super) enum CellState {
    Idle,
    Running(ActiveRun),
    /// Init was killed at `since`; if it has gone, `group` says when to try to remove the group.
    Dying {
        group: Option<Instant>,
        since: Instant,
    },
    /// Nothing is left but its directory, which a process removes.
    Clearing(Child),
}

/// A command that runs.
pub(super) struct ActiveRun {
    /// When the program was started, once it was.
    started: Option<Instant>,
    /// When it has to end.
    deadline: Instant,
    /// What the group had counted before.
    before: Counters,
    /// When to look at the CPU time next, if it is limited.
    look_at_cpu: Option<Instant>,
    /// When to look whether a full memory has killed a process.
    look_at_memory: Option<Instant>,
    ending: Option<RunEnding>,
    /// Whether init was killed because it does not answer.
    killed: bool,
}

/// A command that is being ended.
struct RunEnding {
    reason: StopReason,
    /// When to have everything killed; `None` once that is done.
    kill: Option<Instant>,
    /// When to stop waiting for init.
    give_up: Instant,
}

impl CellEntry {
    /// When this cell next needs attention.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            CellState::Idle | CellState::Clearing(_) => None,
            CellState::Dying { group, .. } => *group,
            CellState::Running(run) => match &run.ending {
                Some(ending) => Some(ending.kill.unwrap_or(ending.give_up)),
                None => [Some(run.deadline), run.look_at_cpu, run.look_at_memory].into_iter().flatten().min(),
            },
        }
    }

    /// Tells the caller something. A caller that does not listen has only itself to blame.
    pub(super) fn tell(&self, message: &FromCell) {
        let _ = wire::send(&self.caller, message, &[], SendFlags::DONTWAIT);
    }

    fn tell_init(&self, message: &ToInit) {
        let _ = wire::send(&self.init, message, &[], SendFlags::DONTWAIT);
    }

    /// Its child of the keeper's that lives or may still live: its init, or the process that clears up after it.
    pub(super) fn living_child(&self) -> Option<Pid> {
        match &self.state {
            CellState::Dying { group: Some(_), .. } => None,
            CellState::Clearing(child) => Some(child.pid),
            CellState::Idle | CellState::Running(_) | CellState::Dying { group: None, .. } => Some(self.child.pid),
        }
    }

    /// Whether its processes outlive their init.
    pub(super) fn shares_pids(&self) -> bool {
        !self.layers.contains(Layer::Pid) && !self.is_in_zygote_namespace()
    }

    /// Whether it was made inside the user and PID namespace of a zygote.
    fn is_in_zygote_namespace(&self) -> bool {
        self.key.is_some()
    }

    /// Gives the cell's new user namespace its ids, if it has one, and what init waits for.
    pub(super) fn map_ids(&mut self, proc: &OwnedFd) -> Result<(), Failure> {
        let pid = self.child.pid.as_raw_nonzero();
        let map = self.ids.map();
        let files = [("setgroups", "deny"), ("uid_map", &map), ("gid_map", &map)];
        let needs_map = self.layers.contains(Layer::User) && !self.is_in_zygote_namespace();
        for (file, text) in files.into_iter().filter(|_| needs_map) {
            let path = format!("{pid}/{file}");
            let written = rustix::fs::openat(proc, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                .and_then(|file| rustix::io::write(&file, text.as_bytes()));
            written.map_err(|e| Failure::os(format!("cannot give the cell its ids ({file})"), e))?;
        }
        if !self.spec.slots.is_empty() {
            // Now, because init is about to seal what /proc tells of it.
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

    /// The cell is locked; descriptors that come with that are its gateway's sockets, or for a zygote.
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

    /// A zygote's child waits in it. What it has used for that is not the run's.
    pub(super) fn on_parked(&mut self) {
        self.fresh = false;
        self.tell(&FromCell::Parked);
    }

    /// Has a companion started. What it uses before a command comes is not the command's.
    pub(super) fn accompany(&mut self, fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.fresh = false;
        if let Err(errno) = wire::send(&self.init, &ToInit::Accompany, &fds, SendFlags::DONTWAIT) {
            self.tell(&FromCell::Failed(Failure::os("cannot reach the cell's init", errno)));
        }
    }

    /// Takes a command for init.
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

    /// Changes what programs may use from now on.
    fn adjust(&mut self, limits: &Limits) -> Result<(), Failure> {
        let own = &self.spec.limits;
        if !limits.is_valid() || (limits.disk(), limits.inodes()) != (own.disk(), own.inodes()) {
            return Err(Failure::of_request("cannot change the cell's limits", "its disk is as large as it was made"));
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

    /// Shows what a command needs of the host at the cell's slots.
    fn show(&self, mounts: &[Mount]) -> Result<(), Failure> {
        let (false, Some(root)) = (mounts.is_empty(), &self.root) else { return Ok(()) };
        let shown = match self.ids {
            CellIds::Two { .. } => rootfs::show_at_slots(self.alone, root.as_fd(), mounts),
            CellIds::One => rootfs::show_at_slots_from_outside(self.alone, root.as_fd(), mounts),
        };
        shown.map_err(|e| Failure::os("cannot show a directory in the cell", e))
    }

    /// Makes a pipe the program's own, so that it can open it again as `/dev/stdout` or `/dev/stderr`. Anything but
    /// a pipe keeps its owner.
    fn give_pipe(&self, fd: BorrowedFd<'_>) {
        const PIPEFS_MAGIC: u64 = 0x5049_5045;
        if rustix::fs::fstatfs(fd).is_ok_and(|stat| stat.f_type.cast_unsigned() == PIPEFS_MAGIC) {
            let (uid, gid) = self.ids.owner();
            let _ = rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
    }

    /// The program runs: its time begins.
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

    /// The soonest that this much CPU time can be used up.
    fn soonest(&self, cpu: Duration) -> Duration {
        let cpus = self.spec.limits.milli_cpus().max(1);
        let micros = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros.saturating_mul(1000) / cpus).max(LOOK)
    }

    /// Begins to end the command.
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
        // While init builds its root it waits for other messages; it hears of this when it can.
        if self.boot != BootPhase::Building {
            self.tell_init(&message);
        }
    }

    /// Init watches a limit itself and has ended the command.
    pub(super) fn on_limit_exceeded(&mut self, kind: LimitKind) {
        if let CellState::Running(run) = &mut self.state
            && run.ending.is_none()
        {
            let give_up = Instant::now() + REPORT;
            run.ending = Some(RunEnding { reason: StopReason::Limit(kind), kill: None, give_up });
        }
    }

    /// Memory is full; whether that killed a process shows in a moment.
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
                // Init does not answer. The kernel ends it and with it all the rest; the account is made then.
                let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
                ending.give_up = now + DIE;
                if std::mem::replace(&mut run.killed, true) {
                    self.lose(now);
                }
            }
            return;
        }
        if now >= run.deadline && run.started.is_none() {
            // Init is stuck. Its end is reported as that.
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
                // The alarm rings before the kernel kills; look again until the kill shows or the run ends.
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

    /// Not even SIGKILL ends init. The caller gets its answer; the cell is deleted when that becomes possible.
    fn lose(&mut self, now: Instant) {
        let dying = CellState::Dying { group: None, since: now };
        if let CellState::Running(run) = std::mem::replace(&mut self.state, dying) {
            self.account_for(&run, CellEnd::Lost);
        }
    }

    /// Whether it should be gone and is not.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, CellState::Dying { since, .. } if since.elapsed() > LOST)
    }

    /// What has been used so far.
    pub(super) fn sample(&self) {
        let mut usage = Usage::default();
        if let CellState::Running(run) = &self.state {
            let now = self.group.counters();
            usage.wall = run.started.map_or(Duration::ZERO, |at| at.elapsed());
            usage.cpu = now.cpu.saturating_sub(run.before.cpu);
            usage.memory_peak = now.memory_peak;
            usage.processes_peak = now.processes_peak;
        }
        self.tell(&FromCell::Sample(usage));
    }

    /// The command has ended and init has cleared up after it.
    pub(super) fn on_ended(&mut self, report: &Report) {
        let CellState::Running(run) = std::mem::replace(&mut self.state, CellState::Idle) else { return };
        let now = self.group.counters();
        let usage = Self::usage(report, &run.before, &now);
        let mut stopped = run.ending.map(|ending| ending.reason);
        if now.oom_kills > run.before.oom_kills {
            // However it ended, this is why.
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

    /// Gives init memory to collect with: what the program left may take all of it, and the kernel would kill init. Should
    /// that fail, the collection may be cut off, and its reader notices.
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

    /// Puts together what the group and init have counted. The group's counts are the ones to trust; it has no split
    /// of the CPU time, which comes from init in proportion.
    fn usage(report: &Report, before: &Counters, now: &Counters) -> Usage {
        // Init's numbers come out of the cell: no run lasts longer than this, so no sum can overflow.
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

    /// The limits that stood in the program's way.
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

    /// Init could not do something: in a booting cell that is the cell's end, later the command's.
    pub(super) fn on_failed(&mut self, error: &StepError) {
        let failure = if self.boot == BootPhase::Ready { error.of_command() } else { error.of_cell() };
        self.tell(&FromCell::Failed(failure));
        if let CellState::Running(_) = self.state {
            self.state = CellState::Idle;
        }
    }

    /// Init is gone, and everything with it. If a command was running, its account is made without init.
    pub(super) fn on_init_gone(&mut self) {
        if self.boot != BootPhase::Ready {
            let failure = Failure::new("cannot lock the cell", "its init ended before it was ready");
            self.tell(&FromCell::Failed(failure));
            return;
        }
        match std::mem::replace(&mut self.state, CellState::Idle) {
            CellState::Running(run) => self.account_for(&run, CellEnd::InitDied),
            CellState::Idle | CellState::Dying { .. } | CellState::Clearing(_) => {}
        }
    }

    /// Tells the caller how a command ended of which init says nothing.
    fn account_for(&self, run: &ActiveRun, end: CellEnd) {
        let now = self.group.counters();
        let full = now.oom_kills > run.before.oom_kills;
        if run.started.is_none() && !full {
            let why = if end == CellEnd::Lost { "init neither answers nor dies" } else { "init ended before it could" };
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
