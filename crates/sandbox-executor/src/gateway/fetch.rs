//! Fetching from package indexes that need credentials, on behalf of installers that must not see them.
//!
//! An installer asks for a path of an index by the name that it was given. What goes on from here is a request of our own:
//! only to read, only below the index's path, with the index's credentials and a few headers of the installer's. What
//! comes back is passed on as it comes; links to the index in its pages are changed so that they lead here again.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use ureq::http::{HeaderMap, Request, Response, Uri, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, Transport,
};
use ureq::{Agent, Body, Error};

use super::proxy::Head;
use super::stop::{Patient, Stop, Until};
use super::tally::Traffic;
use super::{ESTABLISH, PATIENCE, Shared};
use crate::index::Index;
use crate::reach::{Patience, Reach, host_and_port};

/// The most that one answer may have.
const MOST: u64 = 16 << 30;

/// How much of it is on its way at one time.
const BUFFER: usize = 64 << 10;

/// What is passed on of a request, besides what is written here.
const ASKED: [&str; 5] = ["accept", "if-modified-since", "if-none-match", "range", "user-agent"];

/// What is passed on of an answer. Nothing that a server might put a secret into: no cookies, no challenges.
const ANSWERED: [header::HeaderName; 7] = [
    header::ACCEPT_RANGES,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
];

/// Kinds of answers that have links to other parts of the index in them. What packages consist of stays as it is.
const WITH_LINKS: [&str; 2] = ["html", "json"];

/// Where the host keeps the authorities that it trusts.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The authorities that the host trusts, or those that browsers do if it does not say.
#[must_use]
pub fn authorities() -> RootCerts {
    let file = std::env::var_os("SSL_CERT_FILE").unwrap_or_else(|| AUTHORITIES.into());
    let pem = std::fs::read(file).unwrap_or_default();
    let found: Vec<_> = ureq::tls::parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { RootCerts::WebPki } else { RootCerts::Specific(Arc::new(found)) }
}

/// What fetches from indexes, as far as may be reached.
pub(super) fn agent(reach: &Reach, stop: &Arc<Stop>) -> Agent {
    let settings = Agent::config_builder()
        .max_redirects(0)
        .http_status_as_error(false)
        .proxy(None)
        .tls_config(TlsConfig::builder().root_certs(authorities()).build())
        .build();
    let connector = Direct(Arc::clone(stop)).chain(RustlsConnector::default());
    let resolver = Careful { reach: reach.clone(), stop: Arc::clone(stop) };
    Agent::with_parts(settings, connector, resolver)
}

/// Answers a request for something of an index.
pub(super) fn fetch(shared: &Shared, mut client: Patient<'_>, index: &Index, head: &Head) -> io::Result<()> {
    let (Some(agent), Some((method, path, version))) = (&shared.agent, head.request_line()) else {
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
    // Links cannot be found in what is compressed.
    request = request.header(header::ACCEPT_ENCODING, "identity");
    let Ok(request) = request.header(header::AUTHORIZATION, &index.authorization).body(()) else {
        return refuse(client, "400 Bad Request", "not a request for a package index");
    };
    let traffic = shared.tally.connected(&index.host, index.port);
    match agent.run(request) {
        Ok(answer) => pass_on(&mut client, index, method, answer, &traffic),
        // In the library's words, which never have a header in them.
        Err(error) => refuse(client, "502 Bad Gateway", &format!("the package index cannot be reached: {error}")),
    }
}

fn refuse(mut client: Patient<'_>, status: &str, why: &str) -> io::Result<()> {
    let length = why.len() + 1;
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n");
    client.write_all(head.as_bytes())
}

/// Passes an answer on.
fn pass_on(
    client: &mut Patient<'_>,
    index: &Index,
    method: &str,
    mut answer: Response<Body>,
    traffic: &Traffic<'_>,
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
    let mut replacer = Replacer::new(if rewritten { index.patterns() } else { vec![] });
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
            // Without it, the installer knows that something is missing.
            return if chunked { client.write_all(b"0\r\n\r\n") } else { Ok(()) };
        }
    }
}

fn has_links(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    WITH_LINKS.iter().any(|with| kind.to_ascii_lowercase().contains(with))
}

/// Replaces texts in what comes in parts.
struct Replacer {
    patterns: Vec<(Vec<u8>, Vec<u8>)>,
    /// What may be the beginning of a text.
    held: Vec<u8>,
}

impl Replacer {
    fn new(patterns: Vec<(String, String)>) -> Self {
        let bytes = patterns.into_iter().map(|(from, to)| (from.into_bytes(), to.into_bytes()));
        Self { patterns: bytes.collect(), held: vec![] }
    }

    /// What of everything so far can be passed on.
    fn replace(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let longest = self.patterns.iter().map(|(from, _)| from.len()).max().unwrap_or(1);
        self.advance(longest.saturating_sub(1))
    }

    fn finish(&mut self) -> Vec<u8> {
        self.advance(0)
    }

    /// Goes on until no more than this is left.
    fn advance(&mut self, least: usize) -> Vec<u8> {
        let (mut out, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while self.held.len() - at > least {
            let rest = &self.held[at..];
            // All begin alike.
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

/// Resolves names to addresses that may be connected to.
#[derive(Debug)]
struct Careful {
    reach: Reach,
    stop: Arc<Stop>,
}

impl Resolver for Careful {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &ureq::config::Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let refused = |why: String| Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (host, port) = host_and_port(authority, Some(usual)).ok_or_else(|| refused("no host".to_owned()))?;
        let patience = Patience { until: Instant::now() + ESTABLISH, stop: Some(self.stop.as_fd()) };
        let mut addresses = self.empty();
        // It holds a few, which is enough.
        for address in self.reach.look_up(&host, Some(port), patience).map_err(refused)?.into_iter().take(8) {
            addresses.push((address, port).into());
        }
        Ok(addresses)
    }
}

/// Connects, as long as the run lasts.
#[derive(Debug)]
struct Direct(Arc<Stop>);

impl Connector<()> for Direct {
    type Out = Socket;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Socket>, Error> {
        let until = Instant::now() + ESTABLISH;
        let mut last = Error::HostNotFound;
        for address in &details.addrs {
            match self.0.connect(address, until) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    let sizes = (details.config.input_buffer_size(), details.config.output_buffer_size());
                    let (stop, buffers) = (Arc::clone(&self.0), LazyBuffers::new(sizes.0, sizes.1));
                    return Ok(Some(Socket { stream, stop, buffers }));
                }
                Err(error) => last = Error::Io(error),
            }
        }
        Err(last)
    }
}

/// A connection that ends with the run.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    stop: Arc<Stop>,
    buffers: LazyBuffers,
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let mut stream = Patient { stream: &self.stream, stop: &self.stop, until: Until::Each(PATIENCE) };
        Ok(stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let mut stream = Patient { stream: &self.stream, stop: &self.stop, until: Until::Each(PATIENCE) };
        let length = stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        // An answer that nobody has asked for yet is none.
        matches!(self.stream.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_replaced_wherever_parts_begin() {
        let patterns = vec![("https://a.example/x/".to_owned(), "http://b/".to_owned())];
        let page = "h <a href='https://a.example/x/1'> https://a.example/y http https://a.example/x/";
        let expected = page.replace("https://a.example/x/", "http://b/");
        for size in 1..page.len() {
            let mut replacer = Replacer::new(patterns.clone());
            let mut out: Vec<u8> = page.as_bytes().chunks(size).flat_map(|part| replacer.replace(part)).collect();
            out.extend(replacer.finish());
            assert_eq!(String::from_utf8(out).expect("text"), expected, "{size}");
        }
        let mut nothing = Replacer::new(vec![]);
        let out = [nothing.replace(b"https://h"), nothing.replace(b"h"), nothing.finish()].concat();
        assert_eq!(out, b"https://hh");
    }
}
