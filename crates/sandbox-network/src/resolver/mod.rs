//! The stub resolver: looks names up in `/etc/hosts`, then asks the name servers of `/etc/resolv.conf`.
//!
//! The programs are linked statically, so that the resolver of the C library would have to load modules of the host. A look-up
//! needs no process and no runtime: it waits in the caller's thread, until its deadline or until the run ends.

mod config;
mod message;
mod query;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::host::HostName;
use crate::stop::StopSignal;
use config::{ResolverConfig, addresses_in_hosts};
#[cfg(fuzzing)]
pub(crate) use message::fuzz_reply;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The time for a look-up of a caller that has no deadline.
const USUAL: Duration = Duration::from_secs(10);

/// When a look-up ends at the latest, and what ends it sooner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupDeadline<'a> {
    pub(crate) until: Instant,
    pub(crate) stop: &'a StopSignal,
}

impl LookupDeadline<'static> {
    /// Ten seconds from now.
    pub(crate) fn usual() -> Self {
        Self { until: Instant::now() + USUAL, stop: &StopSignal::NEVER }
    }
}

/// The addresses of a host that the operator has named, whatever they are; none if it has none, or if they are not known
/// in time.
#[must_use]
pub fn look_up(host: &HostName, timeout: Duration) -> Vec<IpAddr> {
    resolve(host, LookupDeadline { until: Instant::now() + timeout, stop: &StopSignal::NEVER })
}

/// The addresses of a host; none if it has none, or if they are not known in time.
pub(crate) fn resolve(host: &HostName, deadline: LookupDeadline<'_>) -> Vec<IpAddr> {
    let name = match host {
        HostName::Address(address) => return vec![*address],
        HostName::Name(name) => name,
    };
    // RFC 6761: no name server knows these names.
    if deadline.stop.is_given() || name == "invalid" || name.ends_with(".invalid") {
        return vec![];
    }
    // The files are read each time, because they may change while a server runs.
    let read = |path: &str| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let mut addresses = addresses_in_hosts(&read(HOSTS), name);
    if addresses.is_empty() {
        let config = ResolverConfig::parse(&read(RESOLV_CONF));
        addresses = query::look_up(&config, name, has_ipv6(), deadline);
    }
    sort_by_preference(&mut addresses, has_route);
    addresses
}

/// Whether an interface other than loopback has an IPv6 address. If not, there is no need to ask for one.
fn has_ipv6() -> bool {
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let loopback = format!("{:032x}", Ipv6Addr::LOCALHOST.to_bits());
    interfaces.lines().any(|line| !line.starts_with(&loopback))
}

/// Puts addresses without a route last, and IPv6 before IPv4, as RFC 6724 has it.
fn sort_by_preference(addresses: &mut [IpAddr], has_route: impl Fn(IpAddr) -> bool) {
    let mixed = addresses.iter().any(IpAddr::is_ipv4) && addresses.iter().any(IpAddr::is_ipv6);
    if mixed {
        addresses.sort_by_cached_key(|address| (!has_route(*address), address.is_ipv4()));
    }
}

/// Whether there is a route to an address. Connecting a datagram socket sends nothing.
fn has_route(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    UdpSocket::bind((any, 0)).is_ok_and(|socket| socket.connect(SocketAddr::new(address, 53)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_ends_at_its_deadline() {
        let stop = StopSignal::new().expect("an event");
        stop.give();
        let host = HostName::parse("does-not-exist.invalid").expect("a name");
        let now = LookupDeadline { until: Instant::now(), stop: &stop };
        let unwanted = LookupDeadline { until: Instant::now() + Duration::from_secs(600), stop: &stop };
        for deadline in [now, unwanted] {
            assert_eq!(resolve(&host, deadline), Vec::<IpAddr>::new());
        }
        let late = LookupDeadline { until: Instant::now(), stop: &StopSignal::NEVER };
        assert_eq!(resolve(&host, late), Vec::<IpAddr>::new());
        let local = HostName::parse("localhost").expect("a name");
        assert!(!look_up(&local, Duration::from_secs(10)).is_empty());
        assert!(!resolve(&local, LookupDeadline::usual()).is_empty());
        assert!(resolve(&local, unwanted).is_empty(), "the stopped look-up returned an address");
    }

    #[test]
    fn addresses_with_a_route_come_first() {
        let list = |texts: [&str; 3]| texts.map(|text| text.parse::<IpAddr>().expect(text));
        let mut addresses = list(["192.0.2.1", "2001:db8::1", "192.0.2.2"]);
        sort_by_preference(&mut addresses, |_| true);
        assert_eq!(addresses, list(["2001:db8::1", "192.0.2.1", "192.0.2.2"]));
        sort_by_preference(&mut addresses, |address| address.is_ipv4());
        assert_eq!(addresses, list(["192.0.2.1", "192.0.2.2", "2001:db8::1"]));
    }
}
