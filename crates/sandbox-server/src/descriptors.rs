//! File descriptors: raises the limit, and bounds connections by the descriptors that are available.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// The descriptors of the server besides those of connections and runs: listener, store, keeper, ready cells, webhooks.
const OWN: u64 = 256;

/// The descriptors of a run: pipes, files, its cell, and connections through its gateway.
const EACH_RUN: u64 = 32;

/// Raises the soft limit of open files to the hard one; returns the new limit.
pub(crate) fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lowers the number of connections and streams to what this many open files allow.
pub(crate) fn fit(config: &mut Config, allowed: u64) {
    let most = for_connections(allowed, config.capacity);
    if most < config.max_connections {
        tracing::warn!(
            open_files = allowed,
            max_connections = most,
            "the limit on open files allows fewer connections than configured; raise it (LimitNOFILE=, ulimit -n)"
        );
        config.max_connections = most;
    }
    config.max_connections_per_address = config.max_connections_per_address.min(config.max_connections);
    // Streams are never evicted: half of the connections stay for everything else.
    config.max_streams = config.max_streams.min(config.max_connections.div_ceil(2));
}

/// The number of connections that descriptors are left for: those that nothing else needs, but at least a quarter of
/// all.
fn for_connections(allowed: u64, capacity: usize) -> usize {
    let others = OWN + EACH_RUN * capacity as u64;
    usize::try_from(allowed.saturating_sub(others).max(allowed / 4)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_runs() {
        assert_eq!(for_connections(1024, 4), 640);
        assert_eq!(for_connections(1024, 64), 256);
        assert_eq!(for_connections(20_000, 4), 19_616);
        assert_eq!(for_connections(u64::MAX, 4), usize::MAX - 384);
    }
}
