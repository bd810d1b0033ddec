//! Fetching from package indexes with credentials, on behalf of installers that must not see them.
//!
//! An installer requests a path of an index by its alias. The gateway sends its own request: only to read, only below
//! the path of the index, with the credentials of the index and a few headers of the installer. It streams the answer
//! to the installer, and rewrites links to the index so that they lead to the alias.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use ureq::config::AutoHeaderValue;
use ureq::http::{HeaderMap, Request, Response, header};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, Transport,
};
use ureq::{Agent, Body, Error};

use super::proxy::{ProxyRequest, refuse};
use super::tally::ConnectionTraffic;
use super::{ESTABLISH, GatewayState, PATIENCE};
use crate::address_policy::AddressPolicy;
use crate::http_client::{self, AgentOptions, PublicOnlyResolver};
use crate::package_index::PackageIndex;
use crate::stop::{StopSignal, StoppableStream, WaitLimit};

/// The maximum size of an answer.
const MOST: u64 = 16 << 30;

/// The size of the buffer for an answer.
const BUFFER: usize = 64 << 10;

/// The headers of a request that are passed on.
const ASKED: [&str; 5] = ["accept", "if-modified-since", "if-none-match", "range", "user-agent"];

/// The headers of an answer that are passed on: none that could hold a secret, such as cookies and challenges.
const ANSWERED: [header::HeaderName; 7] = [
    header::ACCEPT_RANGES,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
];

/// The content types of answers that contain links. Package files are passed on unchanged.
const WITH_LINKS: [&str; 2] = ["html", "json"];

/// The client that fetches from indexes, until the run ends.
pub(super) fn agent(policy: &AddressPolicy, stop: &Arc<StopSignal>) -> Agent {
    // Installers fetch many files from one index, one after the other.
    let options = AgentOptions { timeout: None, user_agent: AutoHeaderValue::default(), max_idle_connections: 10 };
    let connector = StoppableConnector(Arc::clone(stop)).chain(RustlsConnector::default());
    http_client::agent(options, connector, PublicOnlyResolver { policy: policy.clone(), stop: Arc::clone(stop) })
}

/// Serves a request for a path of an index.
pub(super) fn fetch(
    state: &GatewayState,
    mut client: StoppableStream<'_>,
    index: &PackageIndex,
    head: &ProxyRequest,
) -> io::Result<()> {
    let (Some(agent), Some((method, path, version))) = (&state.agent, head.request_line()) else {
        return refuse(client, "403 Forbidden", "package indexes are reached by plain HTTP requests");
    };
    if !["GET", "HEAD"].contains(&method) || version != "HTTP/1.1" {
        return refuse(client, "405 Method Not Allowed", "package indexes can only be read");
    }
    if !index.admits(path) {
        return refuse(client, "403 Forbidden", "this is not a part of the package index");
    }
    let mut request = Request::builder().method(method).uri(format!("{}{path}", index.origin()));
    for (name, value) in head.headers().filter(|(name, _)| ASKED.iter().any(|asked| name.eq_ignore_ascii_case(asked))) {
        request = request.header(name, value);
    }
    // Links cannot be found in a compressed answer.
    request = request.header(header::ACCEPT_ENCODING, "identity");
    let Ok(request) = request.header(header::AUTHORIZATION, &index.authorization).body(()) else {
        return refuse(client, "400 Bad Request", "not a request for a package index");
    };
    let traffic = state.tally.connected(&index.host, index.port);
    match agent.run(request) {
        Ok(answer) => pass_on(&mut client, index, method, answer, &traffic),
        // Errors of the library never contain a header.
        Err(error) => refuse(client, "502 Bad Gateway", &format!("the package index cannot be reached: {error}")),
    }
}

/// Passes an answer on to the installer.
fn pass_on(
    client: &mut StoppableStream<'_>,
    index: &PackageIndex,
    method: &str,
    mut answer: Response<Body>,
    traffic: &ConnectionTraffic<'_>,
) -> io::Result<()> {
    let rewritten = has_links(answer.headers());
    let length =
        answer.headers().get(header::CONTENT_LENGTH).filter(|_| !rewritten).and_then(|value| value.to_str().ok());
    let bodiless = method == "HEAD" || [204, 304].contains(&answer.status().as_u16());
    let mut head = format!("HTTP/1.1 {}\r\nConnection: close\r\n", answer.status().as_u16());
    for (name, value) in answer.headers().iter().filter(|(name, _)| ANSWERED.contains(name)) {
        if let Ok(value) = value.to_str() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if let Some(location) = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()) {
        let seen = index.translate(location);
        head.push_str(&format!("location: {}\r\n", seen.as_deref().unwrap_or(location)));
    }
    head.push_str(&match length {
        Some(length) => format!("content-length: {length}\r\n\r\n"),
        None if bodiless => "\r\n".to_owned(),
        None => "transfer-encoding: chunked\r\n\r\n".to_owned(),
    });
    let chunked = length.is_none();
    client.write_all(head.as_bytes())?;
    if bodiless {
        return Ok(());
    }
    let mut body = answer.body_mut().with_config().limit(MOST).reader();
    let mut replacer = LinkRewriter::new(if rewritten { index.patterns() } else { vec![] });
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = body.read(&mut buffer)?;
        traffic.received(length);
        let bytes = if length == 0 { replacer.finish() } else { replacer.replace(&buffer[..length]) };
        if chunked && !bytes.is_empty() {
            client.write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
            client.write_all(&bytes)?;
            client.write_all(b"\r\n")?;
        } else {
            client.write_all(&bytes)?;
        }
        if length == 0 {
            // Without it, the installer knows that the answer is incomplete.
            return if chunked { client.write_all(b"0\r\n\r\n") } else { Ok(()) };
        }
    }
}

fn has_links(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    WITH_LINKS.iter().any(|with| kind.to_ascii_lowercase().contains(with))
}

/// Rewrites links in a stream that arrives in parts.
struct LinkRewriter {
    patterns: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes that may be the beginning of a link.
    held: Vec<u8>,
}

impl LinkRewriter {
    fn new(patterns: Vec<(String, String)>) -> Self {
        let bytes = patterns.into_iter().map(|(from, to)| (from.into_bytes(), to.into_bytes()));
        Self { patterns: bytes.collect(), held: vec![] }
    }

    /// Takes more bytes, and returns those that can be passed on.
    fn replace(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let longest = self.patterns.iter().map(|(from, _)| from.len()).max().unwrap_or(1);
        self.advance(longest.saturating_sub(1))
    }

    fn finish(&mut self) -> Vec<u8> {
        self.advance(0)
    }

    /// Rewrites until at most this many bytes are held back.
    fn advance(&mut self, least: usize) -> Vec<u8> {
        let (mut out, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while self.held.len() - at > least {
            let rest = &self.held[at..];
            // All links begin with the same letter.
            let next = rest.iter().position(|byte| *byte == b'h').filter(|_| !self.patterns.is_empty());
            let found = self.patterns.iter().find(|(from, _)| next == Some(0) && rest.starts_with(from));
            if let Some((from, to)) = found {
                out.extend_from_slice(to);
                at += from.len();
            } else {
                let plain = next.unwrap_or(rest.len()).max(1).min(rest.len() - least);
                out.extend_from_slice(&rest[..plain]);
                at += plain;
            }
        }
        self.held.drain(..at);
        out
    }
}

/// Connects, until the run ends.
#[derive(Debug)]
struct StoppableConnector(Arc<StopSignal>);

impl Connector<()> for StoppableConnector {
    type Out = StoppableTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<StoppableTransport>, Error> {
        let until = Instant::now() + ESTABLISH;
        let mut last = Error::HostNotFound;
        for address in &details.addrs {
            match self.0.connect(address, until) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    let sizes = (details.config.input_buffer_size(), details.config.output_buffer_size());
                    let (stop, buffers) = (Arc::clone(&self.0), LazyBuffers::new(sizes.0, sizes.1));
                    return Ok(Some(StoppableTransport { stream, stop, buffers }));
                }
                Err(error) => last = Error::Io(error),
            }
        }
        Err(last)
    }
}

/// A connection that ends with the run.
#[derive(Debug)]
struct StoppableTransport {
    stream: TcpStream,
    stop: Arc<StopSignal>,
    buffers: LazyBuffers,
}

impl Transport for StoppableTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let mut stream = StoppableStream { stream: &self.stream, stop: &self.stop, until: WaitLimit::Each(PATIENCE) };
        Ok(stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let mut stream = StoppableStream { stream: &self.stream, stop: &self.stop, until: WaitLimit::Each(PATIENCE) };
        let length = stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        // A server must not answer before it gets a request.
        matches!(self.stream.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_across_chunk_boundaries() {
        let patterns = vec![("https://a.example/x/".to_owned(), "http://b/".to_owned())];
        let page = "h <a href='https://a.example/x/1'> https://a.example/y http https://a.example/x/";
        let expected = page.replace("https://a.example/x/", "http://b/");
        for size in 1..page.len() {
            let mut replacer = LinkRewriter::new(patterns.clone());
            let mut out: Vec<u8> = page.as_bytes().chunks(size).flat_map(|part| replacer.replace(part)).collect();
            out.extend(replacer.finish());
            assert_eq!(String::from_utf8(out).expect("text"), expected, "{size}");
        }
        let mut nothing = LinkRewriter::new(vec![]);
        let out = [nothing.replace(b"https://h"), nothing.replace(b"h"), nothing.finish()].concat();
        assert_eq!(out, b"https://hh");
    }
}
