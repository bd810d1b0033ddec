//! Reads `/etc/hosts` and `/etc/resolv.conf`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use crate::host::HostName;

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// The most name servers that are asked, as in the C library.
const MOST_SERVERS: usize = 3;

/// The addresses that `/etc/hosts` has for a name.
pub(super) fn addresses_in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let mut addresses = vec![];
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        let same = |word: &str| word.strip_suffix('.').unwrap_or(word).eq_ignore_ascii_case(name);
        if words.any(same) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The name servers, and how to query them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolverConfig {
    pub(super) servers: Vec<SocketAddr>,
    /// The domains in which names with few dots are looked up.
    pub(super) search: Vec<String>,
    /// A name with at least this many dots is looked up as it is before the domains are tried.
    pub(super) ndots: usize,
    /// How long to wait for one server.
    pub(super) timeout: Duration,
    /// The number of queries to each server.
    pub(super) attempts: u32,
    /// Whether to use TCP only.
    pub(super) tcp: bool,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        let timeout = Duration::from_secs(5);
        Self { servers: vec![], search: vec![], ndots: 1, timeout, attempts: 2, tcp: false }
    }
}

impl ResolverConfig {
    /// Reads the text of `/etc/resolv.conf`. As in the C library, lines that cannot be read are ignored, and a host without
    /// name servers is its own name server.
    pub(super) fn parse(text: &str) -> Self {
        let mut config = Self::default();
        let mut search = None;
        for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < MOST_SERVERS => {
                    config.servers.extend(words.next().and_then(server));
                }
                Some("search") => search = Some(words.filter_map(domain).collect()),
                Some("domain") => search = Some(words.next().and_then(domain).into_iter().collect()),
                Some("options") => words.for_each(|word| config.set_option(word)),
                _ => {}
            }
        }
        config.search = search.unwrap_or_else(|| own_domain().into_iter().collect());
        if config.servers.is_empty() {
            config.servers.push((Ipv4Addr::LOCALHOST, DNS_PORT).into());
        }
        config
    }

    fn set_option(&mut self, word: &str) {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        match (name, value.parse::<u32>()) {
            ("ndots", Ok(dots)) => self.ndots = dots.min(15) as usize,
            ("timeout", Ok(seconds)) => self.timeout = Duration::from_secs(seconds.clamp(1, 30).into()),
            ("attempts", Ok(attempts)) => self.attempts = attempts.clamp(1, 5),
            ("use-vc", _) => self.tcp = true,
            _ => {}
        }
    }

    /// The names to ask for, in this order, until one has an address.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        let mut candidates: Vec<String> = self.search.iter().map(|domain| format!("{name}.{domain}")).collect();
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        let first = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(first, name.to_owned());
        candidates
    }
}

/// A name server; the address of one on the same link has the name of an interface behind a percent sign.
fn server(text: &str) -> Option<SocketAddr> {
    let Some((address, interface)) = text.split_once('%') else {
        return Some(SocketAddr::new(text.parse().ok()?, DNS_PORT));
    };
    let scope = interface.parse().ok().or_else(|| {
        let plain = !interface.contains('/') && !interface.starts_with('.');
        let path = format!("/sys/class/net/{interface}/ifindex");
        plain.then(|| std::fs::read_to_string(path).ok()?.trim().parse().ok()).flatten()
    })?;
    Some(SocketAddrV6::new(address.parse().ok()?, DNS_PORT, 0, scope).into())
}

fn domain(text: &str) -> Option<String> {
    match HostName::parse(text) {
        Some(HostName::Name(name)) => Some(name),
        _ => None,
    }
}

/// The domain of this host's own name, which is searched if the file has no list.
fn own_domain() -> Option<String> {
    let own = rustix::system::uname();
    let (_, domain_name) = own.nodename().to_str().ok()?.split_once('.')?;
    domain(domain_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_by_every_name() {
        let text = "# comment\n127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # x.example\n192.0.2.1 Db.example db\nbad line\n192.0.2.1 db\n";
        let found = |name: &str| addresses_in_hosts(text, name).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!((found("db.example"), found("db")), (vec!["192.0.2.1".to_owned()], vec!["192.0.2.1".to_owned()]));
        assert!(found("x.example").is_empty() && found("line").is_empty() && found("192.0.2.1").is_empty());
    }

    #[test]
    fn servers_domains_and_options_are_read() {
        let text = "; c\nnameserver 192.0.2.53\nnameserver 2001:db8::53\nnameserver fe80::1%2\nnameserver 192.0.2.54\nnameserver x\n\
            domain old.example\nsearch a.example B.example. -bad\noptions ndots:2 timeout:1 attempts:9 use-vc rotate\n";
        let config = ResolverConfig::parse(text);
        let servers: Vec<String> = config.servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["192.0.2.53:53", "[2001:db8::53]:53", "[fe80::1%2]:53"]);
        assert_eq!(config.search, ["a.example", "b.example"]);
        assert_eq!((config.ndots, config.timeout, config.attempts, config.tcp), (2, Duration::from_secs(1), 5, true));
        assert_eq!(ResolverConfig::parse("").servers, ["127.0.0.1:53".parse().expect("an address")]);
    }

    #[test]
    fn names_with_few_dots_are_searched_first() {
        let config = ResolverConfig { search: vec!["corp.example".to_owned()], ..ResolverConfig::default() };
        assert_eq!(config.candidates("db"), ["db.corp.example", "db"]);
        assert_eq!(config.candidates("db.lab"), ["db.lab", "db.lab.corp.example"]);
    }
}
