//! The connection to Redis: made when it is first needed and made anew after a failure, with exponential back-off.
//!
//! While Redis cannot be reached, calls fail at once with the last error instead of queueing up behind a timeout.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, TlsMode, Value,
};

use super::settings::{RedisSettings, Topology};

/// The time for connecting to one server.
const CONNECT: Duration = Duration::from_secs(1);

/// The time for connecting in all: asking Sentinels or cluster nodes, connecting and checking the server.
const CONNECT_IN_ALL: Duration = Duration::from_secs(4);

/// The time for the answer to a command.
const ANSWER: Duration = Duration::from_secs(3);

/// The shortest and the longest pause between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Connects to Redis as often as necessary.
pub(super) struct RedisLink {
    settings: RedisSettings,
    /// A key whose node has all keys of the store, in a cluster.
    key: String,
    state: Mutex<LinkState>,
    /// Held by the call that connects, while others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct LinkState {
    live: Option<LiveWire>,
    /// Counts connections, so that a failure of an old one does not end its successor.
    generation: u64,
    /// When the last connection was made.
    since: Option<Instant>,
    /// The last failure to connect, and when to try again.
    failed: Option<(RedisError, Instant)>,
    pauses: Backoff,
}

/// A connection, which many calls share.
#[derive(Clone)]
enum LiveWire {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Exponential back-off with jitter.
#[derive(Debug, Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    /// The next pause, between half and all of twice the one before.
    pub(super) fn next(&mut self) -> Duration {
        let (shortest, longest) = PAUSES;
        let full = shortest.saturating_mul(1 << self.0.min(16)).min(longest);
        self.0 = self.0.saturating_add(1);
        full / 2 + full.mul_f64(jitter()) / 2
    }

    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }
}

/// A number from 0 to 1, different for each server.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    f64::from(u16::try_from(RandomState::new().hash_one(0) & 0xffff).unwrap_or_default()) / f64::from(u16::MAX)
}

impl RedisLink {
    pub(super) fn new(settings: RedisSettings, key: String) -> Self {
        if settings.has_tls() {
            // Fails if the program has installed one already, which is just as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { settings, key, state: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that works as far as is known.
    pub(super) async fn connection(self: &Arc<Self>) -> RedisResult<RedisConnection> {
        if let Some(known) = self.known() {
            return known;
        }
        let _turn = self.connecting.lock().await;
        // Another call may have connected or failed meanwhile.
        if let Some(known) = self.known() {
            return known;
        }
        let connected = within(CONNECT_IN_ALL, Box::pin(self.connect())).await;
        let mut state = self.state();
        match connected {
            Ok(wire) => {
                state.pauses.reset();
                state.failed = None;
                state.generation += 1;
                state.since = Some(Instant::now());
                state.live = Some(wire.clone());
                Ok(RedisConnection { wire, generation: state.generation, link: Arc::clone(self) })
            }
            Err(error) => {
                let pause = state.pauses.next();
                state.failed = Some((error.clone(), Instant::now() + pause));
                Err(error)
            }
        }
    }

    /// The connection, or why there is none now. Nothing if it is time to connect.
    fn known(self: &Arc<Self>) -> Option<RedisResult<RedisConnection>> {
        let state = self.state();
        if let Some(wire) = state.live.clone() {
            return Some(Ok(RedisConnection { wire, generation: state.generation, link: Arc::clone(self) }));
        }
        let (error, until) = state.failed.as_ref()?;
        (Instant::now() < *until).then(|| Err(error.clone()))
    }

    /// Whether this Redis is a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.settings.topology, Topology::Cluster(_))
    }

    /// How long ago the last connection was made.
    pub(super) fn age(&self) -> Duration {
        self.state().since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Makes the connection older than it is.
    #[cfg(test)]
    pub(super) fn make_older(&self, time: Duration) {
        let mut state = self.state();
        state.since = state.since.and_then(|since| since.checked_sub(time));
    }

    /// Connects anew with the next call: the server has gone, or is not the right one any more.
    pub(super) fn renew(&self) {
        self.state().live = None;
    }

    /// Notes that a command failed.
    fn note_failure(&self, generation: u64, error: &RedisError) {
        let elsewhere = matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS"));
        let mut state = self.state();
        if state.generation == generation && (elsewhere || error.is_unrecoverable_error() || error.is_io_error()) {
            state.live = None;
        }
    }

    async fn connect(&self) -> RedisResult<LiveWire> {
        let mut wire = if self.is_cluster() {
            LiveWire::Cluster(self.cluster()?.get_async_connection().await?)
        } else {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT))
                .set_response_timeout(Some(ANSWER))
                .set_pipeline_buffer_size(1024);
            LiveWire::Node(self.client().await?.get_multiplexed_async_connection_with_config(&config).await?)
        };
        let memory: String = wire.on_node(redis::cmd("INFO").arg("memory"), &self.key).await?;
        refuse_eviction(&memory)?;
        Ok(wire)
    }

    /// A separate connection for notifications.
    pub(super) async fn notifications(&self) -> RedisResult<PubSub> {
        within(CONNECT_IN_ALL, Box::pin(async { self.client().await?.get_async_pubsub().await })).await
    }

    /// A client for the server that has the jobs, or for any node of a cluster.
    async fn client(&self) -> RedisResult<Client> {
        match &self.settings.topology {
            Topology::Server(node) => self.client_of(self.settings.connection(node)?),
            Topology::Sentinel { .. } => self.sentinel()?.async_get_client().await,
            Topology::Cluster(nodes) => {
                let mut last = RedisError::from((ErrorKind::InvalidClientConfig, "no cluster node is known"));
                for node in nodes {
                    let client = self.client_of(self.settings.connection(node)?)?;
                    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT / 2));
                    match client.get_multiplexed_async_connection_with_config(&config).await {
                        Ok(_) => return Ok(client),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn client_of(&self, server: redis::ConnectionInfo) -> RedisResult<Client> {
        match self.settings.certificates() {
            Some(certificates) => Client::build_with_tls(server, certificates),
            None => Client::open(server),
        }
    }

    fn sentinel(&self) -> RedisResult<SentinelClient> {
        let Topology::Sentinel { nodes, primary } = &self.settings.topology else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no Sentinels are known")));
        };
        let login = self.settings.login();
        let addresses: Vec<_> = nodes.iter().map(|node| self.settings.address(node)).collect();
        let mut builder = SentinelClientBuilder::new(addresses, primary, SentinelServerType::Master)?
            .set_client_to_redis_db(login.db());
        if let Some(username) = login.username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        let (username, password) = &self.settings.sentinel;
        if let Some(username) = username {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(certificates) = self.settings.certificates() {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(certificates);
        }
        builder.build()
    }

    fn cluster(&self) -> RedisResult<ClusterClient> {
        let Topology::Cluster(nodes) = &self.settings.topology else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no cluster is known")));
        };
        let nodes: Vec<_> = nodes.iter().map(|node| self.settings.connection(node)).collect::<Result<_, _>>()?;
        let mut builder = ClusterClientBuilder::new(nodes)
            .connection_timeout(CONNECT)
            .response_timeout(ANSWER)
            .overall_response_timeout(Some(ANSWER))
            .retries(3);
        if let Some(certificates) = self.settings.certificates() {
            builder = builder.tls(TlsMode::Secure).certs(certificates);
        }
        builder.build()
    }
}

impl LiveWire {
    /// Sends a command without keys to the node that has a key.
    async fn on_node<T: redis::FromRedisValue>(&mut self, command: &Cmd, key: &str) -> RedisResult<T> {
        let answer = match self {
            Self::Node(connection) => connection.req_packed_command(command).await?,
            Self::Cluster(connection) => {
                let route = Route::with_key(key, SlotAddr::Master);
                let route = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                connection.route_command(command.clone(), route).await?
            }
        };
        Ok(redis::from_redis_value(answer.extract_error()?)?)
    }
}

/// A connection for some calls. It notifies the link when it has failed.
pub(super) struct RedisConnection {
    wire: LiveWire,
    generation: u64,
    link: Arc<RedisLink>,
}

impl RedisConnection {
    /// Waits until enough replicas have the writes of this connection, if the settings demand it.
    pub(super) async fn wait_for_replicas(&mut self) -> RedisResult<()> {
        let wanted = self.link.settings.replicas;
        if wanted == 0 {
            return Ok(());
        }
        let patience = u64::try_from((ANSWER / 2).as_millis()).unwrap_or(1000);
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(patience);
        let reached: u32 = self.wire.on_node(&command, &self.link.key).await?;
        if reached < wanted {
            let detail = format!("{reached} of {wanted} replicas have acknowledged the write");
            return Err(RedisError::from((ErrorKind::Client, "not enough replicas", detail)));
        }
        Ok(())
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let answer = match &mut self.wire {
                LiveWire::Node(connection) => connection.req_packed_command(command).await,
                LiveWire::Cluster(connection) => connection.req_packed_command(command).await,
            };
            answer.and_then(Value::extract_error).inspect_err(|error| self.link.note_failure(self.generation, error))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let answer = match &mut self.wire {
                LiveWire::Node(connection) => connection.req_packed_commands(pipeline, offset, count).await,
                LiveWire::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count).await,
            };
            answer.inspect_err(|error| self.link.note_failure(self.generation, error))
        })
    }

    fn get_db(&self) -> i64 {
        self.link.settings.database()
    }
}

/// Fails if this takes too long.
pub(super) async fn within<T>(most: Duration, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match tokio::time::timeout(most, call).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "Redis did not answer in time").into()),
    }
}

/// Refuses a server that would delete jobs when its memory is full. Managed servers may not allow `CONFIG`, but have this
/// in `INFO memory`.
fn refuse_eviction(memory: &str) -> RedisResult<()> {
    let policy = memory.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::trim);
    match policy {
        None | Some("noeviction") => Ok(()),
        Some(policy) => Err(RedisError::from((
            ErrorKind::InvalidClientConfig,
            "unsafe eviction policy",
            format!(
                "maxmemory-policy is {policy}, which deletes jobs when Redis is full; set it to noeviction, for example \
                 with redis-cli CONFIG SET maxmemory-policy noeviction"
            ),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_policies_that_lose_jobs_are_refused() {
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let info = format!("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{policy}\r\n");
            let error = refuse_eviction(&info).expect_err(policy).to_string();
            assert!(error.contains(policy) && error.contains("noeviction"), "{error}");
        }
        refuse_eviction("maxmemory_policy:noeviction\r\n").expect("safe");
        refuse_eviction("").expect("a server that does not say so");
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..40).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= PAUSES.0 && pauses.iter().all(|pause| *pause >= PAUSES.0 / 2 && *pause <= PAUSES.1));
        assert!(pauses[39] >= PAUSES.1 / 2);
        backoff.reset();
        assert!(backoff.next() <= PAUSES.0);
    }
}
