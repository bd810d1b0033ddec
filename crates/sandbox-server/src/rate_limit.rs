//! Rate limits for each client: requests a second, and guesses of API keys. A client is an API key or a network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;
use governor::{Quota, RateLimiter};
use sandbox_base::counted;

use crate::problem::{Code, Problem};

/// The maximum number of clients with a separate state. New clients share one state while there are so many, so that
/// a million addresses take no more memory, and no more time for each request, than ten thousand.
const MOST_CLIENTS: usize = 10_000;

/// The client whose state is shared.
const OTHERS: &str = "others";

/// The interval at which idle clients are evicted, if there are too many clients.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time until one more request is allowed. A year is as good as never.
const LONGEST_PERIOD: f64 = 31e6;

/// Tests set the time themselves.
#[cfg(test)]
type LimitClock = governor::clock::FakeRelativeClock;
#[cfg(not(test))]
type LimitClock = governor::clock::MonotonicClock;
type LimitInstant = <LimitClock as Clock>::Instant;

/// The client that an address stands for: IPv6 networks are assigned in blocks of `/64` or more.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// A limit that applies to each client separately.
#[derive(Debug)]
pub(crate) struct ClientLimit {
    limiter: RateLimiter<LimitedClient, ClientStates, LimitClock, NoOpMiddleware<LimitInstant>>,
    evicted: Mutex<Option<LimitInstant>>,
}

impl ClientLimit {
    /// Allows some at once, and then so many a second.
    pub(crate) fn new(per_second: f64, burst: f64) -> Self {
        let period = Duration::from_secs_f64((1.0 / per_second).clamp(1e-9, LONGEST_PERIOD));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number, cut off at the largest"
        )]
        let burst = NonZeroU32::new(burst as u32).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(period).unwrap_or(Quota::per_second(NonZeroU32::MAX)).allow_burst(burst);
        let limiter = RateLimiter::new(quota, ClientStates::default(), LimitClock::default());
        Self { limiter, evicted: Mutex::default() }
    }

    /// Counts one for a client. If that is too many, returns the seconds until one more is allowed.
    pub(crate) fn count(&self, client: &str) -> Result<(), u64> {
        self.check(&LimitedClient { name: client.to_owned(), counts: true })
    }

    /// Whether one more would be allowed for a client, without counting it.
    pub(crate) fn look(&self, client: &str) -> Result<(), u64> {
        self.check(&LimitedClient { name: client.to_owned(), counts: false })
    }

    fn check(&self, client: &LimitedClient) -> Result<(), u64> {
        let now = self.limiter.clock().now();
        self.evict_idle(now);
        self.limiter.check_key(client).map_err(|refused| {
            let wait = refused.wait_time_from(now);
            wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
        })
    }

    /// Makes room for new clients. It looks at all of them, so it does not run at each request.
    fn evict_idle(&self, now: LimitInstant) {
        if self.limiter.len() < MOST_CLIENTS {
            return;
        }
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        if evicted.is_none_or(|evicted| Reference::duration_since(&now, evicted) >= Nanos::from(EVICTION_INTERVAL)) {
            self.limiter.retain_recent();
            *evicted = Some(now);
        }
    }

    /// Lets time pass.
    #[cfg(test)]
    pub(crate) fn advance(&self, by: Duration) {
        self.limiter.clock().advance(by);
    }
}

/// A client that asks, and whether that counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LimitedClient {
    name: String,
    counts: bool,
}

/// The state of each client, for a bounded number of clients.
#[derive(Debug, Default)]
struct ClientStates(Mutex<HashMap<String, Nanos>>);

impl ClientStates {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Nanos>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for ClientStates {
    type Key = LimitedClient;

    fn measure_and_replace<T, F, E>(&self, client: &LimitedClient, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut states = self.lock();
        let has_state = states.contains_key(&client.name) || states.len() < MOST_CLIENTS;
        let name = if has_state { client.name.as_str() } else { OTHERS };
        let (decision, state) = decide(states.get(name).copied())?;
        if client.counts {
            states.insert(name.to_owned(), state);
        }
        Ok(decision)
    }
}

impl ShrinkableKeyedStateStore<LimitedClient> for ClientStates {
    fn retain_recent(&self, drop_below: Nanos) {
        self.lock().retain(|_, state| *state > drop_below);
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// The rate of requests of each client: the burst is two seconds' worth.
#[derive(Debug)]
pub(crate) struct RateLimits {
    /// Requests per second for clients without a specific limit; unlimited if absent.
    per_second: Mutex<Option<f64>>,
    /// One for each rate, by its bits. The configuration bounds their number.
    limits: Mutex<HashMap<u64, Arc<ClientLimit>>>,
}

impl RateLimits {
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        Self { per_second: Mutex::new(per_second), limits: Mutex::default() }
    }

    /// Changes the limit of clients without a specific one.
    pub(crate) fn set(&self, per_second: Option<f64>) {
        *self.per_second.lock().unwrap_or_else(PoisonError::into_inner) = per_second;
    }

    /// Counts a request of a client, under the client's own limit or the common one.
    pub(crate) fn count(&self, client: &str, own: Option<f64>) -> Result<(), Problem> {
        let common = *self.per_second.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(per_second) = own.or(common) else { return Ok(()) };
        self.limit(per_second).count(client).map_err(|wait| {
            let detail = format!("the limit is {} per second", counted(per_second, "request"));
            Problem::new(Code::TooManyRequests, detail).retry_after(wait)
        })
    }

    fn limit(&self, per_second: f64) -> Arc<ClientLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = limits.entry(per_second.to_bits()).or_insert_with(|| {
            let burst = (2.0 * per_second).max(1.0);
            Arc::new(ClientLimit::new(per_second, burst))
        });
        Arc::clone(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the time of a limit reach so many milliseconds after its start.
    fn reach(limit: &ClientLimit, milliseconds: u64) {
        let now: Duration = limit.limiter.clock().now().into();
        limit.advance(Duration::from_millis(milliseconds).saturating_sub(now));
    }

    #[test]
    fn limits_are_used_up_and_recover() {
        let rate = RateLimits::new(Some(2.0));
        let taken = |client_id: &str, at: u64| {
            reach(&rate.limit(2.0), at);
            rate.count(client_id, None).is_ok()
        };
        assert_eq!([0; 6].map(|at| taken("a", at)), [true, true, true, true, false, false]);
        assert!(taken("b", 0), "another has a limit of its own");
        assert!(taken("a", 500) && !taken("a", 500));
        assert_eq!([60_000; 5].map(|at| taken("a", at)), [true, true, true, true, false]);
        let own = |at: u64| {
            reach(&rate.limit(0.5), at);
            rate.count("c", Some(0.5)).is_ok()
        };
        assert_eq!([own(0), own(0), own(1900), own(2100)], [true, false, false, true]);
        assert!((0..1000).all(|_| RateLimits::new(None).count("a", None).is_ok()));
    }

    #[test]
    fn refusals_include_the_time_to_retry() {
        let limit = ClientLimit::new(0.1, 1.0);
        assert_eq!([limit.look("a"), limit.count("a"), limit.count("a")], [Ok(()), Ok(()), Err(10)]);
        limit.advance(Duration::from_millis(8500));
        assert_eq!((limit.look("a"), limit.count("a")), (Err(2), Err(2)));
        limit.advance(Duration::from_millis(1400));
        assert_eq!(limit.count("a"), Err(1));
        limit.advance(Duration::from_millis(100));
        assert_eq!(
            [limit.look("a"), limit.look("a"), limit.count("a"), limit.look("a")],
            [Ok(()), Ok(()), Ok(()), Err(10)]
        );
    }

    #[test]
    fn every_rate_can_be_a_limit() {
        for per_second in [f64::MIN_POSITIVE, 1e-12, 0.3, 1e6, 1e12, f64::MAX] {
            let rate = RateLimits::new(Some(per_second));
            assert!(rate.count("a", None).is_ok(), "{per_second}");
            assert_eq!(rate.count("a", None).is_ok(), per_second >= 1.0, "{per_second}");
        }
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        let limit = ClientLimit::new(1.0, 10.0);
        for n in 0..3 * MOST_CLIENTS {
            let _ = limit.count(&n.to_string());
        }
        assert!(limit.limiter.len() <= MOST_CLIENTS + 1, "{}", limit.limiter.len());
        assert!(limit.count("one more").is_err(), "the shared state is used up");
        assert!(limit.count("0").is_ok(), "a client that had a state still has it");
        limit.advance(Duration::from_secs(60));
        assert!(limit.count("one more").is_ok());
        assert!(limit.limiter.len() <= 2, "idle clients are evicted: {}", limit.limiter.len());
    }

    #[test]
    fn a_block_of_addresses_is_one() {
        let network = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::1"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
