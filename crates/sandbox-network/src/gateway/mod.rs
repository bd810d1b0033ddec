//! The gateway of a cell: its only access to the network.
//!
//! The gateway serves three kinds of sockets in the cell's network, from outside: an HTTP proxy for programs that use
//! one, ports that accept connections to any address for programs that do not, and a DNS server. The same
//! [`AddressPolicy`] applies to all of them: names are resolved here, their addresses are checked here, and connections
//! go to the addresses that were checked. Everything is counted.
//!
//! A gateway ends with its run. Each connection has one thread, and every wait of that thread (for the client's
//! request, a look-up, a connection, bytes) ends when the run ends; [`CellGateway::close`] returns when the last thread
//! has ended.

mod dns;
mod fetch;
mod proxy;
mod relay;
mod tally;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Scope};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

#[cfg(fuzzing)]
pub(crate) use proxy::proxy_head;
pub use tally::{HostUse, NetworkUse, Refusal};

use crate::address_policy::AddressPolicy;
use crate::host::HostName;
use crate::resolver::LookupDeadline;
use crate::stop::StopSignal;
use tally::{ConnectionTraffic, TrafficTally};

/// The maximum number of concurrent connections and DNS queries, in whatever state.
const MOST_AT_ONCE: usize = 64;

/// The maximum number of concurrent look-ups, so that a program cannot flood the name server.
const MOST_LOOK_UPS: usize = 8;

/// The maximum number of addresses whose names are remembered.
const MOST_KNOWN: usize = 1024;

/// The idle timeout of a connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time for looking a host up and connecting to it, across all of its addresses.
const ESTABLISH: Duration = Duration::from_secs(15);

/// A name is refused after a multiple of this time, so that programs cannot measure how quickly the name server answered:
/// it answers sooner for names in the operator's network than for others.
const REFUSAL: Duration = Duration::from_millis(500);

/// The name of the threads that serve cells with a network.
pub const GATEWAY_THREAD: &str = "gateway";

/// A gateway that serves a cell until it is closed.
#[derive(Debug)]
pub struct CellGateway {
    state: Arc<GatewayState>,
    thread: Option<JoinHandle<()>>,
}

/// The state that all connections share.
#[derive(Debug)]
struct GatewayState {
    policy: AddressPolicy,
    tally: TrafficTally,
    stop: Arc<StopSignal>,
    /// The client for package indexes with credentials, if there are any.
    agent: Option<ureq::Agent>,
    busy: AtomicUsize,
    looking_up: AtomicUsize,
    /// The names for which the DNS server has returned an address.
    known: Mutex<HashMap<IpAddr, Vec<HostName>>>,
}

impl CellGateway {
    /// Serves a cell's sockets under a policy.
    pub fn serve(sockets: GatewaySocketSet, policy: AddressPolicy) -> io::Result<Self> {
        let stop = Arc::new(StopSignal::new()?);
        let agent = (!policy.indexes.is_empty()).then(|| fetch::agent(&policy, &stop));
        let state = Arc::new(GatewayState {
            policy,
            tally: TrafficTally::default(),
            stop,
            agent,
            busy: AtomicUsize::new(0),
            looking_up: AtomicUsize::new(0),
            known: Mutex::default(),
        });
        let listeners = GatewayListeners::new(sockets)?;
        let serving = Arc::clone(&state);
        let thread =
            std::thread::Builder::new().name(GATEWAY_THREAD.to_owned()).spawn(move || listeners.serve(&serving))?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Ends every connection and returns the traffic summary.
    #[must_use]
    pub fn close(mut self) -> NetworkUse {
        self.end();
        self.state.tally.sum()
    }

    fn end(&mut self) {
        self.state.stop.give();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for CellGateway {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sockets of a cell's gateway, which belong to the cell's network.
#[derive(Debug, Default)]
pub struct GatewaySocketSet {
    /// Listens for clients of the proxy.
    pub proxy: Option<OwnedFd>,
    /// Receives DNS queries, as datagrams.
    pub dns: Option<OwnedFd>,
    /// One for each port: listens for connections to any address.
    pub ports: Vec<OwnedFd>,
}

/// The sockets, ready to be served.
struct GatewayListeners {
    proxy: Option<TcpListener>,
    ports: Vec<TcpListener>,
    dns: Option<UdpSocket>,
}

impl GatewayListeners {
    fn new(sockets: GatewaySocketSet) -> io::Result<Self> {
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

    /// Accepts connections and queries until the run ends. Returns when the last of them has ended.
    fn serve(self, state: &GatewayState) {
        let listeners: Vec<(&TcpListener, bool)> =
            self.proxy.iter().map(|proxy| (proxy, true)).chain(self.ports.iter().map(|port| (port, false))).collect();
        std::thread::scope(|scope| {
            loop {
                let mut fds: Vec<_> = listeners.iter().map(|(listener, _)| (listener.as_fd(), PollFlags::IN)).collect();
                fds.extend(self.dns.iter().map(|dns| (dns.as_fd(), PollFlags::IN)));
                match state.stop.wait(&fds, Instant::now() + PATIENCE) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                    Err(_) => return,
                }
                for (listener, is_proxy) in &listeners {
                    if let Ok((client, _)) = listener.accept() {
                        let is_proxy = *is_proxy;
                        state.begin(scope, move || state.serve_connection(&client, is_proxy));
                    }
                }
                let Some(dns) = &self.dns else { continue };
                let mut question = [0; 512];
                if let Ok((length, from)) = dns.recv_from(&mut question) {
                    state.begin(scope, move || {
                        if let Some(answer) = state.resolve(&question[..length]) {
                            let _ = dns.send_to(&answer, from);
                        }
                    });
                }
            }
        });
    }
}

impl GatewayState {
    /// Starts a thread for a connection or a query, unless there are too many.
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
    fn serve_connection(&self, client: &TcpStream, is_proxy: bool) {
        let prepared = client.set_nonblocking(true);
        let served =
            prepared.and_then(|()| if is_proxy { proxy::converse(self, client) } else { self.forward(client) });
        // The client sees that the connection ends; there is nothing else to report.
        let _ = served;
    }

    /// Forwards a connection to the address that the program connected to.
    fn forward(&self, client: &TcpStream) -> io::Result<()> {
        let address = client.local_addr()?;
        match self.connect_to(address) {
            Ok((server, traffic)) => self.relay(client, &server, &traffic),
            Err(_) => reset(client),
        }
    }

    /// Connects to an address, if the policy allows it or a name that resolved to it.
    fn connect_to(&self, address: SocketAddr) -> Result<(TcpStream, ConnectionTraffic<'_>), String> {
        let port = address.port();
        let names = lock(&self.known).get(&address.ip()).cloned().unwrap_or_default();
        let itself = HostName::Address(address.ip());
        let mut why = String::new();
        for host in names.iter().chain([&itself]) {
            match self.policy.check(host, port, address.ip()) {
                Ok(()) => return self.open(host, &[address], Instant::now() + ESTABLISH),
                Err(error) => why = error,
            }
        }
        self.tally.refused(names.first().unwrap_or(&itself), port, &why);
        Err(why)
    }

    /// Connects to a host, if the policy allows it.
    fn connect(&self, host: &HostName, port: u16) -> Result<(TcpStream, ConnectionTraffic<'_>), String> {
        let until = Instant::now() + ESTABLISH;
        let addresses = self.policy.allows(host, port).and_then(|()| self.look_up(host, Some(port), until));
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

    /// Looks a host up, once there is a free slot for a look-up.
    fn look_up(&self, host: &HostName, port: Option<u16>, until: Instant) -> Result<Vec<IpAddr>, String> {
        if matches!(host, HostName::Address(_)) {
            return self.policy.look_up(host, port, LookupDeadline { until, stop: &self.stop });
        }
        let began = Instant::now();
        while self.looking_up.fetch_add(1, Ordering::SeqCst) >= MOST_LOOK_UPS {
            self.looking_up.fetch_sub(1, Ordering::SeqCst);
            let soon = (Instant::now() + Duration::from_millis(10)).min(until);
            if self.stop.sleep(soon).is_err() || soon == until {
                return Err(format!("{host}: too many concurrent look-ups"));
            }
        }
        let found = self.policy.look_up(host, port, LookupDeadline { until, stop: &self.stop });
        self.looking_up.fetch_sub(1, Ordering::SeqCst);
        if found.is_err() && !self.policy.is_known(host) {
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
    ) -> Result<(TcpStream, ConnectionTraffic<'_>), String> {
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

    /// Answers a DNS query.
    fn resolve(&self, message: &[u8]) -> Option<Vec<u8>> {
        let question = dns::DnsQuestion::parse(message)?;
        let host = HostName::parse(&question.name);
        let Some(host) = host.filter(|host| self.policy.names(host)) else {
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

    /// Relays bytes both ways until the server closes its side.
    fn relay(&self, client: &TcpStream, server: &TcpStream, traffic: &ConnectionTraffic<'_>) -> io::Result<()> {
        relay::relay(client, server, &self.stop, PATIENCE, traffic)
    }
}

/// The answer of the DNS server for a name with this address.
#[cfg(fuzzing)]
pub(crate) fn dns_answer(message: &[u8], address: std::net::Ipv4Addr) -> Option<(String, Vec<u8>)> {
    let question = dns::DnsQuestion::parse(message)?;
    let answer = question.answer(&[address]);
    Some((question.name, answer))
}

/// Resets a connection, so that the program sees an error rather than an end of file.
fn reset(stream: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostRule;
    use crate::package_index::hosts_in;
    use std::io::{Read, Write};
    use std::net::Shutdown;

    fn rules(list: &[&str]) -> Vec<HostRule> {
        list.iter().map(|rule| HostRule::parse(rule).expect("valid")).collect()
    }

    /// A gateway on loopback, and an echo server behind it.
    fn proxied(trust: bool, request: impl Fn(u16) -> String) -> (String, NetworkUse) {
        let server = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = server.local_addr().expect("address").port();
        let proxy = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = proxy.local_addr().expect("address");
        let always = if trust { hosts_in(&format!("http://localhost:{port}")) } else { vec![] };
        let policy = AddressPolicy { ports: Some(vec![80, 443]), always, ..AddressPolicy::default() };
        let sockets = GatewaySocketSet { proxy: Some(proxy.into()), dns: None, ports: vec![] };
        let gateway = CellGateway::serve(sockets, policy).expect("serve");
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
    fn a_trusted_host_is_reached_at_a_private_address() {
        let (tunnel, used) = proxied(true, |port| format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nhello"));
        assert!(tunnel.starts_with("HTTP/1.1 200") && tunnel.ends_with("got: hello"), "{tunnel}");
        assert_eq!((used.connections, used.refused, used.sent, used.received), (1, 0, 5, 10));
        assert_eq!((used.hosts[0].host.as_str(), used.hosts[0].sent), ("localhost", 5));
        let (plain, _) = proxied(true, |port| format!("GET http://localhost:{port}/x HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(plain.starts_with("got: GET /x HTTP/1.1"), "{plain}");
    }

    #[test]
    fn other_services_of_this_host_are_refused() {
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
    fn an_address_is_reachable_only_through_an_allowed_name() {
        let policy = AddressPolicy {
            hosts: Some(rules(&["localhost:443"])),
            private: rules(&["localhost"]),
            ..AddressPolicy::default()
        };
        let sockets = GatewaySocketSet { proxy: None, dns: None, ports: vec![] };
        let gateway = CellGateway::serve(sockets, policy).expect("serve");
        let state = &gateway.state;
        let refused =
            |address: &str| state.connect_to(address.parse().expect("address")).map(drop).expect_err("refused");
        assert!(refused("127.0.0.1:443").contains("not among the hosts"));
        state.remember(&HostName::Name("localhost".to_owned()), &["127.0.0.1".parse().expect("address")]);
        // Allowed now, though no server listens there.
        assert!(refused("127.0.0.1:443").contains("cannot be reached"));
        assert!(refused("127.0.0.1:80").contains("not among the hosts"));
        assert!(refused("127.0.0.2:443").contains("not among the hosts"));
        assert_eq!(gateway.close().refused, 3);
    }

    #[test]
    fn closing_a_gateway_ends_all_its_threads() {
        // The first connection waits in the backlog of a server that does not accept, and the second never gets a
        // reply.
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
        let policy = AddressPolicy {
            always: vec![HostRule::exactly(HostName::Address(target.ip()), target.port())],
            ..AddressPolicy::default()
        };
        let sockets = GatewaySocketSet { proxy: Some(proxy.into()), dns: None, ports: vec![] };
        let gateway = CellGateway::serve(sockets, policy).expect("serve");
        let state = Arc::clone(&gateway.state);
        let mut clients: Vec<_> =
            (0..2 * MOST_AT_ONCE).map(|_| TcpStream::connect(address).expect("connect")).collect();
        for client in clients.iter_mut().step_by(2) {
            let _ = client.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        }
        while state.busy.load(Ordering::SeqCst) < MOST_AT_ONCE {
            std::thread::yield_now();
        }
        // All others were refused.
        let mut rest = [0];
        let _ = clients[2 * MOST_AT_ONCE - 1].read(&mut rest);
        assert_eq!(state.busy.load(Ordering::SeqCst), MOST_AT_ONCE);
        let used = gateway.close();
        assert_eq!((state.busy.load(Ordering::SeqCst), used.connections), (0, 0));
        assert_eq!(Arc::strong_count(&state), 1, "a thread is left");
    }
}
