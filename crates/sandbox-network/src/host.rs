//! Host names, addresses and the rules that match them: the one reader of hosts, used for rules, URLs, proxy requests and
//! DNS queries.

use std::fmt;
use std::net::IpAddr;

/// A host: a name in its canonical spelling, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A name: lower case, without a trailing dot.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl HostName {
    /// Reads a name or an address. An IPv6 address may have brackets; an IPv4-mapped one becomes the IPv4 address. Spellings
    /// that only some resolvers take for an address (`127.1`, `0x7f000001`, `2130706433`) are neither.
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

/// A host, or all hosts below a domain, at one port or at any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    pattern: HostPattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Is(HostName),
    Below(String),
}

impl HostRule {
    /// Reads `host`, `host:port`, `*.name` or `*.name:port`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.chars().take(80).collect();
            format!("'{shown}' is not a host: expected a name, *.name or an address, optionally with :port")
        };
        let (host, port) = split_port(text).ok_or_else(wrong)?;
        let pattern = match host.strip_prefix("*.") {
            Some(name) => match HostName::parse(name) {
                Some(HostName::Name(name)) if name.contains('.') => HostPattern::Below(name),
                _ => return Err(wrong()),
            },
            None => HostPattern::Is(HostName::parse(host).ok_or_else(wrong)?),
        };
        Ok(Self { pattern, port })
    }

    /// Its port, if it applies to one only.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// A rule for one host at one port.
    pub(crate) fn exactly(host: HostName, port: u16) -> Self {
        Self { pattern: HostPattern::Is(host), port: Some(port) }
    }

    /// Whether the rule matches a host at a port.
    #[must_use]
    pub fn fits(&self, host: &HostName, port: u16) -> bool {
        self.port.is_none_or(|only| only == port) && self.names(host)
    }

    /// Whether the rule matches a host at any port.
    #[must_use]
    pub fn names(&self, host: &HostName) -> bool {
        match (&self.pattern, host) {
            (HostPattern::Is(known), host) => known == host,
            (HostPattern::Below(name), HostName::Name(host)) => {
                host.strip_suffix(name.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (HostPattern::Below(_), HostName::Address(_)) => false,
        }
    }
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
    fn rules_match_their_hosts_and_ports() {
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
    fn an_ipv4_mapped_address_is_the_ipv4_address() {
        let mapped = HostName::parse("[::ffff:10.0.0.1]").expect("an address");
        assert_eq!(Some(&mapped), HostName::parse("10.0.0.1").as_ref());
        assert!(HostRule::parse("10.0.0.1").expect("a rule").names(&mapped));
    }
}
