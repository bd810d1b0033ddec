//! Cgroups of version 1, also in hybrid set-ups: one hierarchy for each controller.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::{CounterFile, Counters, locate};
use crate::layer::{Layer, LayerSet};
use sandbox_base::limits::Limits;

/// The file through which a single thread joins. A process with one thread can use it for itself. Unlike `cgroup.procs`
/// it does not make the kernel wait until every CPU has passed through the scheduler, which takes milliseconds.
const TASKS: &str = "tasks";

#[derive(Debug)]
pub(crate) struct TreeV1 {
    /// The controllers for which this process can create cgroups, and where.
    place: locate::V1Location,
    name: String,
    /// The files through which inits leave the program's cgroups, once they were opened.
    ways_back: OnceCell<Rc<[File]>>,
}

#[derive(Debug, Default)]
pub(crate) struct CgroupV1 {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    init: Vec<File>,
    program: Vec<File>,
    back: Rc<[File]>,
    alarm: Option<OwnedFd>,
    cpu_usage: CounterFile,
    memory_peak: CounterFile,
    oom_control: CounterFile,
    processes_peak: CounterFile,
    process_events: CounterFile,
}

impl TreeV1 {
    pub(super) fn new(mut place: locate::V1Location) -> Self {
        place.retain(|_, dir| rustix::fs::access(&*dir, rustix::fs::Access::WRITE_OK).is_ok());
        Self { place, name: super::own_name(), ways_back: OnceCell::new() }
    }

    pub(super) fn succeed(&self, predecessor: &str) {
        for dir in self.place.values() {
            super::sweep::sweep_after(dir, predecessor);
        }
    }

    pub(super) fn sweep(&self) {
        // Two controllers of one hierarchy have the same directory.
        let parents: BTreeSet<&Path> = self.place.values().map(PathBuf::as_path).collect();
        super::sweep::sweep(parents, &self.name);
    }

    pub(super) fn layers(&self) -> LayerSet {
        self.place.keys().filter_map(|controller| super::layer_of(controller)).collect()
    }

    pub(super) fn counts_cpu(&self) -> bool {
        self.place.contains_key("cpuacct")
    }

    pub(super) fn create(&self, number: u64, limits: &Limits, disabled: LayerSet) -> io::Result<CgroupV1> {
        let mut group = CgroupV1::default();
        match group.fill(self, number, limits, disabled) {
            Ok(()) => Ok(group),
            Err(error) => {
                let _ = group.remove();
                Err(error)
            }
        }
    }

    /// Creates the cgroup directory of one controller; two controllers may share one hierarchy.
    fn make(&self, controller: &str, number: u64) -> io::Result<Option<PathBuf>> {
        let Some(parent) = self.place.get(controller) else { return Ok(None) };
        let dir = parent.join(format!("{}-{number}", self.name));
        match std::fs::create_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(Some(dir))
    }

    /// The files through which a process leaves the cgroups that only programs join. They are the same for every cell.
    fn ways_back(&self) -> io::Result<Rc<[File]>> {
        if let Some(files) = self.ways_back.get() {
            return Ok(Rc::clone(files));
        }
        // Two controllers of one hierarchy have the same directory.
        let parents: BTreeSet<&PathBuf> = ["cpu", "cpuacct"].iter().filter_map(|name| self.place.get(name)).collect();
        let files: io::Result<Vec<File>> = parents.into_iter().map(|parent| super::joining(parent, TASKS)).collect();
        let files: Rc<[File]> = files?.into();
        Ok(Rc::clone(self.ways_back.get_or_init(|| files)))
    }
}

impl CgroupV1 {
    fn fill(&mut self, tree: &TreeV1, number: u64, limits: &Limits, disabled: LayerSet) -> io::Result<()> {
        self.memory = tree.make("memory", number)?;
        if let Some(memory) = &self.memory {
            if !disabled.contains(Layer::Memory) {
                let bytes = limits.memory().to_string();
                super::set(memory, "memory.limit_in_bytes", &bytes)?;
                // The limit of memory plus swap is the same as that of memory: no swap.
                super::set_if_present(memory, "memory.memsw.limit_in_bytes", &bytes)?;
            }
            self.init.push(super::joining(memory, TASKS)?);
            self.memory_peak = CounterFile::open(memory, "memory.max_usage_in_bytes")?;
            self.oom_control = CounterFile::open(memory, "memory.oom_control")?;
            self.alarm = self.oom_control.0.as_ref().and_then(|control| alarm(memory, control).ok());
        }
        self.pids = tree.make("pids", number)?;
        if let Some(pids) = &self.pids {
            if !disabled.contains(Layer::Pids) {
                super::set(pids, "pids.max", &(limits.processes() + 1).to_string())?;
            }
            self.init.push(super::joining(pids, TASKS)?);
            self.processes_peak = CounterFile::open(pids, "pids.peak")?;
            self.process_events = CounterFile::open(pids, "pids.events")?;
        }
        self.cpu = tree.make("cpu", number)?;
        if let Some(cpu) = &self.cpu {
            if !disabled.contains(Layer::Cpu) {
                // The period of a new cgroup is the kernel's default, which is the one that quotas are for.
                super::set(cpu, "cpu.cfs_quota_us", &super::quota(limits.milli_cpus()).to_string())?;
            }
            self.program.push(super::joining(cpu, TASKS)?);
        }
        self.cpuacct = tree.make("cpuacct", number)?;
        if let Some(cpuacct) = &self.cpuacct {
            if self.cpuacct != self.cpu {
                self.program.push(super::joining(cpuacct, TASKS)?);
            }
            self.cpu_usage = CounterFile::open(cpuacct, "cpuacct.usage")?;
        }
        // If the parents cannot be joined, init does not enter the program's cgroups, and the program sees their names.
        self.back = tree.ways_back().unwrap_or_default();
        Ok(())
    }

    pub(super) fn adjust(&self, from: &Limits, to: &Limits, disabled: LayerSet) -> io::Result<()> {
        let changed = |layer, differs: bool| differs && !disabled.contains(layer);
        if let Some(memory) = self.memory.as_ref().filter(|_| changed(Layer::Memory, from.memory() != to.memory())) {
            let bytes = to.memory().to_string();
            let mut files = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
            // The memory limit may at no time exceed the limit of memory plus swap.
            if to.memory() > from.memory() {
                files.reverse();
            }
            files.iter().try_for_each(|file| super::set_if_present(memory, file, &bytes))?;
        }
        if let Some(pids) = self.pids.as_ref().filter(|_| changed(Layer::Pids, from.processes() != to.processes())) {
            super::set(pids, "pids.max", &(to.processes() + 1).to_string())?;
        }
        if let Some(cpu) = self.cpu.as_ref().filter(|_| changed(Layer::Cpu, from.milli_cpus() != to.milli_cpus())) {
            super::set(cpu, "cpu.cfs_quota_us", &super::quota(to.milli_cpus()).to_string())?;
        }
        Ok(())
    }

    /// On v1 socket buffers are not part of the cgroup's memory: they have a separate counter and limit.
    pub(super) fn limit_sockets(&self, bytes: u64) -> io::Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        super::set_if_present(memory, "memory.kmem.tcp.limit_in_bytes", &bytes.to_string())
    }

    pub(super) fn joined_by_init(&self) -> &[File] {
        &self.init
    }

    pub(super) fn joined_by_program(&self) -> &[File] {
        &self.program
    }

    pub(super) fn ways_back(&self) -> &[File] {
        &self.back
    }

    pub(super) fn memory_alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(super::borrow)
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            cpu: Duration::from_nanos(self.cpu_usage.number().unwrap_or(0)),
            memory_peak: self.memory_peak.number().unwrap_or(0),
            oom_kills: self.oom_control.field("oom_kill ").unwrap_or(0),
            processes_peak: self.processes_peak.number().unwrap_or(0).saturating_sub(1),
            processes_refused: self.process_events.field("max ").unwrap_or(0),
        }
    }

    /// The kernel memory charged to the cgroup.
    pub(super) fn kernel_memory(&self) -> u64 {
        self.memory.as_ref().and_then(|memory| super::number(memory, "memory.kmem.usage_in_bytes")).unwrap_or(0)
    }

    /// Makes the kernel free some memory of a cgroup without processes, by lowering its limit.
    pub(super) fn reclaim(&self, bytes: u64) -> io::Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let used = super::number(memory, "memory.usage_in_bytes").unwrap_or(0);
        super::set(memory, "memory.limit_in_bytes", &used.saturating_sub(bytes).to_string())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        for dir in [&self.memory, &self.pids, &self.cpu, &self.cpuacct].into_iter().flatten() {
            super::remove_dir(dir)?;
        }
        Ok(())
    }
}

/// Asks the kernel to signal a descriptor when the cgroup's memory is full.
fn alarm(memory: &Path, control: &File) -> io::Result<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let registration = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    super::set(memory, "cgroup.event_control", &registration)?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_cgroups_have_the_period_that_quotas_are_for() {
        let Ok(locate::CgroupLocation::V1(place)) = locate::find() else { return };
        let tree = TreeV1::new(place);
        // The number is that of no cell: tests create few.
        let Ok(Some(cpu)) = tree.make("cpu", u64::MAX) else { return };
        let period = super::super::number(&cpu, "cpu.cfs_period_us");
        super::super::remove_dir(&cpu).expect("removed");
        assert_eq!(period, Some(super::super::PERIOD));
    }

    #[test]
    fn all_cells_share_the_files_of_their_parents() {
        let Ok(locate::CgroupLocation::V1(place)) = locate::find() else { return };
        let tree = TreeV1::new(place);
        let (Ok(first), Ok(second)) = (tree.ways_back(), tree.ways_back()) else { return };
        assert!(Rc::ptr_eq(&first, &second));
    }
}
