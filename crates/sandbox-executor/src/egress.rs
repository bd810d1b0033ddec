//! The way out of an install cell: a proxy for HTTP and HTTPS that decides what can be reached.
//!
//! A cell with a proxy has no network but a socket on its own loopback interface, which is served here, outside of it.
//! What may be reached are the places from which the operator lets packages come, wherever they are, and public
//! addresses. Names are resolved here, and the address that was checked is the one that is connected to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::reach::{HostName, HostRule, Reach, host_and_port};

/// The most connections at one time.
const MOST_CONNECTIONS: usize = 64;

/// The longest head of a request.
const LONGEST_HEAD: u64 = 16 << 10;

/// How long a silent connection is kept.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy that serves a cell until it is dropped.
#[derive(Debug)]
pub(crate) struct Egress {
    listener: TcpListener,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Egress {
    /// Serves a cell's socket, as far as may be reached.
    pub(crate) fn serve(socket: OwnedFd, reach: Reach) -> io::Result<Self> {
        let listener = TcpListener::from(socket);
        let accepting = listener.try_clone()?;
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let reach = Arc::new(reach);
        let thread = std::thread::spawn(move || {
            let open = Arc::new(AtomicUsize::new(0));
            for client in accepting.incoming() {
                if flag.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (reach, open) = (Arc::clone(&reach), Arc::clone(&open));
                std::thread::spawn(move || {
                    let _ = converse(&client, &reach);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Self { listener, over, thread: Some(thread) })
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes whoever accepts, in whatever network the socket is.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

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
fn converse(client: &TcpStream, reach: &Reach) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(client.try_clone()?).take(LONGEST_HEAD);
    let Some(head) = read_head(&mut reader)? else { return Ok(()) };
    let early = reader.into_inner();
    let early = early.buffer().to_vec();
    let request = Head::parse(&head);
    let answer = |status: &str, why: &str| {
        let mut to: &TcpStream = client;
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{why}", why.len());
        to.write_all(text.as_bytes())
    };
    let Some(request) = request else { return answer("400 Bad Request", "not a request for a proxy\n") };
    let server = match connect(&request.host, request.port, reach) {
        Ok(server) => server,
        Err(why) => return answer("403 Forbidden", &format!("{why}\n")),
    };
    match &request.forward {
        None => {
            let mut to: &TcpStream = client;
            to.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        }
        Some(head) => (&server).write_all(head.as_bytes())?,
    }
    (&server).write_all(&early)?;
    exchange(client, &server)
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
struct Head {
    host: HostName,
    port: u16,
    /// What to send on; nothing if the client wants to speak for itself.
    forward: Option<String>,
}

impl Head {
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

/// Connects to a host, if it may be reached.
fn connect(host: &HostName, port: u16, reach: &Reach) -> Result<TcpStream, String> {
    let mut why = String::new();
    for address in reach.addresses(host, port)? {
        match open(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("{host}: cannot be reached ({error})"),
        }
    }
    Err(why)
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Carries bytes both ways until one side has nothing more to say.
fn exchange(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let up = std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let _ = io::copy(&mut from, &mut to);
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = up.join();
    Ok(())
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

    /// A proxy on loopback, and a server behind it that answers with what it got.
    fn proxied(trust: bool, request: impl Fn(u16) -> String) -> String {
        let server = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = server.local_addr().expect("address").port();
        let proxy = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = proxy.local_addr().expect("address");
        let exceptions = if trust { hosts_in(&format!("http://localhost:{port}")) } else { vec![] };
        let reach = Reach { ports: Some(vec![80, 443]), exceptions, ..Reach::default() };
        let egress = Egress::serve(proxy.into(), reach).expect("serve");
        let echo = trust.then(|| {
            std::thread::spawn(move || {
                let (mut connection, _) = server.accept().expect("accept");
                let mut buffer = [0; 1000];
                let got = connection.read(&mut buffer).expect("read");
                connection.write_all(b"got: ").and_then(|()| connection.write_all(&buffer[..got])).expect("write");
            })
        });
        let mut client = TcpStream::connect(address).expect("connect");
        client.write_all(request(port).as_bytes()).expect("write");
        client.shutdown(Shutdown::Write).expect("shutdown");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("read");
        drop(egress);
        if let Some(echo) = echo {
            echo.join().expect("echo");
        }
        answer
    }

    #[test]
    fn a_trusted_place_is_reached_wherever_it_is() {
        let tunnel = proxied(true, |port| format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nhello"));
        assert!(tunnel.starts_with("HTTP/1.1 200") && tunnel.ends_with("got: hello"), "{tunnel}");
        let plain = proxied(true, |port| format!("GET http://localhost:{port}/x HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(plain.starts_with("got: GET /x HTTP/1.1"), "{plain}");
    }

    #[test]
    fn nothing_else_on_this_host_is() {
        let refused = proxied(false, |port| format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"));
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("is not allowed"), "{refused}");
        let refused = proxied(false, |_| "CONNECT localhost:443 HTTP/1.1\r\n\r\n".to_owned());
        assert!(refused.contains("its address is not public"), "{refused}");
        let refused = proxied(false, |_| "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n".to_owned());
        assert!(refused.contains("its address is not public"), "{refused}");
        let refused = proxied(false, |_| "CONNECT -x.example:443 HTTP/1.1\r\n\r\n".to_owned());
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(proxied(false, |_| "GET / HTTP/1.1\r\n\r\n".to_owned()).starts_with("HTTP/1.1 400"));
    }
}
