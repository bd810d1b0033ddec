//! From a command to a process: its arguments in the form that exec needs, and its resource limits.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Resource};
use rustix::thread::CapabilitySet;
use sandbox_sys::spawn::{Program, SpawnStep, spawn};

use super::lock::{Locked, TO_ENTER};
use super::{InitParams, ProcessLimit, watch};
use crate::rootfs;
use crate::spec::{Command, Role};
use crate::step::{InitStep, StepError, shortened};
use sandbox_base::limits::Limits;

/// A command in the form that exec needs.
pub(super) struct ExecArgs {
    /// The name of the program as the caller gave it.
    name: String,
    /// The paths at which the program may be.
    paths: Vec<CString>,
    pub(super) args: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: CString,
}

impl ExecArgs {
    pub(super) fn read(params: &InitParams<'_>, command: Command) -> Result<Self, StepError> {
        let command = match params.environment.layout() {
            None => command,
            Some(layout) => {
                let place = layout.find(&command.cwd).or_else(|| rootfs::is_of_system(&command.cwd).then(PathBuf::new));
                place.ok_or_else(|| StepError::new(InitStep::EnterWorkingDirectory, Errno::NOENT))?;
                layout.translate(command)
            }
        };
        let nul = |_| StepError::new(InitStep::FindNulByte, Errno::INVAL);
        let paths = candidates(&command).map_err(nul)?;
        let cwd = CString::new(command.cwd.into_os_string().into_vec()).map_err(nul)?;
        let name = command.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let args: Result<Vec<CString>, _> = command.argv.into_iter().map(|arg| CString::new(arg.into_vec())).collect();
        let env: Result<Vec<CString>, _> = command
            .env
            .into_iter()
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect();
        Ok(Self { name, paths, args: args.map_err(nul)?, env: env.map_err(nul)?, cwd })
    }

    /// Starts the program, locked.
    pub(super) fn launch(
        &self,
        params: &InitParams<'_>,
        locked: &Locked<'_>,
        limits: &Limits,
        stdio: [BorrowedFd<'_>; 3],
        extra: Option<BorrowedFd<'_>>,
    ) -> Result<Pid, StepError> {
        let cgroups: Vec<_> = locked.groups.iter().map(AsFd::as_fd).collect();
        let program = Program {
            paths: &self.paths,
            args: &self.args,
            env: &self.env,
            cwd: &self.cwd,
            stdio,
            terminal: locked.terminal.is_some(),
            extra,
            kept: if params.spec.role == Role::Zygote { TO_ENTER } else { CapabilitySet::empty() },
            cgroups: &cgroups,
            rlimits: &rlimits(params, limits),
            ids: params.program_ids,
            landlock: locked.landlock.as_ref().map(AsFd::as_fd),
            own_proc: params.environment.is_reduced(),
        };
        spawn(&program).map_err(|error| StepError::new(spawn_step(&self.name, error.step), error.errno))
    }
}

/// Opens the /proc entries that a program may read about itself.
pub(super) fn own_proc(pid: Pid) -> Vec<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(format!("/proc/{}", pid.as_raw_nonzero()), flags, Mode::empty()) else {
        return vec![];
    };
    let files = sandbox_sys::landlock::OWN_FILES.iter();
    let files = files.filter_map(|name| rustix::fs::openat(&dir, *name, flags, Mode::empty()).ok());
    let mut held: Vec<OwnedFd> = files.collect();
    held.push(dir);
    held
}

fn spawn_step(name: &str, step: SpawnStep) -> InitStep {
    match step {
        SpawnStep::Fork => InitStep::Fork,
        SpawnStep::Cgroup => InitStep::JoinProgramCgroup,
        SpawnStep::Session => InitStep::StartSession,
        SpawnStep::Stdio => InitStep::ConnectStreams,
        SpawnStep::Terminal => InitStep::TakeTerminal,
        SpawnStep::Rlimit => InitStep::SetResourceLimits,
        SpawnStep::Privileges => InitStep::DropPrivileges,
        SpawnStep::Landlock => InitStep::EnterLandlockRules,
        SpawnStep::WorkingDirectory => InitStep::EnterWorkingDirectory,
        SpawnStep::Exec => InitStep::Execute(shortened(name)),
    }
}

/// The paths at which a program may be: along PATH for a plain name, in the working directory for a relative path.
fn candidates(command: &Command) -> Result<Vec<CString>, std::ffi::NulError> {
    let Some(name) = command.argv.first() else { return Ok(vec![]) };
    if name.as_bytes().contains(&b'/') {
        return Ok(vec![CString::new(name.as_bytes())?]);
    }
    let path = command.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_bytes());
    let dirs = path.unwrap_or_default().split(|byte| *byte == b':').filter(|dir| !dir.is_empty());
    dirs.map(|dir| CString::new([dir, b"/", name.as_bytes()].concat())).collect()
}

pub(super) fn rlimits(params: &InitParams<'_>, limits: &Limits) -> Vec<(Resource, u64)> {
    // Where disk usage is only sampled, the file size limit keeps one file from filling the disk between two samples.
    let places = params.spec.volumes.iter().map(|volume| volume.size).chain([limits.disk()]);
    let largest = places.max().filter(|_| params.environment.is_reduced()).unwrap_or(u64::MAX);
    let file_size = limits.file_size().min(largest);
    // These are counted per user: the cell's user, or the keeper's user, of whose limits a cell then gets a fraction.
    let (queues, signals) = if params.init_ids.is_some() { (819_200, 1024) } else { (102_400, 256) };
    let mut rlimits = vec![
        (Resource::Memlock, 64 * 1024),
        (Resource::Msgqueue, queues),
        // Queued signals, and timers, each of which holds one.
        (Resource::Sigpending, signals),
        // Programs get no priority over others, whatever the keeper's user may do.
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
    ];
    // The kernel and the C library read it when a process starts, so that the child of a zygote keeps that of the zygote.
    if !matches!(params.spec.role, Role::Child(_)) {
        rlimits.push((Resource::Stack, limits.stack()));
    }
    // A child of a zygote sets the limits of its run, and could not raise those of the zygote.
    if params.spec.role == Role::Zygote {
        return rlimits;
    }
    rlimits.extend([(Resource::Fsize, file_size), (Resource::Nofile, limits.open_files())]);
    if params.duties.processes == ProcessLimit::ByCounting {
        // Between two samples a program could create thousands of processes. The user has other processes, so this is
        // only a coarse bound: the number that the user has now, and room for several cells.
        let room = (8 * limits.processes()).max(512);
        rlimits.push((Resource::Nproc, watch::threads_of_this_user() + room));
    }
    if params.duties.processes == ProcessLimit::ByUser {
        // Counted per user and user namespace, so the count is the cell's. Threads count. Init either runs as another
        // user or counts as one more.
        let init = u64::from(params.program_ids.is_none());
        rlimits.push((Resource::Nproc, limits.processes() + init));
    }
    if let Some(cpu) = limits.cpu_time().filter(|_| params.duties.cpu_time) {
        rlimits.push((Resource::Cpu, cpu.as_secs() + 1));
    }
    rlimits
}
