//! Whether the Redis that the variables of a server name accepts connections. Logging in is left to the server.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use sandbox_base::{printable, reason};
use sandbox_network::{HostName, look_up};

use super::check::HostCheck;

/// How long a name or a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a server of Redis listens.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// Checks the Redis of `REDIS_URL` or `REDIS_ADDR`, if one of them is set.
pub(super) fn redis(variable: impl Fn(&str) -> Option<String>) -> Option<HostCheck> {
    let get = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let (name, nodes) = match (get("REDIS_URL"), get("REDIS_ADDR")) {
        (Some(url), _) => ("REDIS_URL", nodes_of_url(&url)),
        (None, Some(address)) => ("REDIS_ADDR", nodes(&address, 6379)),
        (None, None) => return None,
    };
    let cost = "sandbox-server does not start";
    let Some(nodes) = nodes.filter(|nodes| !nodes.is_empty()) else {
        let fix = format!("set {name} as in docs/SERVER.md");
        return Some(HostCheck::missing("redis", format!("{name} is invalid"), cost, fix));
    };
    let mut failures = vec![];
    for node in &nodes {
        match connect(node) {
            Ok(()) => return Some(HostCheck::ok("redis", format!("{} accepts connections", shown(node)))),
            Err(why) => failures.push(format!("cannot connect to {} ({why})", shown(node))),
        }
    }
    let fix = format!("start Redis (Debian: apt-get install redis-server) or correct {name}");
    Some(HostCheck::missing("redis", failures.join(", "), cost, fix))
}

fn shown(node: &Node) -> String {
    match node {
        Node::Tcp(host, port) if host.contains(':') => format!("[{}]:{port}", printable(host)),
        Node::Tcp(host, port) => format!("{}:{port}", printable(host)),
        Node::Unix(path) => printable(&path.to_string_lossy()),
    }
}

fn connect(node: &Node) -> Result<(), String> {
    let (host, port) = match node {
        Node::Unix(path) => return UnixStream::connect(path).map(drop).map_err(|error| reason(&error)),
        Node::Tcp(host, port) => (host, *port),
    };
    let name = HostName::parse(host).ok_or("not a host")?;
    let mut failure = "its name cannot be resolved".to_owned();
    for address in look_up(&name, PATIENCE) {
        match TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) => failure = reason(&error),
        }
    }
    Err(failure)
}

/// The servers in a URL such as `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/PRIMARY/0?option=value`.
fn nodes_of_url(url: &str) -> Option<Vec<Node>> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.split('?').next()?;
    if scheme == "unix" || scheme.ends_with("+unix") {
        let path = sandbox_base::percent_decode(rest)?;
        return Some(vec![Node::Unix(String::from_utf8(path).ok()?.into())]);
    }
    let authority = rest.split('/').next()?;
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    nodes(hosts, if scheme.ends_with("+sentinel") { 26379 } else { 6379 })
}

/// Hosts with ports, separated by commas.
fn nodes(text: &str, usual_port: u16) -> Option<Vec<Node>> {
    let node = |text: &str| {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Some(usual_port), |port| port.parse().ok())?;
        (!host.is_empty()).then(|| Node::Tcp(host.to_owned(), port))
    };
    text.split(',').map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckState;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn with(name: &str, value: &str) -> Option<HostCheck> {
        redis(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn only_a_configured_redis_is_checked() {
        assert_eq!(redis(|_| None), None);
        assert_eq!(with("REDIS_URL", " "), None);
    }

    #[test]
    fn a_redis_that_listens_is_reachable() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        for (name, value) in [
            ("REDIS_ADDR", address.to_string()),
            ("REDIS_URL", format!("redis://user:p%40ss@{address}/3")),
            ("REDIS_URL", format!("rediss+cluster://{address},{address}")),
        ] {
            let check = with(name, &value).expect("configured");
            assert_eq!(
                (check.state, check.what),
                (CheckState::Ok, format!("{address} accepts connections")),
                "{value}"
            );
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let socket = dir.path().join("redis.sock");
        let url = format!("unix://{}?db=1", socket.display());
        assert_eq!(with("REDIS_URL", &url).map(|check| check.state), Some(CheckState::Missing));
        let _listener = UnixListener::bind(&socket).expect("a socket");
        assert_eq!(with("REDIS_URL", &url).map(|check| check.state), Some(CheckState::Ok));
    }

    #[test]
    fn what_cannot_be_reached_is_named_without_its_password() {
        let check = with("REDIS_URL", "redis://user:secret@nothing.invalid:7000/0").expect("configured");
        assert_eq!(check.state, CheckState::Missing);
        assert_eq!(check.what, "cannot connect to nothing.invalid:7000 (its name cannot be resolved)");
        assert!(check.fix.is_some_and(|fix| fix.contains("redis-server") && fix.ends_with("correct REDIS_URL")));
        for invalid in ["localhost:6379", "redis://:1", "redis://a:secret", "redis://[::1]:x"] {
            let check = with("REDIS_URL", invalid).expect("configured");
            assert_eq!(check.what, "REDIS_URL is invalid", "{invalid}");
        }
    }

    #[test]
    fn every_kind_of_url_names_its_servers() {
        let tcp = |host: &str, port| Node::Tcp(host.to_owned(), port);
        for (url, expected) in [
            ("redis://a", vec![tcp("a", 6379)]),
            ("valkeys://u:p@[::1]:7000/1", vec![tcp("::1", 7000)]),
            ("redis+sentinel://a,b:1/primary/0?sentinel_username=x", vec![tcp("a", 26379), tcp("b", 1)]),
            ("unix:///run/my%20redis.sock?db=1", vec![Node::Unix("/run/my redis.sock".into())]),
        ] {
            assert_eq!(nodes_of_url(url), Some(expected), "{url}");
        }
    }
}
