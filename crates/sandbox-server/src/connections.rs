//! Open connections: how many each client may have, which of them makes room for a new one, and when each is closed.
//!
//! A connection without a request in flight is idle, and idle connections are what gives way: accepting never waits.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

/// The slowest that a client may read an answer or send a body, in bytes a second, beyond its timeout.
pub(crate) const SLOWEST: usize = 64 << 10;

/// Smaller frames fit into the socket's buffer, so they need not be watched until they are written.
const SMALL_FRAME: usize = 4 << 10;

/// The interval at which connections are checked.
const SWEEP: Duration = Duration::from_millis(200);

/// How long data of this size may take, if a little may take this long.
pub(crate) fn allowance(timeout: Duration, bytes: usize) -> Duration {
    timeout + Duration::from_secs((bytes / SLOWEST) as u64)
}

/// One client as far as addresses tell: an IPv4 address, or the /64 network from which an IPv6 host picks freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientNetwork(IpAddr);

impl ClientNetwork {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The maximum number of connections, and their timeouts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// All connections.
    pub(crate) total: usize,
    /// Those of one origin.
    pub(crate) per_origin: usize,
    /// From accepting a connection to its first complete request head.
    pub(crate) first_request: Duration,
    /// From one request's end to the next complete request head.
    pub(crate) idle: Duration,
    /// For a client to read its response.
    pub(crate) write: Duration,
}

/// The reason for which a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// At once.
    Now,
    /// With a word to the client, where HTTP has one.
    Politely,
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    bounds: ConnectionLimits,
    began: Instant,
    table: Mutex<Table>,
    /// Wakes the sweeper when the first connection comes.
    opened: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Open>,
    origins: HashMap<ClientNetwork, Members>,
    /// Origins with an idle connection, by their number of connections.
    evictable: BTreeSet<(usize, ClientNetwork)>,
}

#[derive(Debug, Default)]
struct Members {
    count: usize,
    /// Idle connections, the longest idle first.
    idle: BTreeSet<(Instant, u64)>,
}

#[derive(Debug)]
struct Open {
    origin: ClientNetwork,
    closing: Arc<Closing>,
    idle_since: Instant,
    /// Whether it has brought a request.
    used: bool,
    /// Until when each request in flight has to get on, in milliseconds since the table was made; 0 if it need not.
    flights: Vec<Arc<AtomicU64>>,
}

#[derive(Debug, Default)]
struct Closing {
    how: Mutex<Option<Close>>,
    told: Notify,
}

impl Table {
    /// Changes an origin's members, and keeps the order of eviction in step. Origins without connections are forgotten.
    fn change(&mut self, origin: ClientNetwork, change: impl FnOnce(&mut Members)) {
        let members = self.origins.entry(origin).or_default();
        self.evictable.remove(&(members.count, origin));
        change(members);
        if members.count == 0 {
            self.origins.remove(&origin);
        } else if !members.idle.is_empty() {
            self.evictable.insert((members.count, origin));
        }
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.change(open.origin, |members| {
            members.count -= 1;
            members.idle.remove(&(open.idle_since, id));
        });
        Some(open)
    }

    fn close(&mut self, id: u64, how: Close) {
        if let Some(open) = self.remove(id) {
            *open.closing.how.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
            open.closing.told.notify_one();
        }
    }

    /// Closes the connection of this origin that has been idle longest. Says whether there was one.
    fn evict_from(&mut self, origin: ClientNetwork) -> bool {
        let oldest = self.origins.get(&origin).and_then(|members| members.idle.first()).map(|(_, id)| *id);
        oldest.inspect(|id| self.close(*id, Close::Now)).is_some()
    }

    /// The same for the origin with the most connections.
    fn evict(&mut self) -> bool {
        self.evictable.last().copied().is_some_and(|(_, origin)| self.evict_from(origin))
    }
}

impl Connections {
    pub(crate) fn new(bounds: ConnectionLimits) -> Arc<Self> {
        let (began, table, opened) = (Instant::now(), Mutex::default(), Notify::new());
        Arc::new(Self { bounds, began, table, opened })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether none is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.table().open.is_empty()
    }

    /// Takes a connection in. If there are too many, one that is idle is closed for it; if none is, there is no room.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Connection> {
        let origin = ClientNetwork::of(address);
        let mut table = self.table();
        let of_origin = table.origins.get(&origin).map_or(0, |members| members.count);
        if of_origin >= self.bounds.per_origin && !table.evict_from(origin) {
            return None;
        }
        if table.open.len() >= self.bounds.total && !table.evict() {
            return None;
        }
        let id = table.next;
        table.next += 1;
        let closing = Arc::new(Closing::default());
        let open = Open { origin, closing: Arc::clone(&closing), idle_since: now, used: false, flights: vec![] };
        table.open.insert(id, open);
        table.change(origin, |members| {
            members.count += 1;
            members.idle.insert((now, id));
        });
        drop(table);
        self.opened.notify_one();
        Some(Connection { id, all: Arc::clone(self), closing })
    }

    /// Closes an idle connection, for want of descriptors.
    pub(crate) fn make_room(&self) {
        self.table().evict();
    }

    /// Closes connections whose time is up, for ever.
    pub(crate) async fn sweep(&self) {
        loop {
            if self.is_empty() {
                self.opened.notified().await;
            }
            tokio::time::sleep(SWEEP).await;
            self.close_overdue(Instant::now());
        }
    }

    fn close_overdue(&self, now: Instant) {
        let mut table = self.table();
        let overdue: Vec<(u64, Close)> =
            table.open.iter().filter_map(|(id, open)| Some((*id, self.overdue(open, now)?))).collect();
        for (id, how) in overdue {
            table.close(id, how);
        }
    }

    /// Whether a connection has to be closed by now.
    fn overdue(&self, open: &Open, now: Instant) -> Option<Close> {
        let is_late = |flight: &Arc<AtomicU64>| {
            let until = flight.load(Ordering::Relaxed);
            until != 0 && until <= self.milliseconds(now)
        };
        if !open.flights.is_empty() {
            return open.flights.iter().any(is_late).then_some(Close::Now);
        }
        let (most, how) =
            if open.used { (self.bounds.idle, Close::Politely) } else { (self.bounds.first_request, Close::Now) };
        (now.saturating_duration_since(open.idle_since) >= most).then_some(how)
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A connection, in the table until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    id: u64,
    all: Arc<Connections>,
    closing: Arc<Closing>,
}

impl Connection {
    /// Waits until the connection has to be closed.
    pub(crate) async fn closed(&self) -> Close {
        loop {
            let how = self.closing.how.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(how) = how {
                return how;
            }
            self.closing.told.notified().await;
        }
    }

    /// Whether a request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.all.table().open.get(&self.id).is_some_and(|open| !open.flights.is_empty())
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> Flight {
        let until = Arc::new(AtomicU64::new(0));
        let mut table = self.all.table();
        if let Some(open) = table.open.get_mut(&self.id) {
            open.flights.push(Arc::clone(&until));
            open.used = true;
            let (origin, entry) = (open.origin, (open.idle_since, self.id));
            table.change(origin, |members| {
                members.idle.remove(&entry);
            });
        }
        Flight { id: self.id, all: Arc::clone(&self.all), until }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.table().remove(self.id);
    }
}

/// A request in flight, until the last byte of its answer has been written.
#[derive(Debug)]
pub(crate) struct Flight {
    id: u64,
    all: Arc<Connections>,
    until: Arc<AtomicU64>,
}

impl Flight {
    /// The client has to take this much now.
    fn offer(&self, bytes: usize) {
        let until = Instant::now() + allowance(self.all.bounds.write, bytes);
        self.until.store(self.all.milliseconds(until).max(1), Ordering::Relaxed);
    }

    /// There is nothing that the client could take.
    fn wait(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut table = self.all.table();
        let Some(open) = table.open.get_mut(&self.id) else { return };
        open.flights.retain(|flight| !Arc::ptr_eq(flight, &self.until));
        if open.flights.is_empty() {
            open.idle_since = Instant::now();
            let (origin, entry) = (open.origin, (open.idle_since, self.id));
            table.change(origin, |members| {
                members.idle.insert(entry);
            });
        }
    }
}

/// An answer's body. A client that does not read its response loses its connection; this also covers HTTP/2
/// streams whose window is closed, of which the socket knows nothing.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    body: Body,
    flight: Arc<Flight>,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, flight: Flight) -> Self {
        flight.offer(0);
        Self { body, flight: Arc::new(flight) }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let size = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        match &polled {
            Poll::Pending => self.flight.wait(),
            Poll::Ready(_) => self.flight.offer(size),
        }
        if size < SMALL_FRAME {
            return polled;
        }
        let flight = Arc::clone(&self.flight);
        polled.map_ok(|frame| frame.map_data(|bytes| Bytes::from_owner(Unwritten { bytes, _flight: flight })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that are not yet written: their request is in flight until they are.
struct Unwritten {
    bytes: Bytes,
    _flight: Arc<Flight>,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ConnectionLimits = ConnectionLimits {
        total: 4,
        per_origin: 3,
        first_request: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        write: Duration::from_secs(10),
    };

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn how(connection: &Connection) -> Option<Close> {
        *connection.closing.how.lock().expect("lock")
    }

    #[test]
    fn longest_idle_connection_of_largest_origin_is_evicted() {
        let (all, start) = (Connections::new(BOUNDS), Instant::now());
        let admit = |last: u8, at: u64| all.admit(address(last), start + Duration::from_secs(at)).expect("room");
        let (other, first, second) = (admit(1, 0), admit(2, 1), admit(2, 2));
        let third = admit(2, 3);
        let polite = admit(3, 4);
        assert_eq!([&other, &first, &second, &third].map(how), [None, Some(Close::Now), None, None]);
        drop(polite);
        let fourth = admit(2, 5);
        let fifth = admit(2, 6);
        assert_eq!([&second, &third, &fourth, &fifth].map(how), [Some(Close::Now), None, None, None]);
    }

    #[test]
    fn requests_in_flight_are_never_evicted() {
        let (all, start) = (Connections::new(BOUNDS), Instant::now());
        let busy: Vec<Connection> = (1..=4).map(|last| all.admit(address(last), start).expect("room")).collect();
        let mut flights: Vec<Flight> = busy.iter().map(Connection::begin).collect();
        assert!(all.admit(address(9), start).is_none());
        flights.remove(2);
        let polite = all.admit(address(9), start).expect("room");
        assert_eq!(busy.iter().map(how).collect::<Vec<_>>(), [None, None, Some(Close::Now), None]);
        drop((busy, flights, polite));
        let table = all.table();
        assert!(table.open.is_empty() && table.origins.is_empty() && table.evictable.is_empty());
    }

    #[test]
    fn connections_close_when_their_time_is_up() {
        let (all, start) = (Connections::new(BOUNDS), Instant::now());
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        let (silent, used, busy) =
            (all.admit(address(1), start), all.admit(address(2), start), all.admit(address(3), start));
        let (silent, used, busy) = (silent.expect("room"), used.expect("room"), busy.expect("room"));
        drop(used.begin());
        let flight = busy.begin();
        all.close_overdue(at(4));
        assert_eq!([&silent, &used, &busy].map(how), [None; 3]);
        all.close_overdue(at(6));
        assert_eq!([&silent, &used, &busy].map(how), [Some(Close::Now), None, None]);
        all.close_overdue(at(1000));
        assert_eq!([&silent, &used, &busy].map(how), [Some(Close::Now), Some(Close::Politely), None]);
        flight.offer(SLOWEST * 20);
        all.close_overdue(at(29));
        assert_eq!(how(&busy), None);
        flight.wait();
        all.close_overdue(at(1000));
        assert_eq!(how(&busy), None);
        flight.offer(0);
        all.close_overdue(at(11));
        assert_eq!(how(&busy), Some(Close::Now));
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let of = |text: &str| ClientNetwork::of(text.parse().expect("address"));
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
