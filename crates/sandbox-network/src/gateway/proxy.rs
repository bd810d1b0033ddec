//! The HTTP proxy: forwards plain requests, and opens tunnels for everything else.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use httparse::Status;

use super::fetch::fetch;
use super::{GatewayState, PATIENCE};
use crate::host::{HostName, host_and_port};
use crate::stop::{StoppableStream, WaitLimit};
use crate::web_address::WebAddress;

/// The maximum length of a request head.
const LONGEST_HEAD: u64 = 16 << 10;

/// The time limit for a client to send the head of its request.
const HEAD: Duration = Duration::from_secs(30);

/// Serves one connection.
pub(super) fn converse(state: &GatewayState, client: &TcpStream) -> io::Result<()> {
    let slow = StoppableStream { stream: client, stop: &state.stop, until: WaitLimit::At(Instant::now() + HEAD) };
    let mut client_side = StoppableStream { until: WaitLimit::Each(PATIENCE), ..slow };
    let mut reader = BufReader::new(slow).take(LONGEST_HEAD);
    let Some(head) = read_head(&mut reader)? else { return Ok(()) };
    let early = reader.into_inner().buffer().to_vec();
    let Some(request) = ProxyRequest::parse(&head) else {
        return refuse(client_side, "400 Bad Request", "not a request for a proxy");
    };
    if let Some(index) = state.policy.indexes.iter().find(|index| index.is_named(&request.host)) {
        return fetch(state, client_side, index, &request);
    }
    let (server, traffic) = match state.connect(&request.host, request.port) {
        Ok(connected) => connected,
        Err(why) => return refuse(client_side, "403 Forbidden", &why),
    };
    let first = match &request.forward {
        None => {
            client_side.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            early
        }
        Some(head) => [head.as_bytes(), &early].concat(),
    };
    traffic.sent(first.len());
    StoppableStream { stream: &server, ..client_side }.write_all(&first)?;
    state.relay(client, &server, &traffic)
}

/// Answers a request that is refused.
pub(super) fn refuse(mut client: StoppableStream<'_>, status: &str, why: &str) -> io::Result<()> {
    let length = why.len() + 1;
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n");
    client.write_all(answer.as_bytes())
}

/// Reads a head up to its empty line; `None` if the client closes the connection before that.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = vec![];
    loop {
        let start = head.len();
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
        if matches!(&head[start..], b"\r\n" | b"\n") {
            return Ok(Some(head));
        }
    }
}

/// Parses a client's request.
#[cfg(fuzzing)]
pub(crate) fn proxy_head(bytes: &[u8]) -> Option<(HostName, u16, Option<String>)> {
    let head = read_head(&mut bytes.take(LONGEST_HEAD)).ok()??;
    ProxyRequest::parse(&head).map(|request| (request.host, request.port, request.forward))
}

/// A client's request to the proxy.
pub(super) struct ProxyRequest {
    host: HostName,
    port: u16,
    /// The head to forward; `None` if the client wants a tunnel.
    forward: Option<String>,
}

impl ProxyRequest {
    /// Method, path and version, unless the client wants a tunnel.
    pub(super) fn request_line(&self) -> Option<(&str, &str, &str)> {
        let mut words = self.forward.as_ref()?.lines().next()?.split(' ');
        Some((words.next()?, words.next()?, words.next()?))
    }

    /// The headers that are forwarded.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.forward.iter().flat_map(|forward| forward.lines().skip(1));
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
    }

    /// Parses a head with its empty line. It is strict: a head that a server could interpret as two requests, or as one
    /// for another host, is refused.
    fn parse(head: &[u8]) -> Option<Self> {
        let lines = head.split(|byte| *byte == b'\n').count();
        let mut headers = vec![httparse::EMPTY_HEADER; lines];
        let mut request = httparse::Request::new(&mut headers);
        if request.parse(head).ok()? != Status::Complete(head.len()) {
            return None;
        }
        let (method, target, version) = (request.method?, request.path?, request.version?);
        if method == "CONNECT" {
            let (host, port) = host_and_port(target, None)?;
            return Some(Self { host, port, forward: None });
        }
        let url = WebAddress::parse(target).ok().filter(|url| url.scheme == "http")?;
        let path = url.path_and_query();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut forward = format!("{method} {slash}{path} HTTP/1.{version}\r\nConnection: close\r\n");
        // The host that was checked, whatever Host header the client sent.
        forward.push_str(&match (&url.host, url.port) {
            (HostName::Address(address), port) => format!("Host: {}\r\n", SocketAddr::new(*address, port)),
            (name, 80) => format!("Host: {name}\r\n"),
            (name, port) => format!("Host: {name}:{port}\r\n"),
        });
        for header in request.headers.iter() {
            if !REPLACED.iter().any(|replaced| header.name.eq_ignore_ascii_case(replaced)) {
                forward.push_str(&format!("{}: {}\r\n", header.name, String::from_utf8_lossy(header.value)));
            }
        }
        forward.push_str("\r\n");
        // The parser accepts characters outside of ASCII, some of which are control characters.
        let odd = |c: char| c.is_control() && !"\t\r\n".contains(c);
        (!forward.contains(odd)).then_some(Self { host: url.host, port: url.port, forward: Some(forward) })
    }
}

/// Headers for the proxy, and headers that it writes itself.
const REPLACED: [&str; 5] = ["connection", "host", "keep-alive", "proxy-authorization", "proxy-connection"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Option<ProxyRequest> {
        let head = read_head(&mut head.as_bytes()).expect("bytes")?;
        ProxyRequest::parse(&head)
    }

    #[test]
    fn heads_are_read_and_rewritten() {
        let head = |lines: &[&str]| read(&format!("{}\r\n", lines.join("\r\n")));
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
    fn ambiguous_heads_are_refused() {
        let head = |first: &str, header: &str| {
            ProxyRequest::parse(format!("{first}\r\n{header}\r\n\r\n").as_bytes()).map(|request| request.forward)
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
        assert!(read(good).is_none() && read(&format!("{good}\r\n")).is_none(), "the end is missing");
    }
}
