//! Asks name servers, over UDP and, where that is not enough, over TCP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::PollFlags;
use sandbox_base::random::random_bytes;

use super::LookupDeadline;
use super::config::ResolverConfig;
use super::message::{DnsQuery, DnsReply, RecordType};
use crate::stop::{StoppableStream, WaitLimit};

/// The addresses of a name, as the first server that answers knows them.
pub(super) fn look_up(config: &ResolverConfig, name: &str, ipv6: bool, deadline: LookupDeadline<'_>) -> Vec<IpAddr> {
    for candidate in config.candidates(name) {
        match ask_servers(config, &candidate, ipv6, deadline) {
            Some(addresses) if addresses.is_empty() => {}
            Some(addresses) => return addresses,
            None => break,
        }
    }
    vec![]
}

/// Asks one server after the other; nothing if none of them answers in time.
fn ask_servers(config: &ResolverConfig, name: &str, ipv6: bool, deadline: LookupDeadline<'_>) -> Option<Vec<IpAddr>> {
    let mut failed = None;
    for _ in 0..config.attempts {
        for server in &config.servers {
            let now = Instant::now();
            if now >= deadline.until || deadline.stop.is_given() {
                return None;
            }
            let deadline = LookupDeadline { until: deadline.until.min(now + config.timeout), ..deadline };
            let Some(mut exchange) = DnsExchange::new(name, ipv6) else { return Some(vec![]) };
            let asked = if config.tcp { Ok(()) } else { exchange.ask_by_datagrams(server, deadline) };
            let asked = asked.and_then(|()| exchange.ask_by_streams(server, config.tcp, deadline));
            match (exchange.addresses(), asked) {
                // One of two types is better than none.
                (Some(addresses), _) if !addresses.is_empty() => return Some(addresses),
                (Some(addresses), Ok(())) => return Some(addresses),
                // The server has answered that it does not know; a search can continue.
                (None, Ok(())) => failed = Some(vec![]),
                (_, Err(_)) => {}
            }
        }
    }
    failed
}

/// The queries for the addresses of one name to one server, and the replies so far.
struct DnsExchange(Vec<(DnsQuery, Option<DnsReply>)>);

impl DnsExchange {
    /// Nothing if the name is too long.
    fn new(name: &str, ipv6: bool) -> Option<Self> {
        let [a, b, c, d] = random_bytes().ok()?;
        let mut queries = vec![(DnsQuery::new([a, b], name, RecordType::A)?, None)];
        if ipv6 {
            queries.push((DnsQuery::new([c, d], name, RecordType::Aaaa)?, None));
        }
        Some(Self(queries))
    }

    /// The addresses in all replies; nothing if no query was answered.
    fn addresses(&self) -> Option<Vec<IpAddr>> {
        let mut answered = self.0.iter().filter_map(|(_, reply)| match reply {
            Some(DnsReply::Addresses(addresses)) => Some(addresses.as_slice()),
            _ => None,
        });
        let first = answered.next()?;
        Some(answered.fold(first.to_vec(), |all, more| [&all, more].concat()))
    }

    /// Sends all queries at once and waits for a reply to each. The socket is connected, so that datagrams from other
    /// addresses do not arrive.
    fn ask_by_datagrams(&mut self, server: &SocketAddr, deadline: LookupDeadline<'_>) -> io::Result<()> {
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        socket.connect(server)?;
        for (query, _) in &self.0 {
            socket.send(&query.message())?;
        }
        let mut buffer = [0; 4096];
        while self.0.iter().any(|(_, reply)| reply.is_none()) {
            deadline.stop.wait(&[(socket.as_fd(), PollFlags::IN)], deadline.until)?;
            let length = match socket.recv(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                other => other?,
            };
            for (query, reply) in self.0.iter_mut().filter(|(_, reply)| reply.is_none()) {
                *reply = query.read(&buffer[..length]);
            }
        }
        Ok(())
    }

    /// Asks again over TCP for replies that were too long for a datagram, or for all.
    fn ask_by_streams(&mut self, server: &SocketAddr, all: bool, deadline: LookupDeadline<'_>) -> io::Result<()> {
        for (query, reply) in &mut self.0 {
            if all || *reply == Some(DnsReply::Truncated) {
                *reply = Some(ask_by_stream(query, server, deadline)?);
            }
        }
        Ok(())
    }
}

/// Asks over TCP, where each message has its length before it.
fn ask_by_stream(query: &DnsQuery, server: &SocketAddr, deadline: LookupDeadline<'_>) -> io::Result<DnsReply> {
    let stream = deadline.stop.connect(server, deadline.until)?;
    let mut stream = StoppableStream { stream: &stream, stop: deadline.stop, until: WaitLimit::At(deadline.until) };
    let message = query.message();
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message.as_slice()].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    query.read(&message).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::StopSignal;
    use std::net::TcpListener;
    use std::thread::JoinHandle;
    use std::time::Duration;

    /// Answers queries over UDP and TCP at the same port: `long.example` only over TCP, `db.corp.example` at 192.0.2.7,
    /// `broken.example` with a failure, and nothing else. Ends after `count` datagrams.
    fn server(count: usize) -> (SocketAddr, JoinHandle<Vec<String>>) {
        // A port that is free for datagrams may be taken for connections.
        let both = || {
            let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
            Some((TcpListener::bind(udp.local_addr().expect("address")).ok()?, udp))
        };
        let (tcp, udp) = std::iter::repeat_with(both).take(100).flatten().next().expect("a port");
        let address = udp.local_addr().expect("address");
        let answer = |query: &[u8], is_tcp: bool| {
            let mut name = String::new();
            let mut at = 12;
            while query[at] > 0 {
                let length = usize::from(query[at]);
                name.push_str(&String::from_utf8_lossy(&query[at + 1..=at + length]));
                name.push('.');
                at += 1 + length;
            }
            let (mut reply, is_v4) = (query.to_vec(), query[at + 2] == 1);
            let (flags, code) = match name.as_str() {
                "long.example." if !is_tcp => (0x83, 0),
                "long.example." | "db.corp.example." => (0x81, 0),
                "broken.example." => (0x81, 2),
                _ => (0x81, 3),
            };
            (reply[2], reply[3]) = (flags, 0x80 | code);
            if flags == 0x81 && code == 0 && is_v4 {
                reply[7] = 1;
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 192, 0, 2, 7]);
            }
            (reply, format!("{name}{}", if is_tcp { "tcp" } else { "udp" }))
        };
        let thread = std::thread::spawn(move || {
            let mut asked = vec![];
            let mut buffer = [0; 512];
            for _ in 0..count {
                let (length, from) = udp.recv_from(&mut buffer).expect("a query");
                let (reply, name) = answer(&buffer[..length], false);
                udp.send_to(&reply, from).expect("send");
                asked.push(name);
                if reply[2] & 2 == 0 {
                    continue;
                }
                let (mut stream, _) = tcp.accept().expect("accept");
                let mut length = [0; 2];
                stream.read_exact(&mut length).expect("length");
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut query).expect("query");
                let (reply, name) = answer(&query, true);
                let length = u16::try_from(reply.len()).expect("short").to_be_bytes();
                stream.write_all(&[&length, reply.as_slice()].concat()).expect("write");
                asked.push(name);
            }
            asked
        });
        (address, thread)
    }

    fn config(server: SocketAddr) -> ResolverConfig {
        let (timeout, search) = (Duration::from_secs(5), vec!["corp.example".to_owned()]);
        ResolverConfig { servers: vec![server], search, timeout, attempts: 1, ..ResolverConfig::default() }
    }

    fn soon() -> LookupDeadline<'static> {
        LookupDeadline { until: Instant::now() + Duration::from_secs(20), stop: &StopSignal::NEVER }
    }

    #[test]
    fn long_replies_come_over_tcp() {
        let (address, thread) = server(1);
        let found = look_up(&config(address), "long.example", false, soon());
        assert_eq!(found, ["192.0.2.7".parse::<IpAddr>().expect("an address")]);
        assert_eq!(thread.join().expect("server"), ["long.example.udp", "long.example.tcp"]);
    }

    #[test]
    fn domains_are_searched() {
        let (address, thread) = server(2);
        assert_eq!(look_up(&config(address), "db", true, soon()).len(), 1);
        assert_eq!(thread.join().expect("server"), ["db.corp.example.udp"; 2], "A and AAAA");
        let (address, thread) = server(2);
        assert!(look_up(&config(address), "no.example", false, soon()).is_empty());
        assert_eq!(thread.join().expect("server"), ["no.example.udp", "no.example.corp.example.udp"]);
    }

    #[test]
    fn the_next_server_is_asked_after_a_failure() {
        let (first, one) = server(1);
        let (second, two) = server(1);
        // A connected socket keeps its port from others, and takes nothing from anyone but its peer.
        let taken = UdpSocket::bind("127.0.0.1:0").expect("bind");
        taken.connect("127.0.0.1:1").expect("connect");
        let servers = vec![taken.local_addr().expect("address"), first, second];
        let config = ResolverConfig { servers, search: vec![], ..config(first) };
        assert!(look_up(&config, "broken.example", false, soon()).is_empty());
        for thread in [one, two] {
            assert_eq!(thread.join().expect("server"), ["broken.example.udp"]);
        }
    }

    #[test]
    fn a_silent_server_takes_no_longer_than_the_deadline() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let timeout = Duration::from_secs(300);
        let config = ResolverConfig { timeout, ..config(silent.local_addr().expect("address")) };
        let began = Instant::now();
        let deadline = LookupDeadline { until: began + Duration::from_millis(100), stop: &StopSignal::NEVER };
        assert!(look_up(&config, "a.example", true, deadline).is_empty());
        assert!(began.elapsed() >= Duration::from_millis(100) && began.elapsed() < timeout / 5);
    }
}
