//! The counters of a container's cgroup, wherever the runtime put it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox_cell::bridge::Counters;

/// The usual mount point of the cgroup hierarchies.
const ROOT: &str = "/sys/fs/cgroup";

/// Memory that the guest itself uses: its keeper and init.
pub(super) const OWN_MEMORY: u64 = 8 << 20;
/// The number of processes of the guest.
pub(super) const OWN_PROCESSES: u64 = 3;

/// A cgroup by its path in the hierarchies.
#[derive(Debug, Clone)]
pub(super) struct ContainerGroup {
    path: PathBuf,
}

impl ContainerGroup {
    /// The cgroup at this path, which may not exist yet.
    pub(super) fn new(path: &str) -> Self {
        Self { path: PathBuf::from(path.trim_start_matches('/')) }
    }

    /// The cgroups of a process.
    pub(super) fn of_process(cgroups: &str) -> Option<Self> {
        let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
        let memory = cgroups
            .lines()
            .find(|line| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|n| n == "memory")));
        let unified = cgroups.lines().find(|line| line.starts_with("0::"));
        memory.or(unified).and_then(path).map(|path| Self::new(&path))
    }

    fn number(&self, controller: &str, file: &str) -> Option<u64> {
        let dir = Path::new(ROOT).join(controller).join(&self.path);
        std::fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
    }

    /// Reads one field of a file with a name and a number on each line.
    fn field(&self, controller: &str, file: &str, name: &str) -> Option<u64> {
        let dir = Path::new(ROOT).join(controller).join(&self.path);
        let text = std::fs::read_to_string(dir.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// The current memory usage.
    pub(super) fn memory(&self) -> Option<u64> {
        self.number("", "memory.current").or_else(|| self.number("memory", "memory.usage_in_bytes"))
    }

    /// Removes a cgroup that a failed runtime left behind.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_dir(Path::new(ROOT).join(&self.path));
        for controller in std::fs::read_dir(ROOT).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(controller.path().join(&self.path));
        }
    }

    /// The counters; empty if the cgroup cannot be found.
    pub(super) fn counters(&self) -> Option<Counters> {
        if let Some(cpu) = self.field("", "cpu.stat", "usage_usec").filter(|_| self.memory().is_some())
            && self.number("", "memory.current").is_some()
        {
            return Some(Counters {
                cpu: Duration::from_micros(cpu),
                memory_peak: self.number("", "memory.peak").unwrap_or(0),
                processes_peak: self.number("", "pids.peak").unwrap_or(0),
                oom_kills: self.field("", "memory.events", "oom_kill").unwrap_or(0),
                processes_refused: self.field("", "pids.events", "max").unwrap_or(0),
            });
        }
        Some(Counters {
            memory_peak: self.number("memory", "memory.max_usage_in_bytes")?,
            cpu: Duration::from_nanos(
                self.number("cpuacct", "cpuacct.usage")
                    .or_else(|| self.number("cpu,cpuacct", "cpuacct.usage"))
                    .unwrap_or(0),
            ),
            processes_peak: 0,
            oom_kills: self.field("memory", "memory.oom_control", "oom_kill").unwrap_or(0),
            processes_refused: self.field("pids", "pids.events", "max").unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_cgroup_of_a_process_is_found() {
        let hybrid = "5:pids:/a\n4:memory:/docker/x\n0::/y\n";
        assert_eq!(ContainerGroup::of_process(hybrid).expect("there").path, Path::new("docker/x"));
        assert_eq!(
            ContainerGroup::of_process("0::/system.slice/z\n").expect("there").path,
            Path::new("system.slice/z")
        );
        assert!(ContainerGroup::of_process("").is_none());
        assert_eq!(ContainerGroup::new("/surely/not/there").counters(), None);
    }
}
