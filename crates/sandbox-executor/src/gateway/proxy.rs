//! The proxy: HTTP to anywhere that may be reached, and tunnels for everything else.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::Shared;
use crate::reach::{HostName, HostRule, host_and_port};

/// The longest head of a request.
const LONGEST_HEAD: u64 = 16 << 10;

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
    let mut reader = BufReader::new(client.try_clone()?).take(LONGEST_HEAD);
    let mut head = vec![];
    loop {
        let mut line = vec![];
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let end = line == b"\r\n" || line == b"\n";
        head.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        if end {
            break;
        }
    }
    let early = reader.into_inner().buffer().to_vec();
    let answer = |status: &str, why: &str| {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{why}", why.len());
        (&*client).write_all(text.as_bytes())
    };
    let Some(request) = Head::parse(&head) else { return answer("400 Bad Request", "not a request for a proxy\n") };
    let (server, traffic) = match shared.connect(&request.host, request.port) {
        Ok(connected) => connected,
        Err(why) => return answer("403 Forbidden", &format!("{why}\n")),
    };
    let first = match &request.forward {
        None => {
            (&*client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            early
        }
        Some(head) => [head.as_bytes(), &early].concat(),
    };
    traffic.sent(first.len());
    (&server).write_all(&first)?;
    shared.exchange(client, &server, &traffic)
}

/// What a client asks of a proxy.
struct Head {
    host: HostName,
    port: u16,
    /// What to send on; nothing if the client wants to speak for itself.
    forward: Option<String>,
}

impl Head {
    fn parse(lines: &[String]) -> Option<Self> {
        let mut words = lines.first()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if method == "CONNECT" {
            let (host, port) = host_and_port(target, None)?;
            return Some(Self { host, port, forward: None });
        }
        let (host, port) = host_in(target).filter(|_| target.starts_with("http://"))?;
        let rest = target.strip_prefix("http://")?;
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        let kept = lines[1..].iter().filter(|line| {
            let name = line.split(':').next().unwrap_or_default();
            !["connection", "proxy-connection", "proxy-authorization", "keep-alive"]
                .iter()
                .any(|hop| name.eq_ignore_ascii_case(hop))
        });
        let mut head = format!("{method} {path} {version}\r\nConnection: close\r\n");
        for line in kept {
            head.push_str(line);
            head.push_str("\r\n");
        }
        Some(Self { host, port, forward: Some(head) })
    }
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
        assert_eq!(plain.forward.as_deref(), Some("GET /x?y HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\n"));
        for bad in
            ["", "GET / HTTP/1.1", "CONNECT a.example HTTP/1.1", "GET https://a/ HTTP/1.1", "CONNECT :1 HTTP/1.1"]
        {
            assert!(head(&[bad, ""]).is_none(), "{bad}");
        }
    }
}
