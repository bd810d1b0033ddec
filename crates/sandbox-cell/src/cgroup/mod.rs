//! Cgroups: they limit a cell's memory, processes and CPU, and count its usage.
//!
//! # Theory of operation
//!
//! The keeper determines once where it may create cgroups ([`CgroupTree::locate`]); each cell then gets a [`Cgroup`].
//! It holds init, which must stay responsive, and the program. Memory and processes are limited for both together; init
//! uses next to nothing, and its share is subtracted. The CPU share applies to the program alone: a program that spins
//! in sixty threads on a tenth of a CPU cannot delay the init that is about to kill it.
//!
//! * **v2**: `sandbox-run-PID-START/cell-N/` has the limits of memory and processes; below it `init/` holds init and
//!   `run/` holds the program and the CPU share. (Only leaves may contain processes.)
//! * **v1**: `sandbox-run-PID-START-N/` in each controller's hierarchy. Init joins memory and pids, the program
//!   inherits those and joins cpu and cpuacct itself.
//!
//! Names contain the keeper's process id and start time, so that the next keeper can sweep the cgroups of a killed one.
//! All cgroups are created below the cgroup of the keeper. On v2 as root, if that cgroup contains other processes, they
//! are created below the root of the tree.

mod locate;
mod sweep;
mod v1;
mod v2;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::layer::{Layer, LayerSet};
use sandbox_base::limits::Limits;

/// The directories in which the cgroups of cells are created.
#[derive(Debug)]
pub(crate) enum CgroupTree {
    V1(v1::TreeV1),
    V2(v2::TreeV2),
    /// A location in a version 2 tree where nothing was created yet.
    Found(locate::V2Location),
    /// No cgroup can be created here, and why.
    Absent(String),
}

/// The cgroup version of this host, for display.
pub(crate) fn version() -> &'static str {
    match locate::find() {
        Ok(locate::CgroupLocation::V1(_)) => "v1",
        Ok(locate::CgroupLocation::V2(_)) => "v2",
        Err(_) => "none",
    }
}

/// Whether cgroups account swap. Version 2 always does; on version 1 it can be disabled.
pub(crate) fn counts_swap() -> bool {
    match locate::find() {
        Ok(locate::CgroupLocation::V1(place)) => {
            place.get("memory").is_some_and(|dir| dir.join("memory.memsw.limit_in_bytes").exists())
        }
        Ok(locate::CgroupLocation::V2(_)) => true,
        Err(_) => false,
    }
}

/// The cgroup of one cell.
#[derive(Debug)]
pub(crate) enum Cgroup {
    V1(v1::CgroupV1),
    V2(v2::CgroupV2),
    Absent,
}

/// The counters of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time of all processes.
    pub cpu: Duration,
    /// The most memory that was in use at once, in bytes.
    pub memory_peak: u64,
    /// Processes and threads, not counting init; 0 where the kernel keeps no peak.
    pub processes_peak: u64,
    /// How often the out-of-memory killer killed a process.
    pub oom_kills: u64,
    /// How often a fork was refused.
    pub processes_refused: u64,
}

impl CgroupTree {
    /// Determines where cgroups can be created. Creates nothing.
    pub(crate) fn locate() -> Self {
        match locate::find() {
            Ok(locate::CgroupLocation::V2(place)) => Self::Found(place),
            Ok(locate::CgroupLocation::V1(place)) => Self::V1(v1::TreeV1::new(place)),
            Err(why) => Self::Absent(why),
        }
    }

    /// Prepares the location for cgroups, once.
    pub(crate) fn prepare(&mut self, caller: i32) {
        if let Self::Found(place) = self {
            *self = match v2::TreeV2::prepare(place, caller) {
                Ok(tree) => Self::V2(tree),
                Err(why) => Self::Absent(why),
            };
        }
    }

    /// Takes over from a killed keeper, of which no process is left: removes its cgroups, and leaves the leaf to which it
    /// moved its caller.
    pub(crate) fn succeed(&mut self, predecessor: &str) {
        match self {
            Self::V1(tree) => tree.succeed(predecessor),
            Self::Found(place) => v2::succeed(place, predecessor),
            Self::V2(_) | Self::Absent(_) => {}
        }
    }

    /// Removes the cgroups of killed keepers.
    pub(crate) fn sweep(&self) {
        match self {
            Self::V1(tree) => tree.sweep(),
            Self::V2(tree) => tree.sweep(),
            Self::Found(_) | Self::Absent(_) => {}
        }
    }

    /// The limits that cgroups enforce on this host.
    pub(crate) fn layers(&self) -> LayerSet {
        match self {
            Self::V1(tree) => tree.layers(),
            Self::V2(tree) => tree.layers(),
            Self::Found(_) | Self::Absent(_) => LayerSet::default(),
        }
    }

    /// Why a layer is missing.
    pub(crate) fn why_missing(&self, layer: Layer) -> String {
        match self {
            Self::Absent(why) => why.clone(),
            _ => format!("the {} controller is not available in this cgroup", layer.name()),
        }
    }

    /// Creates the cgroup of cell number `number`. The resources of `disabled` layers are counted but not limited.
    pub(crate) fn create(&self, number: u64, limits: &Limits, disabled: LayerSet) -> io::Result<Cgroup> {
        match self {
            Self::V1(tree) => tree.create(number, limits, disabled).map(Cgroup::V1),
            Self::V2(tree) => tree.create(number, limits, disabled).map(Cgroup::V2),
            Self::Found(_) | Self::Absent(_) => Ok(Cgroup::Absent),
        }
    }

    /// Removes what [`CgroupTree::prepare`] created. Every cell's cgroup must be gone.
    pub(crate) fn remove(&self) {
        if let Self::V2(tree) = self {
            tree.remove();
        }
    }

    /// Whether CPU time is counted. On v2 it is, even without the cpu controller.
    pub(crate) fn counts_cpu(&self) -> bool {
        match self {
            Self::V1(tree) => tree.counts_cpu(),
            Self::V2(_) => true,
            Self::Found(_) | Self::Absent(_) => false,
        }
    }

    /// Whether a process can be created directly in a cgroup of this tree, which then has to exist before.
    pub(crate) fn has_birthplace(&self) -> bool {
        matches!(self, Self::V2(_))
    }
}

impl Cgroup {
    /// The cgroup in which init is created (v2), if the kernel supports that.
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::V2(group) => Some(group.birthplace()),
            _ => None,
        }
    }

    /// Limits the kernel memory of sockets. Only cells that can have connections get this limit, because it costs time.
    pub(crate) fn limit_sockets(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::V1(group) => group.limit_sockets(bytes),
            // On v2 socket memory is part of the memory limit.
            Self::V2(_) | Self::Absent => Ok(()),
        }
    }

    /// Changes the limits. Resources of `disabled` layers stay unlimited.
    pub(crate) fn adjust(&self, from: &Limits, to: &Limits, disabled: LayerSet) -> io::Result<()> {
        match self {
            Self::V1(group) => group.adjust(from, to, disabled),
            Self::V2(group) => group.adjust(from, to, disabled),
            Self::Absent => Ok(()),
        }
    }

    /// Files that init writes to in order to join.
    pub(crate) fn joined_by_init(&self) -> &[File] {
        match self {
            Self::V1(group) => group.joined_by_init(),
            _ => &[],
        }
    }

    /// Files that the program writes to in order to join.
    pub(crate) fn joined_by_program(&self) -> &[File] {
        match self {
            Self::V1(group) => group.joined_by_program(),
            Self::V2(group) => group.joined_by_program(),
            Self::Absent => &[],
        }
    }

    /// Files through which a process leaves the cgroups that only the program joins, one for each, if it can.
    pub(crate) fn ways_back(&self) -> &[File] {
        match self {
            Self::V1(group) => group.ways_back(),
            _ => &[],
        }
    }

    /// Reads the counters.
    pub(crate) fn counters(&self) -> Counters {
        match self {
            Self::V1(group) => group.counters(),
            Self::V2(group) => group.counters(),
            Self::Absent => Counters::default(),
        }
    }

    /// A descriptor that reports when memory is full.
    pub(crate) fn memory_alarm(&self) -> Option<Alarm<'_>> {
        match self {
            Self::V1(group) => group.memory_alarm().map(Alarm::Readable),
            Self::V2(group) => group.memory_alarm().map(Alarm::Priority),
            Self::Absent => None,
        }
    }

    /// Acknowledges an alarm, so that the next one can be reported.
    pub(crate) fn acknowledge_alarm(&self) {
        let mut buffer = [0; 512];
        match self.memory_alarm() {
            Some(Alarm::Readable(fd)) => {
                let _ = rustix::io::read(fd, &mut buffer);
            }
            Some(Alarm::Priority(fd)) => {
                let _ = rustix::io::pread(fd, &mut buffer, 0);
            }
            None => {}
        }
    }

    /// Frees part of the kernel memory that is charged to a cgroup without processes, mostly negative dentries.
    /// Otherwise it would stay allocated after the cgroup is removed, until the host runs short of memory. This takes
    /// time, so it is done in small steps; returns whether more is left.
    pub(crate) fn reclaim_some(&self) -> bool {
        /// Ordinary programs leave less than this.
        const ENOUGH: u64 = 2 << 20;
        const STEP: u64 = 4 << 20;
        let held = || match self {
            Self::V1(group) => group.kernel_memory(),
            Self::V2(group) => group.kernel_memory(),
            Self::Absent => 0,
        };
        let before = held();
        if before <= ENOUGH {
            return false;
        }
        // The kernel reports a failure if it freed other memory than requested. What matters is how much remains.
        let _ = match self {
            Self::V1(group) => group.reclaim(STEP),
            Self::V2(group) => group.reclaim(STEP),
            Self::Absent => Ok(()),
        };
        (ENOUGH + 1..before).contains(&held())
    }

    /// Removes the cgroup. Fails with EBUSY while a process is still exiting.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match self {
            Self::V1(group) => group.remove(),
            Self::V2(group) => group.remove(),
            Self::Absent => Ok(()),
        }
    }
}

/// A descriptor to wait on, and the condition to wait for.
pub(crate) enum Alarm<'a> {
    /// It becomes readable.
    Readable(BorrowedFd<'a>),
    /// It has an exceptional condition.
    Priority(BorrowedFd<'a>),
}

/// The prefix of every group's name.
const PREFIX: &str = "sandbox-run-";

/// The name that marks this process's groups.
fn own_name() -> String {
    name_of(rustix::process::getpid())
}

/// The name that marks a keeper's groups.
pub(crate) fn name_of(keeper: Pid) -> String {
    let pid = keeper.as_raw_nonzero();
    format!("{PREFIX}{pid}-{}", start_time(&pid.to_string()).unwrap_or_default())
}

/// When a process started, in ticks since boot: together with its id this identifies a process uniquely.
fn start_time(pid: &str) -> Option<u64> {
    stat_field(pid, 19)
}

/// A number from `/proc/PID/stat`, counted from the field after the command name. The name may contain anything, but it
/// ends at the last parenthesis. The fields of interest are among the first 22, so a single read gets them.
fn stat_field(pid: &str, index: usize) -> Option<u64> {
    let file = CounterFile::open(Path::new("/proc"), &format!("{pid}/stat")).ok()?;
    let mut buffer = [0; 1024];
    let stat = file.read(&mut buffer)?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(index)?.parse().ok()
}

/// Removes a directory that may not exist any more.
fn remove_dir(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Sets a control file. It must exist.
fn set(group: &Path, file: &str, value: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).open(group.join(file))?;
    io::Write::write_all(&mut file, value.as_bytes())
}

/// Sets a control file that exists only on some kernels.
fn set_if_present(group: &Path, file: &str, value: &str) -> io::Result<()> {
    match set(group, file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opens a file for joining a group: `cgroup.procs` or `tasks`.
fn joining(group: &Path, file: &str) -> io::Result<File> {
    OpenOptions::new().write(true).open(group.join(file))
}

/// A control file that counts something. It is opened when the cgroup is created: opening takes longer than reading, and a
/// client waits for what is read.
#[derive(Debug, Default)]
struct CounterFile(Option<File>);

impl CounterFile {
    /// Opens a file, which may be missing on this kernel.
    fn open(group: &Path, file: &str) -> io::Result<Self> {
        match File::open(group.join(file)) {
            Ok(file) => Ok(Self(Some(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }

    /// The content, with a single read: the files are small.
    fn read<'b>(&self, buffer: &'b mut [u8; 1024]) -> Option<&'b str> {
        let length = self.0.as_ref()?.read_at(buffer, 0).ok()?;
        std::str::from_utf8(&buffer[..length]).ok()
    }

    /// The number that is the whole content.
    fn number(&self) -> Option<u64> {
        self.read(&mut [0; 1024])?.trim().parse().ok()
    }

    /// One field of a file with a `name value` pair on each line.
    fn field(&self, name: &str) -> Option<u64> {
        self.read(&mut [0; 1024])?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }
}

/// Reads a control file that holds one number.
fn number(group: &Path, file: &str) -> Option<u64> {
    CounterFile::open(group, file).ok()?.number()
}

/// Reads one field of a control file with a `name value` pair on each line.
fn field(group: &Path, file: &str, name: &str) -> Option<u64> {
    CounterFile::open(group, file).ok()?.field(name)
}

/// Opens a cgroup directory for `CLONE_INTO_CGROUP`.
fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The CPU quota per period, in microseconds, for a share in thousandths.
fn quota(milli_cpus: u64) -> u64 {
    milli_cpus * PERIOD / 1000
}

/// The period of the CPU quota, in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;

/// The controllers behind the layers, by their kernel names.
fn layer_of(controller: &str) -> Option<Layer> {
    match controller {
        "memory" => Some(Layer::Memory),
        "pids" => Some(Layer::Pids),
        "cpu" => Some(Layer::Cpu),
        _ => None,
    }
}

fn borrow(file: &impl AsFd) -> BorrowedFd<'_> {
    file.as_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_start_time_identify_a_process() {
        let own = std::process::id().to_string();
        assert!(start_time(&own).is_some());
        assert_eq!(start_time("self"), start_time(&own));
        assert!(start_time("0").is_none());
        assert!(own_name().starts_with(&format!("{PREFIX}{own}-")));
    }

    #[test]
    fn reads_control_files() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("memory.events"), "low 0\noom 1\noom_kill 2\n").expect("write");
        std::fs::write(dir.path().join("pids.max"), "64\n").expect("write");
        assert_eq!(field(dir.path(), "memory.events", "oom_kill"), Some(2));
        assert_eq!(field(dir.path(), "memory.events", "absent"), None);
        assert_eq!(number(dir.path(), "pids.max"), Some(64));
        assert!(set(dir.path(), "missing", "1").is_err());
        assert!(set_if_present(dir.path(), "missing", "1").is_ok());
    }

    #[test]
    fn shares_become_quotas() {
        assert_eq!(quota(1000), 100_000);
        assert_eq!(quota(500), 50_000);
        assert_eq!(quota(10), 1_000);
    }
}
