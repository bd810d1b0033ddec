//! Cgroups of version 2: one tree, with controllers enabled level by level.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CounterFile, Counters, locate};
use crate::layer::{Layer, LayerSet};
use sandbox_base::limits::Limits;

#[derive(Debug)]
pub(crate) struct TreeV2 {
    /// The keeper's directory, which contains those of the cells.
    base: PathBuf,
    /// The leaf to which the processes of the keeper's cgroup were moved, if that was necessary.
    leaf: Option<PathBuf>,
    layers: LayerSet,
}

#[derive(Debug)]
pub(crate) struct CgroupV2 {
    cell: PathBuf,
    init: OwnedFd,
    program: Vec<File>,
    /// Reports that memory is full. Opened a second time, because reading it acknowledges the report.
    alarm: Option<File>,
    cpu_usage: CounterFile,
    memory_peak: CounterFile,
    memory_events: CounterFile,
    processes_peak: CounterFile,
    process_events: CounterFile,
}

impl TreeV2 {
    pub(super) fn prepare(place: &locate::V2Location, caller: i32) -> Result<Self, String> {
        // A cgroup can have processes or children with controllers, not both. Only the root of the whole tree is
        // exempt; it alone has no cgroup.type.
        let at_root = place.own == place.top && !place.own.join("cgroup.type").exists();
        let mut why = String::new();
        if !at_root {
            match Self::below_own(&place.own, caller) {
                Ok(tree) => return Ok(tree),
                Err(error) => why = error,
            }
        }
        if at_root || rustix::process::geteuid().is_root() {
            return Self::make(&place.top, None);
        }
        Err(why)
    }

    /// Moves all processes of this process's cgroup to a leaf, if they all belong to the caller.
    fn below_own(own: &Path, caller: i32) -> Result<Self, String> {
        let shown = |error: io::Error| format!("cgroup of this process cannot be divided: {error}");
        let leaf = own.join(format!("{}-leaf", super::own_name()));
        std::fs::create_dir(&leaf).map_err(shown)?;
        let mut made = Err(String::new());
        // If the caller starts a process meanwhile, the attempt fails; the next attempt moves that process too.
        for _ in 0..5 {
            made = move_family(own, &leaf, caller).and_then(|()| Self::make(own, Some(leaf.clone())));
            if made.is_ok() {
                return made;
            }
        }
        move_back(&leaf, own);
        made
    }

    /// Creates the keeper's directory in `parent` and enables controllers down to it.
    fn make(parent: &Path, leaf: Option<PathBuf>) -> Result<Self, String> {
        let available = std::fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
        let wanted: Vec<&str> =
            available.split_ascii_whitespace().filter(|controller| super::layer_of(controller).is_some()).collect();
        enable(parent, &wanted).map_err(|e| format!("cannot enable cgroup controllers: {e}"))?;
        let base = parent.join(super::own_name());
        std::fs::create_dir(&base).map_err(|e| format!("cannot create a cgroup: {e}"))?;
        if let Err(error) = enable(&base, &wanted) {
            let _ = std::fs::remove_dir(&base);
            return Err(format!("cannot enable cgroup controllers: {error}"));
        }
        let layers = wanted.iter().filter_map(|controller| super::layer_of(controller)).collect();
        Ok(Self { base, leaf, layers })
    }

    pub(super) fn sweep(&self) {
        let own = self.base.file_name().and_then(OsStr::to_str).unwrap_or_default();
        super::sweep::sweep(self.base.parent(), own);
    }

    pub(super) fn layers(&self) -> LayerSet {
        self.layers
    }

    pub(super) fn create(&self, number: u64, limits: &Limits, disabled: LayerSet) -> io::Result<CgroupV2> {
        let cell = self.base.join(format!("cell-{number}"));
        std::fs::create_dir(&cell)?;
        let group = Self::fill(&cell, limits, self.layers.without(disabled));
        if group.is_err() {
            super::sweep::remove_tree(&cell);
        }
        group
    }

    fn fill(cell: &Path, limits: &Limits, limited: LayerSet) -> io::Result<CgroupV2> {
        let mut alarm = None;
        if limited.contains(Layer::Memory) {
            super::set(cell, "memory.max", &limits.memory().to_string())?;
            super::set_if_present(cell, "memory.swap.max", "0")?;
            alarm = File::open(cell.join("memory.events")).ok();
        }
        if limited.contains(Layer::Pids) {
            super::set(cell, "pids.max", &(limits.processes() + 1).to_string())?;
        }
        if limited.contains(Layer::Cpu) {
            enable(cell, &["cpu"])?;
        }
        let (init, run) = (cell.join("init"), cell.join("run"));
        std::fs::create_dir(&init)?;
        std::fs::create_dir(&run)?;
        if limited.contains(Layer::Cpu) {
            super::set(&run, "cpu.max", &format!("{} {}", super::quota(limits.milli_cpus()), super::PERIOD))?;
        }
        let group = CgroupV2 {
            cell: cell.to_owned(),
            init: super::open_dir(&init)?,
            program: vec![super::joining(&run, "cgroup.procs")?],
            alarm,
            cpu_usage: CounterFile::open(&run, "cpu.stat")?,
            // Kernels before 5.19 keep no peak: the current usage is the best available value.
            memory_peak: match CounterFile::open(cell, "memory.peak")? {
                CounterFile(None) => CounterFile::open(cell, "memory.current")?,
                peak => peak,
            },
            memory_events: CounterFile::open(cell, "memory.events")?,
            processes_peak: CounterFile::open(cell, "pids.peak")?,
            process_events: CounterFile::open(cell, "pids.events")?,
        };
        // Reading arms the alarm: the kernel reports changes since the last read.
        if let Some(alarm) = &group.alarm {
            let _ = rustix::io::pread(alarm, &mut [0; 512][..], 0);
        }
        Ok(group)
    }

    pub(super) fn remove(&self) {
        super::sweep::remove_tree(&self.base);
        if let Some(leaf) = &self.leaf
            && let Some(own) = leaf.parent()
        {
            move_back(leaf, own);
        }
    }
}

impl CgroupV2 {
    pub(super) fn birthplace(&self) -> BorrowedFd<'_> {
        super::borrow(&self.init)
    }

    pub(super) fn adjust(&self, from: &Limits, to: &Limits, disabled: LayerSet) -> io::Result<()> {
        // The files of disabled controllers do not exist.
        let changed = |layer, differs: bool| differs && !disabled.contains(layer);
        if changed(Layer::Memory, from.memory() != to.memory()) {
            super::set_if_present(&self.cell, "memory.max", &to.memory().to_string())?;
        }
        if changed(Layer::Pids, from.processes() != to.processes()) {
            super::set_if_present(&self.cell, "pids.max", &(to.processes() + 1).to_string())?;
        }
        if changed(Layer::Cpu, from.milli_cpus() != to.milli_cpus()) {
            let share = format!("{} {}", super::quota(to.milli_cpus()), super::PERIOD);
            super::set_if_present(&self.cell.join("run"), "cpu.max", &share)?;
        }
        Ok(())
    }

    pub(super) fn joined_by_program(&self) -> &[File] {
        &self.program
    }

    pub(super) fn memory_alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(super::borrow)
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            cpu: Duration::from_micros(self.cpu_usage.field("usage_usec ").unwrap_or(0)),
            memory_peak: self.memory_peak.number().unwrap_or(0),
            processes_peak: self.processes_peak.number().unwrap_or(0).saturating_sub(1),
            oom_kills: self.memory_events.field("oom_kill ").unwrap_or(0),
            processes_refused: self.process_events.field("max ").unwrap_or(0),
        }
    }

    /// The kernel memory charged to the cgroup.
    pub(super) fn kernel_memory(&self) -> u64 {
        // Before Linux 5.18 there is no sum; these fields are the relevant part.
        let field = |name| super::field(&self.cell, "memory.stat", name);
        field("kernel ").or_else(|| field("slab ")).unwrap_or(0)
    }

    /// Makes the kernel free some memory of a cgroup without processes. Linux before 5.19 cannot do this.
    pub(super) fn reclaim(&self, bytes: u64) -> io::Result<()> {
        super::set(&self.cell, "memory.reclaim", &bytes.to_string())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        for dir in [self.cell.join("init"), self.cell.join("run"), self.cell.clone()] {
            super::remove_dir(&dir)?;
        }
        Ok(())
    }
}

/// Removes the cgroups of a dead keeper. If this process is in that keeper's leaf, moves all processes in it back.
pub(super) fn succeed(place: &mut locate::V2Location, predecessor: &str) {
    let leaf = format!("{predecessor}-leaf");
    if place.own.file_name().is_some_and(|name| name == leaf.as_str())
        && let Some(own) = place.own.parent().map(Path::to_owned)
    {
        super::sweep::remove_tree(&own.join(predecessor));
        move_back(&place.own, &own);
        // A process that did not move keeps the leaf in use.
        if !place.own.exists() {
            place.own = own;
        }
    }
    super::sweep::sweep_after(&place.top, predecessor);
}

/// Enables controllers for the children of `group`, unless they are enabled.
fn enable(group: &Path, controllers: &[&str]) -> io::Result<()> {
    let enabled = std::fs::read_to_string(group.join("cgroup.subtree_control"))?;
    let missing: Vec<String> = controllers
        .iter()
        .filter(|controller| !enabled.split_ascii_whitespace().any(|e| e == **controller))
        .map(|controller| format!("+{controller}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    super::set(group, "cgroup.subtree_control", &missing.join(" "))
}

/// Undoes the move to a leaf: disables the controllers and moves all processes back.
fn move_back(leaf: &Path, own: &Path) {
    let enabled = std::fs::read_to_string(own.join("cgroup.subtree_control")).unwrap_or_default();
    let off: Vec<String> = enabled.split_ascii_whitespace().map(|controller| format!("-{controller}")).collect();
    let _ = super::set(own, "cgroup.subtree_control", &off.join(" "));
    if let Ok(pids) = std::fs::read_to_string(leaf.join("cgroup.procs")) {
        for pid in pids.lines() {
            let _ = super::set(own, "cgroup.procs", pid);
        }
    }
    let _ = std::fs::remove_dir(leaf);
}

/// Moves all processes of a cgroup to its leaf, if they are this process's parent and its descendants.
fn move_family(own: &Path, leaf: &Path, caller: i32) -> Result<(), String> {
    let pids = std::fs::read_to_string(own.join("cgroup.procs")).map_err(|e| format!("cannot read the cgroup: {e}"))?;
    let pids: Vec<i32> = pids.lines().filter_map(|pid| pid.parse().ok()).collect();
    if !pids.iter().all(|pid| descends(*pid, caller)) {
        return Err("cgroup of this process is shared with other processes, not delegated to it".to_owned());
    }
    for pid in pids {
        match super::set(leaf, "cgroup.procs", &pid.to_string()) {
            // The process has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            other => other.map_err(|e| format!("cgroup of this process cannot be divided: {e}"))?,
        }
    }
    Ok(())
}

/// Whether a process is `ancestor` or descends from it. A process that has just ended counts.
fn descends(pid: i32, ancestor: i32) -> bool {
    let mut pid = pid;
    for _ in 0..32 {
        if pid == ancestor {
            return true;
        }
        let Some(parent) = super::stat_field(&pid.to_string(), 1) else { return true };
        pid = i32::try_from(parent).unwrap_or(0);
        if pid <= 1 {
            return false;
        }
    }
    false
}
