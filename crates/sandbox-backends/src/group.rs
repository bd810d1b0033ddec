//! What a container's control group has counted, wherever its runtime has put it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox_cell::bridge::Counters;

/// Where the hierarchies are on every system that has them.
const ROOT: &str = "/sys/fs/cgroup";

/// What the program inside uses itself: its own keeper and init.
pub(super) const OWN_MEMORY: u64 = 8 << 20;
/// How many processes that are.
pub(super) const OWN_PROCESSES: u64 = 3;

/// A group by its path in the hierarchies.
#[derive(Debug, Clone)]
pub(super) struct ContainerGroup {
    path: PathBuf,
}

impl ContainerGroup {
    /// The group of this path, which may not exist yet.
    pub(super) fn new(path: &str) -> Self {
        Self { path: PathBuf::from(path.trim_start_matches('/')) }
    }

    /// The groups that a process is in.
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

    /// A number in a file of names and numbers.
    fn field(&self, controller: &str, file: &str, name: &str) -> Option<u64> {
        let dir = Path::new(ROOT).join(controller).join(&self.path);
        let text = std::fs::read_to_string(dir.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// What it uses at the moment.
    pub(super) fn memory(&self) -> Option<u64> {
        self.number("", "memory.current").or_else(|| self.number("memory", "memory.usage_in_bytes"))
    }

    /// Removes what a runtime that failed has left of it.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_dir(Path::new(ROOT).join(&self.path));
        for controller in std::fs::read_dir(ROOT).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(controller.path().join(&self.path));
        }
    }

    /// What it has counted; nothing if it cannot be found.
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
    fn a_processes_group_is_the_one_that_counts_memory() {
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
