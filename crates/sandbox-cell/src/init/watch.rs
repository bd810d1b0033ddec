//! Sampling by init where no cgroup limits memory and CPU time.
//!
//! This is weaker than a cgroup: a program can exceed the limit between two samples. It is the best available to a user
//! without a delegated cgroup, and results show it by not listing `memory` among the layers.

use std::time::Duration;

use super::{InitParams, ProcessLimit};
use crate::descendants;
use crate::layer::Layer;

/// The interval between samples.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// The current usage of all processes of the cell except init.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Bytes.
    pub(super) memory: u64,
    /// CPU time of live processes and of their reaped children.
    pub(super) cpu: Duration,
    /// Processes and threads.
    pub(super) processes: u64,
}

pub(super) fn sample(params: &InitParams<'_>) -> Sample {
    let mut pids = vec![];
    if params.has(Layer::Pid) {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.extend(numbers.filter(|pid| *pid != 1));
    } else {
        descendants::each(rustix::process::getpid(), &[], |member| pids.push(member.pid.as_raw_nonzero().get()));
    }
    let mut total = Sample::default();
    if params.duties.processes == ProcessLimit::ByCounting && pids.len() as u64 > params.spec.limits.processes() {
        // The limit is exceeded, and the number may grow as long as the walk lasts.
        return Sample { processes: pids.len() as u64, ..total };
    }
    for pid in pids {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            total.memory += memory(&status);
        }
        if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            let (cpu, threads) = times(&stat, sandbox_sys::process::ticks_per_second()).unwrap_or_default();
            total.cpu += cpu;
            total.processes += threads;
        }
    }
    total
}

/// The number of threads that the user of this process has on the whole host.
pub(super) fn threads_of_this_user() -> u64 {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = |entry: std::fs::DirEntry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        (field("Uid:")?.parse() == Ok(own)).then(|| field("Threads:")?.parse::<u64>().ok())?
    };
    entries.filter_map(threads).sum()
}

/// Private and shared memory of a process, swapped out or not, from its `status`. Pages of host files are not charged
/// to it.
fn memory(status: &str) -> u64 {
    const COUNTED: [&str; 3] = ["RssAnon:", "RssShmem:", "VmSwap:"];
    let kib = |line: &str| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    let counted = |line| COUNTED.iter().find_map(|name| str::strip_prefix(line, *name));
    status.lines().filter_map(counted).filter_map(kib).sum::<u64>() * 1024
}

/// CPU time and number of threads of a process, from its `stat`.
fn times(stat: &str, ticks_per_second: u64) -> Option<(Duration, u64)> {
    // Fields 14 to 17 are the times of the process and of its reaped children, 20 its threads. The name before them may
    // contain anything and ends at the last parenthesis, after which field 3 follows.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks: u64 = fields.get(11..15)?.iter().filter_map(|f| f.parse::<u64>().ok()).sum();
    let threads = fields.get(17)?.parse().ok()?;
    Some((Duration::from_micros(ticks * 1_000_000 / ticks_per_second), threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_memory() {
        let status = "Name:\tx\nVmRSS:\t  9000 kB\nRssAnon:\t   1000 kB\nRssFile:\t 7000 kB\nRssShmem:\t  24 kB\nVmSwap:\t 1024 kB\n";
        assert_eq!(memory(status), 2 * 1024 * 1024);
        assert_eq!(memory("RssAnon: lots\n"), 0);
    }

    #[test]
    fn times_are_parsed_whatever_the_process_name() {
        let stat = "7 (a) b () S 1 7 7 0 -1 4194304 100 0 0 0 150 50 20 30 20 0 3 0 100 0 0";
        assert_eq!(times(stat, 100), Some((Duration::from_millis(2500), 3)));
        assert_eq!(times("7 (x", 100), None);
    }
}
