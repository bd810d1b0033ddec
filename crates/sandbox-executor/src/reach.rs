//! What may be connected to from here on somebody else's behalf.
//!
//! Names are resolved on this side, and the addresses that were checked are the ones to connect to: whoever asks cannot
//! have a name that means one thing while it is checked and another when it is used. Addresses that are not public, and
//! this host's own, are refused whatever a request allows; only the operator can name exceptions. The list of them is in
//! `special.rs`.
//!
//! A name that has no public address is refused in the same words as one that does not exist: which names there are in the
//! operator's network is nobody else's business.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::index::Index;
pub(crate) use crate::special::is_public;
use crate::special::{Deny, destination, is_metadata, is_metadata_name};

/// A host as it was named: a name in its one spelling, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A name: lower case, without a dot at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl HostName {
    /// Reads a name or an address; an IPv6 address may stand in brackets, one that is IPv4 in disguise is that. What a
    /// resolver could take for an address but is not written as one (`127.1`, `0x7f000001`, `2130706433`) is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
                && !label.starts_with('-')
        };
        let numeric = name
            .rsplit('.')
            .next()
            .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x"));
        (name.len() <= 253 && !numeric && name.split('.').all(label)).then_some(Self::Name(name))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Reads `host`, `host:port`, `[address]` or `[address]:port`.
pub(crate) fn host_and_port(text: &str, default: Option<u16>) -> Option<(HostName, u16)> {
    let (host, port) = split_port(text)?;
    Some((HostName::parse(host)?, port.or(default)?))
}

fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (_, after) = rest.split_once(']')?;
            (&text[..text.len() - after.len()], if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        // More than one colon without brackets is an address.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match port {
        None => Some((host, None)),
        Some(port) if digits(port) => Some((host, Some(port.parse().ok().filter(|port| *port > 0)?))),
        Some(_) => None,
    }
}

/// A host, or all hosts below a name, perhaps at one port only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    pattern: Pattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Is(HostName),
    Below(String),
}

impl HostRule {
    /// Reads `host`, `host:port`, `*.name` or `*.name:port`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.chars().take(80).collect();
            format!(
                "'{shown}' is not a host; write a name, *.name or an address, and a port behind a colon if only one"
            )
        };
        let (host, port) = split_port(text).ok_or_else(wrong)?;
        let pattern = match host.strip_prefix("*.") {
            Some(name) => match HostName::parse(name) {
                Some(HostName::Name(name)) if name.contains('.') => Pattern::Below(name),
                _ => return Err(wrong()),
            },
            None => Pattern::Is(HostName::parse(host).ok_or_else(wrong)?),
        };
        Ok(Self { pattern, port })
    }

    /// Its port, if it is for one only.
    pub(crate) fn port(&self) -> Option<u16> {
        self.port
    }

    /// A host at a port.
    pub(crate) fn exactly(host: HostName, port: u16) -> Self {
        Self { pattern: Pattern::Is(host), port: Some(port) }
    }

    /// Whether a host at a port is meant.
    #[must_use]
    pub fn fits(&self, host: &HostName, port: u16) -> bool {
        self.port.is_none_or(|only| only == port) && self.names(host)
    }

    /// Whether a host is meant, at some port.
    #[must_use]
    pub fn names(&self, host: &HostName) -> bool {
        match (&self.pattern, host) {
            (Pattern::Is(known), host) => known == host,
            (Pattern::Below(name), HostName::Name(host)) => {
                host.strip_suffix(name.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (Pattern::Below(_), HostName::Address(_)) => false,
        }
    }
}

/// What may be reached.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// The only hosts that may be reached; any if nobody has said.
    pub hosts: Option<Vec<HostRule>>,
    /// The only ports that may be reached where a rule names none.
    pub ports: Option<Vec<u16>>,
    /// Hosts that may be reached whatever is said above, and wherever they are.
    pub always: Vec<HostRule>,
    /// Hosts that may have addresses that are not public, if they may be reached at all.
    pub private: Vec<HostRule>,
    /// What may not be reached whatever is said above.
    pub deny: Deny,
    /// Package indexes that are reached by other names than their own, because credentials open them.
    pub indexes: Vec<Index>,
}

impl Reach {
    /// Whether a host at a port may be asked for at all; its addresses are another matter.
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
            Some(hosts) if hosts.iter().any(|rule| rule.fits(host, port) && (usual || rule.port.is_some())) => Ok(()),
            Some(_) => Err(format!("{host}:{port} is not among the hosts that are allowed")),
        }
    }

    /// Whether a host may be reached at some port.
    #[must_use]
    pub fn names(&self, host: &HostName) -> bool {
        let named = |rules: &[HostRule]| rules.iter().any(|rule| rule.names(host));
        let refused = self.deny.names_all(host);
        !refused && (named(&self.always) || self.hosts.as_ref().is_none_or(|hosts| named(hosts)))
    }

    fn may_be_anywhere(&self, host: &HostName, port: Option<u16>) -> bool {
        let mut rules = self.always.iter().chain(&self.private);
        rules.any(|rule| port.map_or_else(|| rule.names(host), |port| rule.fits(host, port)))
    }

    /// Whether the operator has named a host as one to be reached, so that more may be said about it.
    pub(crate) fn is_known(&self, host: &HostName) -> bool {
        self.may_be_anywhere(host, None)
    }

    /// Whether a host may be reached at an address that it has, at a port or at any.
    fn permits(&self, host: &HostName, port: Option<u16>, address: IpAddr, own: &[IpAddr]) -> bool {
        let anywhere = self.may_be_anywhere(host, port);
        if self.deny.covers(address) {
            return false;
        }
        if is_metadata(address) {
            return anywhere && matches!(host, HostName::Address(_));
        }
        anywhere || is_elsewhere(address, own)
    }

    /// Whether a host at a port may be reached at an address that it has.
    pub(crate) fn check(&self, host: &HostName, port: u16, address: IpAddr) -> Result<(), String> {
        self.allows(host, port)?;
        let permits = self.permits(host, Some(port), address, &own_addresses());
        if permits { Ok(()) } else { Err(no_address(host)) }
    }

    /// The addresses at which a host may be reached, of all that it has.
    pub fn addresses(&self, host: &HostName, port: u16) -> Result<Vec<SocketAddr>, String> {
        self.allows(host, port)?;
        self.look_up(host, Some(port), Patience::usual())
            .map(|found| found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// The addresses of a host at which it may be reached, at a port or at any. Whether it may be asked for is another
    /// matter.
    pub(crate) fn look_up(
        &self,
        host: &HostName,
        port: Option<u16>,
        patience: Patience<'_>,
    ) -> Result<Vec<IpAddr>, String> {
        let (mut found, own) = (resolve(host, patience), own_addresses());
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

/// The longest that looking a name up takes, and what ends it sooner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) until: Instant,
    /// Becomes readable when the answer is not wanted any more.
    pub(crate) stop: Option<BorrowedFd<'a>>,
}

/// How long looking a name up takes for whoever has nothing to say about that.
const LOOK_UP: Duration = Duration::from_secs(10);

/// The most that is read of what a look-up says.
const MOST_SAID: usize = 64 << 10;

impl Patience<'_> {
    pub(crate) fn usual() -> Self {
        Self { until: Instant::now() + LOOK_UP, stop: None }
    }

    /// Waits until there is something to read. False if the time is up, or the answer is not wanted any more.
    fn wait(&self, fd: impl AsFd) -> bool {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let timeout = sandbox_cell::wait::timespec(left);
            let mut fds = vec![PollFd::new(&fd, PollFlags::IN)];
            fds.extend(self.stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return fds.get(1).is_none_or(|stop| stop.revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// The addresses of a host, as the host's own tools see them; none if it has none, or nobody says in time. This program is
/// linked statically, and the C library's resolver would load the host's modules into it.
fn resolve(host: &HostName, patience: Patience<'_>) -> Vec<IpAddr> {
    let name = match host {
        HostName::Address(address) => return vec![*address],
        HostName::Name(name) => name,
    };
    let mut command = Command::new("getent");
    command.args(["ahosts", name]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return vec![] };
    let said = child.stdout.take().map(|stdout| read_said(stdout, patience)).unwrap_or_default();
    // It has said everything, or is too late.
    let _ = child.kill();
    let _ = child.wait();
    let mut addresses: Vec<IpAddr> = vec![];
    for address in
        String::from_utf8_lossy(&said).lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// All that a child says; nothing if it does not come to an end.
fn read_said(mut stdout: ChildStdout, patience: Patience<'_>) -> Vec<u8> {
    let (mut said, mut buffer) = (vec![], [0; 4096]);
    while patience.wait(&stdout) {
        match stdout.read(&mut buffer) {
            Ok(0) => return said,
            Ok(length) if said.len() + length <= MOST_SAID => said.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    vec![]
}

/// The addresses of this host's own interfaces, which may well be public.
fn own_addresses() -> Vec<IpAddr> {
    let routes = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    local_v4(&routes).into_iter().map(IpAddr::V4).chain(local_v6(&interfaces).into_iter().map(IpAddr::V6)).collect()
}

/// The entries of a routing table that are this host's own: an address, and below it what it is.
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

/// Whether an address is public and leads to none of this host's own.
fn is_elsewhere(address: IpAddr, own: &[IpAddr]) -> bool {
    is_public(address) && !own.iter().any(|own| destination(*own) == destination(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::Name(text.to_owned())
    }

    #[test]
    fn hosts_have_one_spelling() {
        assert_eq!(HostName::parse("Example.COM."), Some(name("example.com")));
        assert_eq!(HostName::parse("[::1]"), Some(HostName::Address("::1".parse().expect("address"))));
        assert_eq!(HostName::parse("xn--bcher-kva.example"), Some(name("xn--bcher-kva.example")));
        for odd in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "evil\0.allowed.com",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "1.2.3.4.5",
            "-x",
            "a/b",
            "bücher.example",
            "a@b",
            "[::1",
            "a%2e.b",
            "x.123",
        ] {
            assert_eq!(HostName::parse(odd), None, "{odd:?}");
        }
        assert_eq!(HostName::parse(&format!("{}.x", "a".repeat(64))), None);
    }

    #[test]
    fn rules_fit_what_they_say() {
        let fits = |rule: &str, host: &str, port| {
            HostRule::parse(rule).expect(rule).fits(&HostName::parse(host).expect(host), port)
        };
        assert!(fits("api.example.com", "API.example.com.", 80) && fits("api.example.com:443", "api.example.com", 443));
        assert!(!fits("api.example.com:443", "api.example.com", 80) && !fits("example.com", "api.example.com", 443));
        assert!(fits("*.example.com", "a.b.example.com", 1) && !fits("*.example.com", "example.com", 1));
        assert!(!fits("*.example.com", "evilexample.com", 1) && !fits("*.example.com", "example.com.evil.net", 1));
        assert!(fits("[::1]:80", "::1", 80) && fits("10.0.0.1", "10.0.0.1", 9));
        for odd in
            ["", "*", "*.", "*.com", "*.1.2.3.4", "a:b", "a:0", "a:70000", "a:+1", "a:", "*.a.b:x", "http://a", "a.*.b"]
        {
            assert!(HostRule::parse(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn what_may_be_reached() {
        let rules = |list: &[&str]| list.iter().map(|rule| HostRule::parse(rule).expect("valid")).collect::<Vec<_>>();
        let reach = Reach {
            hosts: Some(rules(&["a.example:443", "c.example"])),
            ports: Some(vec![80, 443]),
            always: rules(&["10.0.0.1:80"]),
            private: rules(&["b.example"]),
            deny: Deny::default(),
            indexes: vec![],
        };
        let allows = |reach: &Reach, host: &str, port| reach.allows(&HostName::parse(host).expect(host), port).is_ok();
        assert!(
            allows(&reach, "a.example", 443) && !allows(&reach, "a.example", 80) && !allows(&reach, "b.example", 443)
        );
        assert!(allows(&reach, "10.0.0.1", 80) && !allows(&reach, "10.0.0.1", 81));
        assert!(allows(&reach, "c.example", 80) && !allows(&reach, "c.example", 22), "the usual ports");
        let any = Reach { ports: Some(vec![443]), ..Reach::default() };
        assert!(allows(&any, "b.example", 443) && !allows(&any, "b.example", 22));
        assert!(any.addresses(&HostName::parse("127.0.0.1").expect("valid"), 443).is_err());
        let known = any.addresses(&HostName::parse("192.0.2.7").expect("valid"), 443).expect("public");
        assert_eq!(known, ["192.0.2.7:443".parse().expect("address")]);
    }

    #[test]
    fn services_of_providers_are_refused_whatever_is_allowed() {
        let host = |text: &str| HostName::parse(text).expect(text);
        let named = Reach { private: vec![HostRule::parse("db.internal").expect("valid")], ..Reach::default() };
        let permits =
            |reach: &Reach, name: &str, at: &str| reach.permits(&host(name), Some(80), at.parse().expect(at), &[]);
        assert!(permits(&named, "db.internal", "10.0.0.1") && !permits(&named, "other.internal", "10.0.0.1"));
        for metadata in ["169.254.169.254", "168.63.129.16", "fd00:ec2::254"] {
            assert!(!permits(&named, "db.internal", metadata), "a name that has {metadata}");
            assert!(!permits(&Reach::default(), metadata, metadata));
            let exactly = Reach { private: vec![HostRule::exactly(host(metadata), 80)], ..Reach::default() };
            assert!(permits(&exactly, metadata, metadata), "the operator has named {metadata} itself");
        }
        let deny = Deny::parse("203.0.113.0/24,evil.example").expect("valid");
        let denied = Reach { private: vec![HostRule::exactly(host("203.0.113.9"), 80)], deny, ..Reach::default() };
        assert!(!permits(&denied, "203.0.113.9", "203.0.113.9") && permits(&denied, "a.example", "192.0.2.1"));
        assert!(denied.allows(&host("evil.example"), 80).is_err() && !denied.names(&host("evil.example")));
        assert_eq!(
            Reach::default().addresses(&host("metadata.google.internal"), 80),
            Err("metadata.google.internal: cannot be resolved to a public address".to_owned())
        );
    }

    #[test]
    fn names_that_do_not_exist_and_names_that_are_not_public_are_refused_alike() {
        let refused = |name: &str| {
            let host = HostName::parse(name).expect(name);
            Reach::default().addresses(&host, 443).expect_err(name).replace(name, "NAME")
        };
        assert_eq!(refused("localhost"), refused("does-not-exist.invalid"));
    }

    #[test]
    fn a_look_up_ends_with_its_time() {
        let stop = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).expect("an event");
        let host = HostName::parse("does-not-exist.invalid").expect("a name");
        let now = Patience { until: Instant::now(), stop: Some(stop.as_fd()) };
        let unwanted = Patience { until: Instant::now() + Duration::from_secs(600), stop: Some(stop.as_fd()) };
        for patience in [now, unwanted] {
            assert_eq!(resolve(&host, patience), Vec::<IpAddr>::new());
        }
        let local = HostName::parse("localhost").expect("a name");
        assert!(!resolve(&local, Patience::usual()).is_empty());
        assert!(resolve(&local, unwanted).is_empty(), "nobody waited for it");
    }

    #[test]
    fn this_hosts_own_addresses_are_known() {
        let table = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        /24 link UNICAST\n";
        assert_eq!(local_v4(table), ["192.0.2.1".parse::<Ipv4Addr>().expect("address")]);
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(local_v6(table), [Ipv6Addr::LOCALHOST]);
        assert!(own_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn this_host_is_itself_in_every_disguise() {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let disguises = ["203.0.113.80", "::ffff:203.0.113.80", "64:ff9b::cb00:7150", "2002:cb00:7150::1"];
        for own in disguises.map(address) {
            for disguise in disguises.map(address) {
                assert!(!is_elsewhere(disguise, &[own]), "{disguise} is {own}");
            }
            assert!(is_elsewhere(address("203.0.113.81"), &[own]) && is_elsewhere(address("2606:4700::1"), &[own]));
        }
        let mapped = HostName::parse("[::ffff:10.0.0.1]").expect("an address");
        assert_eq!(Some(&mapped), HostName::parse("10.0.0.1").as_ref(), "one spelling");
        assert!(HostRule::parse("10.0.0.1").expect("a rule").names(&mapped));
    }

    #[test]
    fn addresses_that_are_not_public() {
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
