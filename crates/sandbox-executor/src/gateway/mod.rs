//! The way out of a cell that has one: whatever it reaches, it reaches through here.
//!
//! Three doors lead out, each a socket in the cell's network that is served outside of it: a proxy for programs that use
//! one, ports at which every address seems to be at home for programs that do not, and a resolver of names. Behind all of
//! them stands the same [`Reach`]: names are resolved here, what a name may be reached at is checked here, and the
//! addresses that were checked are the ones connected to. Everything is counted.
//!
//! A gateway ends with its run. Each connection has one thread, and whatever that waits for (the client's request, a
//! look-up, a connection, bytes) it stops waiting for when the run is over; [`Gateway::close`] returns when the last
//! thread has ended.

mod dns;
mod exchange;
mod fetch;
mod proxy;
mod stop;
mod tally;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use sandbox_cell::GatewaySockets;

pub use fetch::authorities;
#[cfg(fuzzing)]
pub(crate) use proxy::head;
pub(crate) use proxy::hosts_in;
pub use tally::{HostUse, NetworkUse, Refusal};

use crate::reach::{HostName, Patience, Reach};
use stop::Stop;
use tally::{Tally, Traffic};

/// The most connections and questions at one time, whatever they wait for.
const MOST_AT_ONCE: usize = 64;

/// The most look-ups at one time; each is a process.
const MOST_LOOK_UPS: usize = 8;

/// The most addresses that are remembered.
const MOST_KNOWN: usize = 1024;

/// How long a silent connection is kept.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take to look a host up and to connect to it, with all of its addresses.
const ESTABLISH: Duration = Duration::from_secs(15);

/// A name that is refused is refused after a multiple of this time, so that it does not tell how quickly the operator's
/// name servers answered: those of names in the operator's network are closer than others.
const REFUSAL: Duration = Duration::from_millis(500);

/// The name of the threads that serve cells with a network.
pub const GATEWAY_THREAD: &str = "gateway";

/// A gateway that serves a cell until it is closed.
#[derive(Debug)]
pub(crate) struct Gateway {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    reach: Reach,
    tally: Tally,
    stop: Arc<Stop>,
    /// What fetches from indexes with credentials, if there are any.
    agent: Option<ureq::Agent>,
    busy: AtomicUsize,
    looking_up: AtomicUsize,
    /// What names the resolver has given addresses for.
    known: Mutex<HashMap<IpAddr, Vec<HostName>>>,
}

impl Gateway {
    /// Serves a cell's sockets, as far as may be reached.
    pub(crate) fn serve(sockets: GatewaySockets, reach: Reach) -> io::Result<Self> {
        let stop = Arc::new(Stop::new()?);
        let agent = (!reach.indexes.is_empty()).then(|| fetch::agent(&reach, &stop));
        let shared = Arc::new(Shared {
            reach,
            tally: Tally::default(),
            stop,
            agent,
            busy: AtomicUsize::new(0),
            looking_up: AtomicUsize::new(0),
            known: Mutex::default(),
        });
        let doors = Doors::new(sockets)?;
        let serving = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name(GATEWAY_THREAD.to_owned()).spawn(move || doors.serve(&serving))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Ends every connection and says what went through.
    pub(crate) fn close(mut self) -> NetworkUse {
        self.end();
        self.shared.tally.sum()
    }

    fn end(&mut self) {
        self.shared.stop.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sockets, each with what it is for.
struct Doors {
    proxy: Option<TcpListener>,
    ports: Vec<TcpListener>,
    dns: Option<UdpSocket>,
}

impl Doors {
    fn new(sockets: GatewaySockets) -> io::Result<Self> {
        let listener = |socket: OwnedFd| {
            let listener = TcpListener::from(socket);
            listener.set_nonblocking(true).map(|()| listener)
        };
        let dns = sockets.dns.map(UdpSocket::from);
        if let Some(dns) = &dns {
            dns.set_nonblocking(true)?;
        }
        Ok(Self {
            proxy: sockets.proxy.map(listener).transpose()?,
            ports: sockets.ports.into_iter().map(listener).collect::<Result<_, _>>()?,
            dns,
        })
    }

    /// Takes whoever comes, until it is over. Returns when everybody is gone.
    fn serve(self, shared: &Shared) {
        let listeners: Vec<(&TcpListener, bool)> =
            self.proxy.iter().map(|proxy| (proxy, true)).chain(self.ports.iter().map(|port| (port, false))).collect();
        std::thread::scope(|scope| {
            loop {
                let mut fds = vec![PollFd::from_borrowed_fd(shared.stop.as_fd(), PollFlags::IN)];
                fds.extend(listeners.iter().map(|(listener, _)| PollFd::new(*listener, PollFlags::IN)));
                fds.extend(self.dns.iter().map(|dns| PollFd::from_borrowed_fd(dns.as_fd(), PollFlags::IN)));
                match poll(&mut fds, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return,
                }
                if !fds[0].revents().is_empty() {
                    return;
                }
                for (listener, is_proxy) in &listeners {
                    if let Ok((client, _)) = listener.accept() {
                        let is_proxy = *is_proxy;
                        shared.begin(scope, move || shared.attend(&client, is_proxy));
                    }
                }
                let Some(dns) = &self.dns else { continue };
                let mut question = [0; 512];
                if let Ok((length, from)) = dns.recv_from(&mut question) {
                    shared.begin(scope, move || {
                        if let Some(answer) = shared.resolve(&question[..length]) {
                            let _ = dns.send_to(&answer, from);
                        }
                    });
                }
            }
        });
    }
}

impl Shared {
    /// Does something in a thread of its own, unless too many do.
    fn begin<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
        if self.busy.fetch_add(1, Ordering::SeqCst) >= MOST_AT_ONCE {
            self.busy.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let thread = std::thread::Builder::new().name(GATEWAY_THREAD.to_owned()).spawn_scoped(scope, move || {
            work();
            self.busy.fetch_sub(1, Ordering::SeqCst);
        });
        if thread.is_err() {
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Serves a connection from the cell.
    fn attend(&self, client: &TcpStream, is_proxy: bool) {
        let prepared = client.set_nonblocking(true);
        let served =
            prepared.and_then(|()| if is_proxy { proxy::converse(self, client) } else { self.forward(client) });
        // Whoever is at the other end sees the connection end; there is nobody else to tell.
        let _ = served;
    }

    /// Forwards a connection to the address that the program meant.
    fn forward(&self, client: &TcpStream) -> io::Result<()> {
        let address = client.local_addr()?;
        match self.connect_to(address) {
            Ok((server, traffic)) => self.exchange(client, &server, &traffic),
            Err(_) => reset(client),
        }
    }

    /// Connects to an address, if it is one that an allowed name has, or is allowed itself.
    fn connect_to(&self, address: SocketAddr) -> Result<(TcpStream, Traffic<'_>), String> {
        let port = address.port();
        let names = lock(&self.known).get(&address.ip()).cloned().unwrap_or_default();
        let itself = HostName::Address(address.ip());
        let mut why = String::new();
        for host in names.iter().chain([&itself]) {
            match self.reach.check(host, port, address.ip()) {
                Ok(()) => return self.open(host, &[address], Instant::now() + ESTABLISH),
                Err(error) => why = error,
            }
        }
        self.tally.refused(names.first().unwrap_or(&itself), port, &why);
        Err(why)
    }

    /// Connects to a host, if it may be reached.
    fn connect(&self, host: &HostName, port: u16) -> Result<(TcpStream, Traffic<'_>), String> {
        let until = Instant::now() + ESTABLISH;
        let addresses = self.reach.allows(host, port).and_then(|()| self.look_up(host, Some(port), until));
        match addresses {
            Ok(addresses) => {
                let addresses: Vec<_> = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
                self.open(host, &addresses, until)
            }
            Err(why) => {
                self.tally.refused(host, port, &why);
                Err(why)
            }
        }
    }

    /// Looks a host up, after others if there are too many.
    fn look_up(&self, host: &HostName, port: Option<u16>, until: Instant) -> Result<Vec<IpAddr>, String> {
        if matches!(host, HostName::Address(_)) {
            return self.reach.look_up(host, port, Patience { until, stop: None });
        }
        let began = Instant::now();
        while self.looking_up.fetch_add(1, Ordering::SeqCst) >= MOST_LOOK_UPS {
            self.looking_up.fetch_sub(1, Ordering::SeqCst);
            let soon = (Instant::now() + Duration::from_millis(10)).min(until);
            if self.stop.sleep(soon).is_err() || soon == until {
                return Err(format!("{host}: too many names are being looked up"));
            }
        }
        let found = self.reach.look_up(host, port, Patience { until, stop: Some(self.stop.as_fd()) });
        self.looking_up.fetch_sub(1, Ordering::SeqCst);
        if found.is_err() && !self.reach.is_known(host) {
            let steps = began.elapsed().as_millis() / REFUSAL.as_millis() + 1;
            let _ = self.stop.sleep(began + REFUSAL * u32::try_from(steps).unwrap_or(u32::MAX));
        }
        found
    }

    fn open(
        &self,
        host: &HostName,
        addresses: &[SocketAddr],
        until: Instant,
    ) -> Result<(TcpStream, Traffic<'_>), String> {
        let mut why = format!("{host}: has no address");
        for address in addresses {
            match self.stop.connect(address, until) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, self.tally.connected(host, address.port())));
                }
                Err(error) => why = format!("{host}: cannot be reached ({error})"),
            }
        }
        Err(why)
    }

    /// Answers a question for the addresses of a name.
    fn resolve(&self, message: &[u8]) -> Option<Vec<u8>> {
        let question = dns::Question::parse(message)?;
        let host = HostName::parse(&question.name);
        let Some(host) = host.filter(|host| self.reach.names(host)) else {
            self.tally.refused_name(&question.name);
            return Some(question.unknown());
        };
        self.tally.looked_up();
        let addresses = self.look_up(&host, None, Instant::now() + ESTABLISH).unwrap_or_default();
        let v4: Vec<_> = addresses
            .iter()
            .filter_map(|address| if let IpAddr::V4(v4) = address { Some(*v4) } else { None })
            .collect();
        if addresses.is_empty() {
            return Some(question.unknown());
        }
        self.remember(&host, &addresses);
        Some(question.answer(&v4))
    }

    fn remember(&self, host: &HostName, addresses: &[IpAddr]) {
        let mut known = lock(&self.known);
        for address in addresses {
            if known.len() >= MOST_KNOWN && !known.contains_key(address) {
                return;
            }
            let names = known.entry(*address).or_default();
            if !names.contains(host) && names.len() < 16 {
                names.push(host.clone());
            }
        }
    }

    /// Carries bytes both ways until one side has nothing more to say.
    fn exchange(&self, client: &TcpStream, server: &TcpStream, traffic: &Traffic<'_>) -> io::Result<()> {
        exchange::exchange(client, server, &self.stop, PATIENCE, traffic)
    }
}

/// What the resolver answers if a name has this address.
#[cfg(fuzzing)]
pub(crate) fn dns_answer(message: &[u8], address: std::net::Ipv4Addr) -> Option<(String, Vec<u8>)> {
    let question = dns::Question::parse(message)?;
    let answer = question.answer(&[address]);
    Some((question.name, answer))
}

/// Ends a connection so that the other side sees an error, not an end.
fn reset(stream: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::HostRule;
    use std::io::{Read, Write};
    use std::net::Shutdown;

    fn rules(list: &[&str]) -> Vec<HostRule> {
        list.iter().map(|rule| HostRule::parse(rule).expect("valid")).collect()
    }

    /// A gateway on loopback, and a server behind it that answers with what it got.
    fn proxied(trust: bool, request: impl Fn(u16) -> String) -> (String, NetworkUse) {
        let server = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = server.local_addr().expect("address").port();
        let proxy = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = proxy.local_addr().expect("address");
        let always = if trust { hosts_in(&format!("http://localhost:{port}")) } else { vec![] };
        let reach = Reach { ports: Some(vec![80, 443]), always, ..Reach::default() };
        let sockets = GatewaySockets { proxy: Some(proxy.into()), dns: None, ports: vec![] };
        let gateway = Gateway::serve(sockets, reach).expect("serve");
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
        if let Some(echo) = echo {
            echo.join().expect("echo");
        }
        (answer, gateway.close())
    }

    #[test]
    fn a_trusted_place_is_reached_wherever_it_is() {
        let (tunnel, used) = proxied(true, |port| format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nhello"));
        assert!(tunnel.starts_with("HTTP/1.1 200") && tunnel.ends_with("got: hello"), "{tunnel}");
        assert_eq!((used.connections, used.refused, used.sent, used.received), (1, 0, 5, 10));
        assert_eq!((used.hosts[0].host.as_str(), used.hosts[0].sent), ("localhost", 5));
        let (plain, _) = proxied(true, |port| format!("GET http://localhost:{port}/x HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(plain.starts_with("got: GET /x HTTP/1.1"), "{plain}");
    }

    #[test]
    fn nothing_else_on_this_host_is() {
        for (target, why) in [
            ("localhost:8080", "is not allowed"),
            ("localhost:443", "localhost: cannot be resolved to a public address"),
            ("169.254.169.254:80", "its address is not public"),
            ("[::ffff:127.0.0.1]:80", "its address is not public"),
        ] {
            let (refused, used) = proxied(false, |_| format!("CONNECT {target} HTTP/1.1\r\n\r\n"));
            assert!(refused.starts_with("HTTP/1.1 403") && refused.contains(why), "{refused}");
            assert_eq!((used.connections, used.refused, used.refusals.len()), (0, 1, 1), "{used:?}");
        }
        for odd in ["CONNECT -x.example:443 HTTP/1.1", "GET / HTTP/1.1", "CONNECT 127.1:80 HTTP/1.1", "x"] {
            let (refused, _) = proxied(false, |_| format!("{odd}\r\n\r\n"));
            assert!(refused.starts_with("HTTP/1.1 400"), "{odd}: {refused}");
        }
    }

    #[test]
    fn an_address_is_reached_only_if_an_allowed_name_has_it() {
        let reach =
            Reach { hosts: Some(rules(&["localhost:443"])), private: rules(&["localhost"]), ..Reach::default() };
        let sockets = GatewaySockets { proxy: None, dns: None, ports: vec![] };
        let gateway = Gateway::serve(sockets, reach).expect("serve");
        let shared = &gateway.shared;
        let refused =
            |address: &str| shared.connect_to(address.parse().expect("address")).map(drop).expect_err("refused");
        assert!(refused("127.0.0.1:443").contains("not among the hosts"));
        shared.remember(&HostName::Name("localhost".to_owned()), &["127.0.0.1".parse().expect("address")]);
        // Allowed now, though nobody listens there.
        assert!(refused("127.0.0.1:443").contains("cannot be reached"));
        assert!(refused("127.0.0.1:80").contains("not among the hosts"));
        assert!(refused("127.0.0.2:443").contains("not among the hosts"));
        assert_eq!(gateway.close().refused, 3);
    }

    #[test]
    fn a_gateway_leaves_nothing_behind() {
        // The first waits in the queue of a server that accepts nobody, and nothing is told about the second.
        let full = TcpListener::bind("127.0.0.1:0").expect("bind");
        rustix::net::listen(&full, 0).expect("listen");
        let target = full.local_addr().expect("address");
        let mut queued = vec![];
        while let Ok(stream) = TcpStream::connect_timeout(&target, Duration::from_millis(300)) {
            queued.push(stream);
            assert!(queued.len() < 64, "the queue is never full");
        }
        let proxy = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = proxy.local_addr().expect("address");
        let reach = Reach {
            always: vec![HostRule::exactly(HostName::Address(target.ip()), target.port())],
            ..Reach::default()
        };
        let sockets = GatewaySockets { proxy: Some(proxy.into()), dns: None, ports: vec![] };
        let gateway = Gateway::serve(sockets, reach).expect("serve");
        let shared = Arc::clone(&gateway.shared);
        let mut clients: Vec<_> =
            (0..2 * MOST_AT_ONCE).map(|_| TcpStream::connect(address).expect("connect")).collect();
        for client in clients.iter_mut().step_by(2) {
            let _ = client.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        }
        while shared.busy.load(Ordering::SeqCst) < MOST_AT_ONCE {
            std::thread::yield_now();
        }
        // All others were sent away.
        let mut rest = [0];
        let _ = clients[2 * MOST_AT_ONCE - 1].read(&mut rest);
        assert_eq!(shared.busy.load(Ordering::SeqCst), MOST_AT_ONCE);
        let used = gateway.close();
        assert_eq!((shared.busy.load(Ordering::SeqCst), used.connections), (0, 0));
        assert_eq!(Arc::strong_count(&shared), 1, "a thread is left");
    }
}
