//! Resource pools that the whole kernel shares and that this host cannot bound for a cell. docs/SECURITY.md lists all
//! pools and how each is bounded.

use crate::layer::{Layer, LayerSet};

/// A pool that is shared without a bound, or with a wide one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPool {
    /// The shared resource.
    pub pool: &'static str,
    /// Why it is not bounded here.
    pub why: String,
    /// How to bound it.
    pub fix: &'static str,
}

/// The facts about the host that decide.
struct PoolFacts<'a> {
    layers: LayerSet,
    privileged: bool,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    release: &'a str,
    core_pattern: &'a str,
    /// The highest limit on core dumps that this process can set.
    core_limit: Option<u64>,
    swap: bool,
    counts_swap: bool,
}

/// The unbounded pools on this host for cells with these layers.
pub(crate) fn shared(layers: LayerSet, privileged: bool, release: &str) -> Vec<SharedPool> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    unbounded(&PoolFacts {
        layers,
        privileged,
        release,
        core_pattern: &read("/proc/sys/kernel/core_pattern"),
        core_limit: rustix::process::getrlimit(rustix::process::Resource::Core).maximum,
        // The first line is a heading.
        swap: read("/proc/swaps").lines().count() > 1,
        counts_swap: crate::cgroup::counts_swap(),
    })
}

fn unbounded(facts: &PoolFacts<'_>) -> Vec<SharedPool> {
    let mut pools = vec![SharedPool {
        pool: "file range locks",
        why: "no kernel charges their memory to a cgroup; it is freed when the run ends".to_owned(),
        fix: "limit run times (SANDBOX_MAX_TIMEOUT) and concurrent runs (SANDBOX_CAPACITY)",
    }];
    let mut add = |pool, why: &str, fix| pools.push(SharedPool { pool, why: why.to_owned(), fix });
    let has_memory = facts.layers.contains(Layer::Memory);
    if !has_memory {
        add(
            "kernel memory (sockets, pipes, epoll, directory entries, unnamed files)",
            "no cgroup limits the kernel memory of a cell",
            Layer::Memory.fix(),
        );
    }
    if !facts.privileged {
        add(
            "limits of your user (queued signals, timers, message queues, pipe pages, epoll watches)",
            "every cell runs as your user and gets a fraction of its limits",
            "run as root, so that each cell gets dedicated user ids",
        );
    }
    if has_memory && facts.swap && !facts.counts_swap {
        add("swap", "the memory cgroup does not count it", "boot with swapaccount=1, use cgroup v2, or disable swap");
    }
    if version(facts.release).is_some_and(|version| version < (5, 15)) {
        add(
            "timers, queued signals and semaphores",
            "this kernel does not charge their memory to a cgroup",
            "use Linux 5.15 or later",
        );
    }
    if facts.core_pattern.starts_with('@') {
        add(
            "the host's crash handler",
            "core_pattern names a socket, which may receive the memory of a program that crashes in a cell",
            "set kernel.core_pattern to a pipe or a file name: cells use neither",
        );
    }
    if facts.core_pattern.starts_with('|') && facts.core_limit == Some(0) && !facts.privileged {
        add(
            "the host's crash handler",
            "it runs when a program crashes in a cell: the hard limit on core dumps is 0, only a limit of 1 disables the handler, and \
             only root can raise it",
            "start with a hard limit of 1 or more (LimitCORE=1 in a systemd unit, `ulimit -Hc 1` as root)",
        );
    }
    pools
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> PoolFacts<'static> {
        let layers = Layer::ALL.into_iter().collect();
        PoolFacts {
            layers,
            privileged: true,
            release: "6.1.0-18-amd64",
            core_pattern: "|/usr/bin/handler %p",
            core_limit: Some(1),
            swap: true,
            counts_swap: true,
        }
    }

    #[test]
    fn with_every_layer_only_file_locks_are_unbounded() {
        let pools: Vec<_> = unbounded(&all()).into_iter().map(|pool| pool.pool).collect();
        assert_eq!(pools, ["file range locks"]);
    }

    #[test]
    fn missing_bounds_are_reported_with_a_fix() {
        let pools =
            |facts: PoolFacts<'_>| unbounded(&facts).into_iter().skip(1).map(|pool| pool.pool).collect::<Vec<_>>();
        let without_memory = all().layers.without([Layer::Memory].into_iter().collect());
        assert!(pools(PoolFacts { layers: without_memory, ..all() })[0].starts_with("kernel memory"));
        assert!(pools(PoolFacts { privileged: false, ..all() })[0].starts_with("limits of your user"));
        assert_eq!(pools(PoolFacts { counts_swap: false, ..all() }), ["swap"]);
        assert_eq!(pools(PoolFacts { release: "5.14.0", ..all() }).len(), 1);
        assert_eq!(pools(PoolFacts { core_pattern: "@/run/crash.sock", ..all() }), ["the host's crash handler"]);
        assert_eq!(pools(PoolFacts { core_limit: Some(0), ..all() }), Vec::<&str>::new(), "root can raise it");
        assert_eq!(pools(PoolFacts { core_limit: Some(0), privileged: false, ..all() }).len(), 2);
        assert!(unbounded(&PoolFacts { privileged: false, ..all() }).iter().all(|pool| !pool.fix.is_empty()));
    }
}
