//! The host that a program could not reach, from its error output.

use std::fmt;
use std::net::IpAddr;

use sandbox_network::{HostName, HostRule};

use crate::network::WEB;

/// What stands before the name of a host in the messages of libraries and tools, in lower case.
const MARKS: [&str; 10] = [
    "host='",
    "failed to resolve '",
    "could not resolve host: ",
    "getaddrinfo enotfound ",
    "getaddrinfo eai_again ",
    "enetunreach ",
    "econnrefused ",
    "unknownhostexception: ",
    "lookup ",
    "://",
];

/// Hosts that need no mark.
const LOCAL: [&str; 2] = ["127.0.0.1", "localhost"];

/// The longest name of a host.
const LONGEST_NAME: usize = 253;

/// A host, and its port if the web does not use it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: HostName,
    port: Option<u16>,
}

impl Target {
    /// A target that a request can allow, which has harmless characters only.
    pub(super) fn new(host: &str, port: Option<u16>) -> Option<Self> {
        let host = HostName::parse(host)?;
        let is_full = match &host {
            HostName::Name(name) => name == "localhost" || name.contains('.'),
            HostName::Address(_) => true,
        };
        let target = Self { host, port: port.filter(|port| !WEB.contains(port)) };
        (is_full && HostRule::parse(&target.to_string()).is_ok()).then_some(target)
    }

    /// Whether it is in the cell itself.
    pub(super) fn is_local(&self) -> bool {
        match &self.host {
            HostName::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            HostName::Address(address) => address.is_loopback(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (host, None) => host.fmt(f),
            (HostName::Address(address @ IpAddr::V6(_)), Some(port)) => write!(f, "[{address}]:{port}"),
            (host, Some(port)) => write!(f, "{host}:{port}"),
        }
    }
}

/// The first host that a message names, by the most telling mark.
pub(super) fn named_in(text: &str) -> Option<Target> {
    let lower = text.to_ascii_lowercase();
    let marked = |mark: &&str| lower.match_indices(mark).find_map(|(at, _)| read(&lower[at + mark.len()..]));
    MARKS.iter().find_map(marked).or_else(|| LOCAL.iter().find_map(|host| mentioned(&lower, host)))
}

/// A host of the cell itself, if it is mentioned as a program's own word, and not as the resolver.
fn mentioned(text: &str, host: &str) -> Option<Target> {
    let is_own = |(at, _): (usize, &str)| !text[at + host.len()..].starts_with(":53");
    text.match_indices(host).any(is_own).then(|| Target::new(host, None)).flatten()
}

/// Reads a host at the beginning of a text, with the port that follows as `:PORT` or, in Python, as `', port=PORT`.
fn read(text: &str) -> Option<Target> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
    if length == 0 || length > LONGEST_NAME {
        return None;
    }
    let (host, rest) = text.split_at(length);
    let port = rest.strip_prefix(':').or_else(|| rest.strip_prefix("', port="));
    let digits = port.map(|port| &port[..port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len())]);
    Target::new(host.trim_end_matches('.'), digits.and_then(|digits| digits.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_libraries_name_the_host() {
        for (message, expected) in [
            ("HTTPConnectionPool(host='example.com', port=80): Max retries exceeded", Some("example.com")),
            ("HTTPSConnectionPool(host='example.com', port=8443): Max retries", Some("example.com:8443")),
            ("Error: getaddrinfo EAI_AGAIN api.example.com", Some("api.example.com")),
            ("curl: (6) Could not resolve host: example.com", Some("example.com")),
            ("panic: Get \"http://example.com\": dial tcp: lookup example.com on 127.0.0.1:53", Some("example.com")),
            ("java.net.UnknownHostException: example.com", Some("example.com")),
            ("urlopen(\"https://example.com:8080/x\")", Some("example.com:8080")),
            ("connect ENETUNREACH 127.0.0.1:80 - Local (undefined:undefined)", Some("127.0.0.1")),
            ("socket.create_connection((\"127.0.0.1\", 80))", Some("127.0.0.1")),
            ("dial udp 127.0.0.1:53: socket: network is unreachable", None),
            ("Network is unreachable", None),
            ("lookup it", None),
            ("http://\u{1b}[2J", None),
            ("http://$(reboot).example.com", None),
            ("http://-x.example.com", None),
        ] {
            assert_eq!(named_in(message).map(|target| target.to_string()).as_deref(), expected, "{message}");
        }
        assert_eq!(named_in(&format!("http://{}.com", "a".repeat(300))), None);
        assert!(named_in("http://localhost:8000/").is_some_and(|target| target.is_local()));
    }
}
