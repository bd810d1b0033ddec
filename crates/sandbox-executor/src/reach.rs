//! What may be connected to from here on somebody else's behalf.
//!
//! Names are resolved on this side, and the addresses that were checked are the ones to connect to: whoever asks cannot
//! have a name that means one thing while it is checked and another when it is used. Addresses that are not public, and
//! this host's own, are refused whatever a request allows; only the operator can name exceptions.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Stdio};

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
}

impl Reach {
    /// Whether a host at a port may be asked for at all; its addresses are another matter.
    pub fn allows(&self, host: &HostName, port: u16) -> Result<(), String> {
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
        named(&self.always) || self.hosts.as_ref().is_none_or(|hosts| named(hosts))
    }

    fn may_be_anywhere(&self, host: &HostName, port: Option<u16>) -> bool {
        let mut rules = self.always.iter().chain(&self.private);
        rules.any(|rule| port.map_or_else(|| rule.names(host), |port| rule.fits(host, port)))
    }

    /// Whether a host at a port may be reached at an address that it has.
    pub(crate) fn check(&self, host: &HostName, port: u16, address: IpAddr) -> Result<(), String> {
        self.allows(host, port)?;
        if self.may_be_anywhere(host, Some(port)) || is_elsewhere(address, &own_addresses()) {
            return Ok(());
        }
        Err(format!("{host}: its address is not public"))
    }

    /// The addresses at which a host may be reached, of all that it has.
    pub fn addresses(&self, host: &HostName, port: u16) -> Result<Vec<SocketAddr>, String> {
        self.allows(host, port)?;
        let anywhere = self.may_be_anywhere(host, Some(port));
        Ok(fitting(host, anywhere)?.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// The addresses that somebody may be told a host has.
    pub(crate) fn public_addresses(&self, host: &HostName) -> Result<Vec<IpAddr>, String> {
        fitting(host, self.may_be_anywhere(host, None))
    }
}

/// The addresses of a host, of those that are public if it may not be anywhere.
fn fitting(host: &HostName, anywhere: bool) -> Result<Vec<IpAddr>, String> {
    let all = resolve(host)?;
    let own = if anywhere { vec![] } else { own_addresses() };
    let fits = |address: &IpAddr| anywhere || is_elsewhere(*address, &own);
    let fit: Vec<IpAddr> = all.into_iter().filter(fits).collect();
    if fit.is_empty() { Err(format!("{host}: its address is not public")) } else { Ok(fit) }
}

/// The addresses of a host, as the host's own tools see them. This program is linked statically, and the C library's
/// resolver would load the host's modules into it.
pub(crate) fn resolve(host: &HostName) -> Result<Vec<IpAddr>, String> {
    let name = match host {
        HostName::Address(address) => return Ok(vec![*address]),
        HostName::Name(name) => name,
    };
    let output = Command::new("getent")
        .args(["ahosts", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: cannot be resolved (getent: {error})"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut addresses: Vec<IpAddr> = vec![];
    for address in text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err(format!("{name}: cannot be resolved")) } else { Ok(addresses) }
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

/// Whether an address is one that anybody on the Internet could have: not this host, not its neighbours, not a
/// provider's metadata service.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match destination(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether an address is public and leads to none of this host's own.
fn is_elsewhere(address: IpAddr, own: &[IpAddr]) -> bool {
    is_public(address) && !own.iter().any(|own| destination(*own) == destination(address))
}

/// Where an address leads: the IPv4 address inside it, if there is one.
fn destination(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => embedded_v4(address).map_or(IpAddr::V6(address), IpAddr::V4),
        canonical @ IpAddr::V4(_) => canonical,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let special =
        a == 0 || a >= 224 || (a == 198 && (b == 18 || b == 19)) || (a == 192 && address.octets()[1..3] == [0, 0]);
    !(address.is_loopback() || address.is_private() || address.is_link_local() || shared || special)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Of all of IPv6, 2000::/3 is given out for general use; Teredo (2001::/32) leads to IPv4 in disguise.
    let segments = address.segments();
    (segments[0] & 0xe000) == 0x2000 && segments[..2] != [0x2001, 0]
}

/// An IPv4 address inside an IPv6 one: NAT64 and 6to4 lead there.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let pair = match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => [high, low],
        _ => return None,
    };
    Some(Ipv4Addr::from((u32::from(pair[0]) << 16) | u32::from(pair[1])))
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
