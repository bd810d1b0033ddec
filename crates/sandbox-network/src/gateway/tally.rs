//! Counts the traffic of a gateway and its refusals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::address_policy::NOT_ALLOWED;
use crate::host::HostName;

/// The maximum number of hosts, and of refusals, that are listed. All are counted.
const MOST_TOLD: usize = 100;

/// The network usage of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkUse {
    /// Established connections.
    pub connections: u64,
    /// Refused connections and names.
    pub refused: u64,
    /// DNS lookups.
    pub lookups: u64,
    /// Bytes that the program sent.
    pub sent: u64,
    /// Bytes that the program received.
    pub received: u64,
    /// The hosts that the program reached; at most 100.
    pub hosts: Vec<HostUse>,
    /// Refusals; at most 100.
    pub refusals: Vec<Refusal>,
}

/// The traffic with one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostUse {
    /// The name, or the address if no name was looked up.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Established connections.
    pub connections: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// A refused connection or lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// The host.
    pub host: String,
    /// The port; none for a refused lookup.
    pub port: Option<u16>,
    /// Why it was refused.
    pub why: String,
}

#[derive(Debug, Default)]
struct ByteCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

/// By name and port: connections and bytes.
type HostTraffic = BTreeMap<(String, u16), (u64, Arc<ByteCounters>)>;

/// Counters of a gateway.
#[derive(Debug, Default)]
pub(super) struct TrafficTally {
    total: ByteCounters,
    lookups: AtomicU64,
    connections: AtomicU64,
    refused: AtomicU64,
    hosts: Mutex<HostTraffic>,
    refusals: Mutex<Vec<Refusal>>,
}

/// Counts the bytes of one connection.
pub(super) struct ConnectionTraffic<'a> {
    total: &'a ByteCounters,
    host: Option<Arc<ByteCounters>>,
}

impl ConnectionTraffic<'_> {
    pub(super) fn sent(&self, bytes: usize) {
        self.add(|count| &count.sent, bytes);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.add(|count| &count.received, bytes);
    }

    fn add(&self, which: impl Fn(&ByteCounters) -> &AtomicU64, bytes: usize) {
        for count in [Some(self.total), self.host.as_deref()].into_iter().flatten() {
            which(count).fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl TrafficTally {
    pub(super) fn connected(&self, host: &HostName, port: u16) -> ConnectionTraffic<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.to_string(), port);
        let known = hosts.len() < MOST_TOLD || hosts.contains_key(&key);
        let host = known.then(|| {
            let entry = hosts.entry(key).or_default();
            entry.0 += 1;
            Arc::clone(&entry.1)
        });
        ConnectionTraffic { total: &self.total, host }
    }

    pub(super) fn refused(&self, host: &HostName, port: u16, why: &str) {
        self.refuse(host.to_string(), Some(port), why.to_owned());
    }

    pub(super) fn refused_name(&self, name: &str) {
        self.refuse(name.to_owned(), None, NOT_ALLOWED.to_owned());
    }

    fn refuse(&self, host: String, port: Option<u16>, why: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = Refusal { host, port, why };
        if refusals.len() < MOST_TOLD && !refusals.contains(&refusal) {
            refusals.push(refusal);
        }
    }

    pub(super) fn looked_up(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sum(&self) -> NetworkUse {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = |((host, port), (connections, bytes)): (&(String, u16), &(u64, Arc<ByteCounters>))| HostUse {
            host: host.clone(),
            port: *port,
            connections: *connections,
            sent: get(&bytes.sent),
            received: get(&bytes.received),
        };
        NetworkUse {
            connections: get(&self.connections),
            refused: get(&self.refused),
            lookups: get(&self.lookups),
            sent: get(&self.total.sent),
            received: get(&self.total.received),
            hosts: hosts.iter().map(host).collect(),
            refusals: self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
