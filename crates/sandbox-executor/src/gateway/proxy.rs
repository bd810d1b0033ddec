//! The proxy: HTTP to anywhere that may be reached, and tunnels for everything else.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::fetch::fetch;
use super::stop::{Patient, Until};
use super::{PATIENCE, Shared};
use crate::reach::{HostName, HostRule, host_and_port};

/// The longest head of a request.
const LONGEST_HEAD: u64 = 16 << 10;

/// How long a client may take to send it.
const HEAD: Duration = Duration::from_secs(30);

/// Where packages come from, as far as it is known: the hosts and ports in a list of addresses.
pub(crate) fn hosts_in(text: &str) -> Vec<HostRule> {
    let hosts = text.split([',', '|', ' ']).filter_map(|address| host_in(address.trim()));
    hosts.map(|(host, port)| HostRule::exactly(host, port)).collect()
}

fn host_in(address: &str) -> Option<(HostName, u16)> {
    let (rest, default) = match address.split_once("://")? {
        ("https", rest) => (rest, 443),
        ("http", rest) => (rest, 80),
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host_and_port(authority, Some(default))
}

/// Serves one connection.
pub(super) fn converse(shared: &Shared, client: &TcpStream) -> io::Result<()> {
    let slow = Patient { stream: client, stop: &shared.stop, until: Until::At(Instant::now() + HEAD) };
    let mut client_side = Patient { until: Until::Each(PATIENCE), ..slow };
    let mut reader = BufReader::new(slow).take(LONGEST_HEAD);
    let Some(head) = read_head(&mut reader)? else { return Ok(()) };
    let early = reader.into_inner().buffer().to_vec();
    let answer = |mut client_side: Patient<'_>, status: &str, why: &str| {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{why}", why.len());
        client_side.write_all(text.as_bytes())
    };
    let Some(request) = Head::parse(&head) else {
        return answer(client_side, "400 Bad Request", "not a request for a proxy\n");
    };
    if let Some(index) = shared.reach.indexes.iter().find(|index| index.is_named(&request.host)) {
        return fetch(shared, client_side, index, &request);
    }
    let (server, traffic) = match shared.connect(&request.host, request.port) {
        Ok(connected) => connected,
        Err(why) => return answer(client_side, "403 Forbidden", &format!("{why}\n")),
    };
    let first = match &request.forward {
        None => {
            client_side.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            early
        }
        Some(head) => [head.as_bytes(), &early].concat(),
    };
    traffic.sent(first.len());
    Patient { stream: &server, ..client_side }.write_all(&first)?;
    shared.exchange(client, &server, &traffic)
}

/// Reads the lines of a head, to the empty one; nothing if that does not come.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Vec<String>>> {
    let mut head = vec![];
    loop {
        let mut line = vec![];
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let end = line == b"\r\n" || line == b"\n";
        head.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        if end {
            return Ok(Some(head));
        }
    }
}

/// What a client asks, read from bytes.
#[cfg(fuzzing)]
pub(crate) fn head(bytes: &[u8]) -> Option<(HostName, u16, Option<String>)> {
    let lines = read_head(&mut bytes.take(LONGEST_HEAD)).ok()??;
    Head::parse(&lines).map(|head| (head.host, head.port, head.forward))
}

/// What a client asks of a proxy.
pub(super) struct Head {
    host: HostName,
    port: u16,
    /// What to send on; nothing if the client wants to speak for itself.
    forward: Option<String>,
}

impl Head {
    /// Method, path and version, unless the client wants to speak for itself.
    pub(super) fn request_line(&self) -> Option<(&str, &str, &str)> {
        let mut words = self.forward.as_ref()?.lines().next()?.split(' ');
        Some((words.next()?, words.next()?, words.next()?))
    }

    /// The headers that are sent on.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.forward.iter().flat_map(|forward| forward.lines().skip(1));
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
    }

    /// Reads the lines of a head, of which the last is empty. It is strict: whatever a server could read as something
    /// else, such as a second head or a second host, is refused.
    fn parse(lines: &[String]) -> Option<Self> {
        let (first, headers) = lines.split_first()?;
        let words: Vec<&str> = first.split(' ').collect();
        let [method, target, version] = words[..] else { return None };
        let odd = |line: &String| line.contains(|c: char| c.is_control() && c != '\t');
        if !is_token(method) || !version.starts_with("HTTP/1.") || lines.iter().any(odd) {
            return None;
        }
        if method == "CONNECT" {
            let (host, port) = host_and_port(target, None)?;
            return Some(Self { host, port, forward: None });
        }
        let rest = target.strip_prefix("http://")?;
        let (host, port) = host_in(target)?;
        let rest = rest.split('#').next()?;
        let path = &rest[rest.find(['/', '?']).unwrap_or(rest.len())..];
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut head = format!("{method} {slash}{path} {version}\r\nConnection: close\r\n");
        // The host that was checked, whatever the client has put there.
        head.push_str(&match (&host, port) {
            (HostName::Address(address), port) => format!("Host: {}\r\n", SocketAddr::new(*address, port)),
            (name, 80) => format!("Host: {name}\r\n"),
            (name, port) => format!("Host: {name}:{port}\r\n"),
        });
        let ("", headers) = headers.split_last().map(|(last, headers)| (last.as_str(), headers))? else { return None };
        for line in headers {
            let (name, _) = line.split_once(':').filter(|(name, _)| is_token(name))?;
            if !REPLACED.iter().any(|replaced| name.eq_ignore_ascii_case(replaced)) {
                head.push_str(line);
                head.push_str("\r\n");
            }
        }
        head.push_str("\r\n");
        Some(Self { host, port, forward: Some(head) })
    }
}

/// Headers that are for the proxy, or that it writes itself.
const REPLACED: [&str; 5] = ["connection", "host", "keep-alive", "proxy-authorization", "proxy-connection"];

/// Whether this can be a method or the name of a header.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_addresses() {
        let hosts = hosts_in("https://user:secret@Index.example/simple/,http://[::1]:8080|direct");
        let rule = |text: &str| HostRule::parse(text).expect("valid");
        assert_eq!(hosts, [rule("index.example:443"), rule("[::1]:8080")]);
        assert!(hosts_in("").is_empty() && hosts_in("off").is_empty() && hosts_in("https://").is_empty());
    }

    #[test]
    fn heads_are_read_and_rewritten() {
        let head = |lines: &[&str]| Head::parse(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let tunnel = head(&["CONNECT a.example:443 HTTP/1.1", ""]).expect("valid");
        assert_eq!((tunnel.host.to_string().as_str(), tunnel.port, tunnel.forward), ("a.example", 443, None));
        let plain = head(&["GET http://a.example:81/x?y HTTP/1.1", "Host: a", "Proxy-Connection: x", ""]);
        let plain = plain.expect("valid");
        assert_eq!((plain.host.to_string().as_str(), plain.port), ("a.example", 81));
        assert_eq!(
            plain.forward.as_deref(),
            Some("GET /x?y HTTP/1.1\r\nConnection: close\r\nHost: a.example:81\r\n\r\n")
        );
        let query = head(&["GET http://a.example?x/y#z HTTP/1.0", "X: y", ""]).expect("valid").forward;
        assert_eq!(
            query.as_deref(),
            Some("GET /?x/y HTTP/1.0\r\nConnection: close\r\nHost: a.example\r\nX: y\r\n\r\n")
        );
        for bad in
            ["", "GET / HTTP/1.1", "CONNECT a.example HTTP/1.1", "GET https://a/ HTTP/1.1", "CONNECT :1 HTTP/1.1"]
        {
            assert!(head(&[bad, ""]).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_head_cannot_be_read_as_two_or_as_one_for_another_host() {
        let head = |first: &str, header: &str| {
            Head::parse(&[first.to_owned(), header.to_owned(), String::new()]).map(|head| head.forward)
        };
        let good = "GET http://a.example/ HTTP/1.1";
        for host in ["Host: b.example", "hOST:b.example"] {
            let sent = head(good, host).expect("valid").expect("forwarded");
            assert!(sent.contains("Host: a.example\r\n") && !sent.contains("b.example"), "{sent}");
        }
        for header in ["", "X: y\rHost: b", "Host : b", " folded", "nothing", "X\0: y", ": y"] {
            assert!(head(good, header).is_none(), "{header:?}");
        }
        for first in
            [" http://a/ HTTP/1.1", "GET http://a/ HTTP/2", "GET http://a/ HTTP/1.1 x", "G\tT http://a/ HTTP/1.1"]
        {
            assert!(head(first, "X: y").is_none(), "{first:?}");
        }
        assert!(Head::parse(&[good.to_owned()]).is_none(), "an end is missing");
    }
}
