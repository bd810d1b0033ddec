//! Init's loop: start a program, reap children, kill the remaining processes.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use sandbox_sys::process::{CpuTimes, children_cpu_times};

use super::files::{self, Files};
use super::launch::{self, ExecArgs};
use super::lock::Locked;
use super::park::{self, Park};
use super::writable::{DiskWatch, Used};
use super::{InitParams, ProcessLimit, kill, watch};
use crate::archive::FileCaps;
use crate::layer::Layer;
use crate::outcome::RunStatus;
use crate::spec::Command;
use crate::step::{InitStep, StepError};
use crate::wire::{self, FromInit, Received, Report, RunParams, ToInit};
use sandbox_base::limits::{LimitKind, Limits};
use sandbox_base::wait::timespec;
use sandbox_zygote::protocol::ChildCommand;

/// A running program.
struct RunningProgram {
    pid: Pid,
    /// Whether the cell ends with it.
    last: bool,
    /// Its limits.
    limits: Limits,
    /// The limits of the output files and the pipe for them.
    collect: Option<(FileCaps, OwnedFd)>,
    started: Instant,
    cpu_before: CpuTimes,
    io_before: (u64, u64),
    peak: watch::Sample,
    disk: DiskWatch,
    _own_proc: Vec<OwnedFd>,
}

/// Serves the keeper until the connection closes, or until the last command has ended.
pub(super) fn serve(params: &InitParams<'_>, mut locked: Locked<'_>) {
    serve_keeper(params, &mut locked);
    if !params.has(Layer::Pid) {
        kill::end(params);
    }
    locked.writable.clear();
}

fn serve_keeper(params: &InitParams<'_>, locked: &mut Locked<'_>) {
    if locked.ready(params).is_err() {
        return;
    }
    let mut park = locked.park.take();
    let locked = &*locked;
    let mut files = Files::new(params);
    let mut buffer = vec![0; wire::MAX_MESSAGE];
    let mut running: Option<RunningProgram> = None;
    loop {
        let watching = params.duties.include_watching() || params.environment.is_reduced();
        let timeout = (running.is_some() && watching).then_some(watch::INTERVAL);
        let Ok(WakeReasons { message, child, parked }) = wait(params, locked, park.as_ref(), timeout) else { return };
        if parked
            && let Some(park) = &mut park
            && (!park.receive_pid() || send_to_keeper(params, &FromInit::Parked).is_err())
        {
            return;
        }
        if child {
            while locked.children.next().is_some() {}
            // A child that ends while it waits ends the cell, which cannot be used any more.
            if let Some(pid) = park.as_ref().and_then(|park| park.child)
                && has_ended(pid)
            {
                return;
            }
            if let Some((report, run)) = reap(params, locked, &mut running) {
                // Usage since the last sample counts, even if the program succeeded.
                if params.environment.is_reduced()
                    && let Some(kind) = exceeded_at_end(params, &run.limits, &report)
                    && send_to_keeper(params, &FromInit::LimitExceeded(kind)).is_err()
                {
                    return;
                }
                let needs_memory = report.needs_memory;
                if send_to_keeper(params, &FromInit::Ended(report)).is_err() {
                    return;
                }
                // The caller waits for this report, but not for the rest.
                rustix::thread::sched_yield();
                if needs_memory && !may_collect(params, &mut buffer) {
                    return;
                }
                if let Some((caps, pipe)) = run.collect {
                    // The reader notices the missing end of the stream.
                    let _ = files.collect(caps, pipe);
                }
                if run.last {
                    return;
                }
            }
        }
        if message {
            match wire::receive(params.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(Received::Message(message, fds)) => {
                    if handle_message(params, locked, &mut files, &mut park, &mut running, message, fds).is_err() {
                        return;
                    }
                }
                Err(Errno::AGAIN) => {}
                _ => return,
            }
        }
        if watching
            && let Some(run) = &mut running
            && let Some(kind) = exceeded_now(params, locked, run)
        {
            kill::signal(params, Signal::KILL);
            if send_to_keeper(params, &FromInit::LimitExceeded(kind)).is_err() {
                return;
            }
        }
    }
}

/// The memory that init may need to collect files, and what the kernel needs for each file besides its content.
const OWN_MEMORY: u64 = 24 << 20;
const PER_INODE: u64 = 4 << 10;

/// Waits for the memory that the collection needs. The only other message that can matter now is the end of the
/// connection.
fn may_collect(params: &InitParams<'_>, buffer: &mut [u8]) -> bool {
    loop {
        match wire::receive(params.socket, buffer, RecvFlags::empty()) {
            Ok(Received::Message(ToInit::Collect, _)) => return true,
            // The keeper wanted to end a program that has ended meanwhile.
            Ok(Received::Message(ToInit::Terminate | ToInit::Kill, _)) => {}
            _ => return false,
        }
    }
}

/// Why a wait ended.
struct WakeReasons {
    message: bool,
    /// A child has ended.
    child: bool,
    /// A zygote's child has sent its id.
    parked: bool,
}

/// Whether a child has ended, without reaping it. A zygote's child may report before it is a child of this process:
/// then it is not found here, and SIGCHLD is delivered again when it ends.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), options).is_ok_and(|status| status.is_some())
}

/// Waits for a message or the end of a child.
fn wait(
    params: &InitParams<'_>,
    locked: &Locked<'_>,
    park: Option<&Park>,
    timeout: Option<Duration>,
) -> Result<WakeReasons, Errno> {
    let mut fds = vec![PollFd::new(params.socket, PollFlags::IN), PollFd::new(&locked.children, PollFlags::IN)];
    fds.extend(park::waiting(park).map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
    let timeout = timeout.map(timespec);
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {
            let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
            Ok(WakeReasons { message: ready(0), child: ready(1), parked: ready(2) })
        }
        Err(errno) => Err(errno),
    }
}

fn send_to_keeper(params: &InitParams<'_>, message: &FromInit) -> rustix::io::Result<()> {
    wire::send(params.socket, message, &[], SendFlags::empty())
}

fn handle_message(
    params: &InitParams<'_>,
    locked: &Locked<'_>,
    files: &mut Files<'_>,
    park: &mut Option<Park>,
    running: &mut Option<RunningProgram>,
    message: ToInit,
    fds: Vec<OwnedFd>,
) -> rustix::io::Result<()> {
    match message {
        ToInit::Run(run) if running.is_none() => match start(params, locked, files, park.take(), *run, fds) {
            Ok(run) => {
                *running = Some(run);
                send_to_keeper(params, &FromInit::Started)
            }
            // The failed child is reaped with the others.
            Err(error) => send_to_keeper(params, &FromInit::Failed(error)),
        },
        ToInit::Terminate => {
            kill::signal(params, Signal::TERM);
            // A stopped process handles SIGTERM only when it continues.
            kill::signal(params, Signal::CONT);
            Ok(())
        }
        ToInit::Kill => {
            kill::signal(params, Signal::KILL);
            Ok(())
        }
        // The keeper never does this; a second program would distort the usage of the first one.
        ToInit::Run(_) | ToInit::Handover { .. } | ToInit::Mapped | ToInit::Collect => Err(Errno::PROTO),
    }
}

/// Reads the command. The keeper has passed it on unread.
fn read_command(file: OwnedFd) -> Result<Command, StepError> {
    wire::read_command(file).map_err(|errno| StepError::new(InitStep::ReadCommand, errno))
}

fn start(
    params: &InitParams<'_>,
    locked: &Locked<'_>,
    files: &mut Files<'_>,
    park: Option<Park>,
    run: RunParams,
    fds: Vec<OwnedFd>,
) -> Result<RunningProgram, StepError> {
    let RunParams { limits, extra: has_extra, files: has_files, collect, last } = run;
    let limits = limits.unwrap_or_else(|| params.spec.limits.clone());
    let invalid = |step| StepError::new(step, Errno::INVAL);
    let mut fds = fds.into_iter();
    let command = read_command(fds.next().ok_or_else(|| invalid(InitStep::GetCommand))?)?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(invalid(InitStep::GetStreams));
    };
    let extra = if has_extra { fds.next() } else { None };
    if has_files {
        let archive = fds.next().ok_or_else(|| invalid(InitStep::GetInputFiles))?;
        files.unpack(archive).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error);
            StepError::new(InitStep::MakeInputFiles, errno)
        })?;
    }
    let collect = match collect {
        Some(caps) => Some((caps, fds.next().ok_or_else(|| invalid(InitStep::GetOutputPipe))?)),
        None => None,
    };
    let words = ExecArgs::read(params, command)?;
    let streams = match &locked.terminal {
        Some(terminal) => [terminal.as_fd(); 3],
        None => [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
    };
    let cpu_before = children_cpu_times();
    let io_before = io_counters(locked);
    let started = Instant::now();
    let pid = match park {
        Some(park) => {
            let pid = park.child.ok_or_else(|| invalid(InitStep::FindChild))?;
            let ExecArgs { args, env, cwd, .. } = &words;
            let rlimits = launch::rlimits(params, &limits);
            let rlimits: Vec<_> = rlimits.iter().map(|(resource, value)| (*resource as u64, *value)).collect();
            park.send_command(&ChildCommand { limits: &rlimits, cwd, args, env }, streams)
                .map_err(|errno| StepError::new(InitStep::TellChild, errno))?;
            pid
        }
        None => words.launch(params, locked, &limits, streams, extra.as_ref().map(AsFd::as_fd))?,
    };
    // The rules that let the program read its own /proc entry apply as long as the kernel keeps these inodes.
    let own_proc = if params.environment.is_reduced() { launch::own_proc(pid) } else { vec![] };
    let (peak, disk) = (watch::Sample::default(), DiskWatch::new());
    Ok(RunningProgram { pid, last, limits, collect, started, cpu_before, io_before, peak, disk, _own_proc: own_proc })
}

/// Bytes read and written by system calls, by init and by every child it has reaped.
fn io_counters(locked: &Locked<'_>) -> (u64, u64) {
    let mut buffer = [0; 512];
    let read = locked.io.as_ref().and_then(|io| io.read_at(&mut buffer, 0).ok()).unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..read]);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0);
    (field("rchar:"), field("wchar:"))
}

/// Reaps children that have ended. If the program is among them, kills the rest and reports.
fn reap(
    params: &InitParams<'_>,
    locked: &Locked<'_>,
    running: &mut Option<RunningProgram>,
) -> Option<(Report, RunningProgram)> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if running.as_ref().is_some_and(|run| run.pid == pid) {
            ended = Some(status);
        }
    }
    let status = ended?;
    let run = running.take()?;
    let wall = run.started.elapsed();
    let left = kill::end(params) as u64;
    while locked.children.next().is_some() {}

    let cpu = children_cpu_times();
    let io = io_counters(locked);
    let used = locked.writable.used(&run.limits);
    let status = run_status(status);
    let failed = status != RunStatus::Exited(0);
    let report = Report {
        status,
        wall,
        cpu_user: cpu.user.saturating_sub(run.cpu_before.user),
        cpu_system: cpu.system.saturating_sub(run.cpu_before.system),
        io_read: io.0.saturating_sub(run.io_before.0),
        io_write: io.1.saturating_sub(run.io_before.1),
        disk: used.bytes,
        inodes: used.inodes,
        disk_full: used.bytes_full,
        inodes_full: used.inodes_full,
        file_at_limit: failed && files::any_of_size(params, run.limits.file_size()),
        sampled_memory: run.peak.memory,
        sampled_processes: run.peak.processes.max(left),
        needs_memory: run.collect.is_some() && leaves_little_memory(locked, used, &run.limits),
    };
    Some((report, run))
}

/// Whether the files in the writable directories take so much memory that init could run out of it. The cgroup charges
/// all of that, and nothing else once every process is dead.
fn leaves_little_memory(locked: &Locked<'_>, used: Used, limits: &Limits) -> bool {
    let taken =
        locked.writable.memory().saturating_add(used.inodes.saturating_mul(PER_INODE)).saturating_add(OWN_MEMORY);
    taken > limits.memory()
}

/// The limit that was exceeded when everything had ended: a directory's, or that of processes if there were too many
/// even then.
fn exceeded_at_end(params: &InitParams<'_>, limits: &Limits, report: &Report) -> Option<LimitKind> {
    if params.duties.processes == ProcessLimit::ByCounting && report.sampled_processes > limits.processes() {
        return Some(LimitKind::Processes);
    }
    let kind = if report.disk_full { LimitKind::Disk } else { LimitKind::Inodes };
    (report.disk_full || report.inodes_full).then_some(kind)
}

fn run_status(status: WaitStatus) -> RunStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => RunStatus::Exited(code),
        (None, Some(signal)) => RunStatus::Signaled(signal),
        // Cannot happen: waitpid was not asked for stopped children.
        (None, None) => RunStatus::Signaled(0),
    }
}

/// Samples the usage and returns the limit that was exceeded, if any.
fn exceeded_now(params: &InitParams<'_>, locked: &Locked<'_>, run: &mut RunningProgram) -> Option<LimitKind> {
    let mut now = watch::sample(params);
    // Files in the writable directories may be memory too.
    now.memory += locked.writable.memory();
    run.peak.memory = run.peak.memory.max(now.memory);
    run.peak.processes = run.peak.processes.max(now.processes);
    let ended = children_cpu_times();
    let cpu = now.cpu + (ended.user + ended.system).saturating_sub(run.cpu_before.user + run.cpu_before.system);
    if params.duties.memory && now.memory > run.limits.memory() {
        Some(LimitKind::Memory)
    } else if params.duties.cpu_time && run.limits.cpu_time().is_some_and(|limit| cpu > limit) {
        Some(LimitKind::CpuTime)
    } else if params.duties.processes == ProcessLimit::ByCounting && now.processes > run.limits.processes() {
        Some(LimitKind::Processes)
    } else {
        run.disk.look(&locked.writable, &run.limits)
    }
}
