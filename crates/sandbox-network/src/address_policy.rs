//! The address policy: which hosts and addresses may be connected to on behalf of a program, an installer or a webhook.
//!
//! Names are resolved on this side, every address of a name is checked, and the connection goes to an address that was
//! checked, so that DNS rebinding does not help. Addresses that are not public, and this host's own, are refused whatever a
//! request allows; only the operator can name exceptions. `special_addresses.rs` lists them.
//!
//! A name without a public address is refused in the same words as one that does not exist, so that programs cannot
//! enumerate the names of the operator's network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::host::{HostName, HostRule};
use crate::package_index::PackageIndex;
use crate::resolver::{LookupDeadline, resolve};
use crate::special_addresses::{DenyList, destination, is_metadata, is_metadata_name, is_public};

/// How the reason of a refusal ends if a request could have allowed the host.
pub const NOT_ALLOWED: &str = "is not among the hosts that are allowed";

/// Which hosts and addresses may be reached.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    /// The only hosts that may be reached; any host if absent.
    pub hosts: Option<Vec<HostRule>>,
    /// The only ports that may be reached where a rule has no port.
    pub ports: Option<Vec<u16>>,
    /// Hosts that may be reached regardless of the fields above, even at private addresses.
    pub always: Vec<HostRule>,
    /// Hosts that may have private addresses, provided that the fields above allow them.
    pub private: Vec<HostRule>,
    /// Hosts and addresses that may not be reached, regardless of the fields above.
    pub deny: DenyList,
    /// Package indexes with credentials, which installers reach through aliases.
    pub indexes: Vec<PackageIndex>,
}

impl AddressPolicy {
    /// Whether the policy allows a host at a port, before any of its addresses is known.
    pub fn allows(&self, host: &HostName, port: u16) -> Result<(), String> {
        if self.deny.names(host, port) {
            return Err(format!("{host}:{port} is refused by the operator"));
        }
        let usual = self.ports.as_ref().is_none_or(|ports| ports.contains(&port));
        if self.always.iter().any(|rule| rule.fits(host, port)) {
            return Ok(());
        }
        match &self.hosts {
            None if usual => Ok(()),
            None => Err(format!("port {port} is not allowed")),
            Some(hosts) if hosts.iter().any(|rule| rule.fits(host, port) && (usual || rule.port().is_some())) => Ok(()),
            Some(_) => Err(format!("{host}:{port} {NOT_ALLOWED}")),
        }
    }

    /// Whether the policy allows a host at any port.
    #[must_use]
    pub fn names(&self, host: &HostName) -> bool {
        let named = |rules: &[HostRule]| rules.iter().any(|rule| rule.names(host));
        let refused = self.deny.names_all(host);
        !refused && (named(&self.always) || self.hosts.as_ref().is_none_or(|hosts| named(hosts)))
    }

    fn may_be_private(&self, host: &HostName, port: Option<u16>) -> bool {
        let mut rules = self.always.iter().chain(&self.private);
        rules.any(|rule| port.map_or_else(|| rule.names(host), |port| rule.fits(host, port)))
    }

    /// Whether the operator has named this host, so that refusals need not hide whether it exists.
    pub(crate) fn is_known(&self, host: &HostName) -> bool {
        self.may_be_private(host, None)
    }

    /// Whether a host may be reached at one of its addresses, at a port or at any.
    fn permits(&self, host: &HostName, port: Option<u16>, address: IpAddr, own: &[IpAddr]) -> bool {
        let may_be_private = self.may_be_private(host, port);
        if self.deny.covers(address) {
            return false;
        }
        if is_metadata(address) {
            return may_be_private && matches!(host, HostName::Address(_));
        }
        may_be_private || is_public_elsewhere(address, own)
    }

    /// Whether a host at a port may be reached at one of its addresses.
    pub(crate) fn check(&self, host: &HostName, port: u16, address: IpAddr) -> Result<(), String> {
        self.allows(host, port)?;
        let permits = self.permits(host, Some(port), address, &own_addresses());
        if permits { Ok(()) } else { Err(no_address(host)) }
    }

    /// The addresses of a host at which it may be reached, which were resolved and checked just now.
    pub fn addresses(&self, host: &HostName, port: u16) -> Result<Vec<SocketAddr>, String> {
        self.allows(host, port)?;
        self.look_up(host, Some(port), LookupDeadline::usual())
            .map(|found| found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// The addresses of a host at which it may be reached, at a port or at any. Does not check [`AddressPolicy::allows`].
    pub(crate) fn look_up(
        &self,
        host: &HostName,
        port: Option<u16>,
        deadline: LookupDeadline<'_>,
    ) -> Result<Vec<IpAddr>, String> {
        let (mut found, own) = (resolve(host, deadline), own_addresses());
        found.retain(|address| self.permits(host, port, *address, &own) && !is_metadata_name(host));
        if found.is_empty() { Err(no_address(host)) } else { Ok(found) }
    }
}

fn no_address(host: &HostName) -> String {
    match host {
        HostName::Address(_) => format!("{host}: its address is not public"),
        HostName::Name(_) => format!("{host}: cannot be resolved to a public address"),
    }
}

/// The addresses of this host's interfaces, which may be public.
fn own_addresses() -> Vec<IpAddr> {
    let routes = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    local_v4(&routes).into_iter().map(IpAddr::V4).chain(local_v6(&interfaces).into_iter().map(IpAddr::V6)).collect()
}

/// The local addresses in `fib_trie`, which has the type of an address on the line below it.
fn local_v4(table: &str) -> Vec<Ipv4Addr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut found = vec![];
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.ends_with("/32 host LOCAL") {
            found.extend(last);
        }
    }
    found
}

fn local_v6(table: &str) -> Vec<Ipv6Addr> {
    let read = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok().map(Ipv6Addr::from);
    table.lines().filter_map(read).collect()
}

/// Whether an address is public and does not lead back to this host.
fn is_public_elsewhere(address: IpAddr, own: &[IpAddr]) -> bool {
    is_public(address) && !own.iter().any(|own| destination(*own) == destination(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_allows_hosts_and_ports() {
        let rules = |list: &[&str]| list.iter().map(|rule| HostRule::parse(rule).expect("valid")).collect::<Vec<_>>();
        let policy = AddressPolicy {
            hosts: Some(rules(&["a.example:443", "c.example"])),
            ports: Some(vec![80, 443]),
            always: rules(&["10.0.0.1:80"]),
            private: rules(&["b.example"]),
            deny: DenyList::default(),
            indexes: vec![],
        };
        let allows =
            |policy: &AddressPolicy, host: &str, port| policy.allows(&HostName::parse(host).expect(host), port).is_ok();
        assert!(
            allows(&policy, "a.example", 443)
                && !allows(&policy, "a.example", 80)
                && !allows(&policy, "b.example", 443)
        );
        assert!(allows(&policy, "10.0.0.1", 80) && !allows(&policy, "10.0.0.1", 81));
        assert!(allows(&policy, "c.example", 80) && !allows(&policy, "c.example", 22), "the default ports");
        let any = AddressPolicy { ports: Some(vec![443]), ..AddressPolicy::default() };
        assert!(allows(&any, "b.example", 443) && !allows(&any, "b.example", 22));
        assert!(any.addresses(&HostName::parse("127.0.0.1").expect("valid"), 443).is_err());
        let known = any.addresses(&HostName::parse("192.0.2.7").expect("valid"), 443).expect("public");
        assert_eq!(known, ["192.0.2.7:443".parse().expect("address")]);
    }

    #[test]
    fn services_of_providers_are_refused_whatever_is_allowed() {
        let host = |text: &str| HostName::parse(text).expect(text);
        let named =
            AddressPolicy { private: vec![HostRule::parse("db.internal").expect("valid")], ..AddressPolicy::default() };
        let permits = |policy: &AddressPolicy, name: &str, at: &str| {
            policy.permits(&host(name), Some(80), at.parse().expect(at), &[])
        };
        assert!(permits(&named, "db.internal", "10.0.0.1") && !permits(&named, "other.internal", "10.0.0.1"));
        for metadata in ["169.254.169.254", "168.63.129.16", "fd00:ec2::254"] {
            assert!(!permits(&named, "db.internal", metadata), "a name that has {metadata}");
            assert!(!permits(&AddressPolicy::default(), metadata, metadata));
            let exactly =
                AddressPolicy { private: vec![HostRule::exactly(host(metadata), 80)], ..AddressPolicy::default() };
            assert!(permits(&exactly, metadata, metadata), "the operator has named {metadata} itself");
        }
        let deny = DenyList::parse("203.0.113.0/24,evil.example").expect("valid");
        let denied = AddressPolicy {
            private: vec![HostRule::exactly(host("203.0.113.9"), 80)],
            deny,
            ..AddressPolicy::default()
        };
        assert!(!permits(&denied, "203.0.113.9", "203.0.113.9") && permits(&denied, "a.example", "192.0.2.1"));
        assert!(denied.allows(&host("evil.example"), 80).is_err() && !denied.names(&host("evil.example")));
        assert_eq!(
            AddressPolicy::default().addresses(&host("metadata.google.internal"), 80),
            Err("metadata.google.internal: cannot be resolved to a public address".to_owned())
        );
    }

    #[test]
    fn unknown_names_and_private_names_are_refused_alike() {
        let refused = |name: &str| {
            let host = HostName::parse(name).expect(name);
            AddressPolicy::default().addresses(&host, 443).expect_err(name).replace(name, "NAME")
        };
        assert_eq!(refused("localhost"), refused("does-not-exist.invalid"));
    }

    #[test]
    fn addresses_of_this_host_are_known() {
        let table = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        /24 link UNICAST\n";
        assert_eq!(local_v4(table), ["192.0.2.1".parse::<Ipv4Addr>().expect("address")]);
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(local_v6(table), [Ipv6Addr::LOCALHOST]);
        assert!(own_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn this_host_is_recognised_in_every_encoding() {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let disguises = ["203.0.113.80", "::ffff:203.0.113.80", "64:ff9b::cb00:7150", "2002:cb00:7150::1"];
        for own in disguises.map(address) {
            for disguise in disguises.map(address) {
                assert!(!is_public_elsewhere(disguise, &[own]), "{disguise} is {own}");
            }
            assert!(
                is_public_elsewhere(address("203.0.113.81"), &[own])
                    && is_public_elsewhere(address("2606:4700::1"), &[own])
            );
        }
    }

    #[test]
    fn special_addresses_are_not_public() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            // For NAT64 inside a network, which may put the address elsewhere.
            "64:ff9b:1:a00:1:0:808:808",
        ] {
            assert!(!is_public(address.parse().expect(address)), "{address}");
        }
        for address in ["203.0.113.80", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(address.parse().expect(address)), "{address}");
        }
    }
}
