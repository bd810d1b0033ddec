//! What only this store has to do: survive faults of Redis, share work between servers, and connect in every way.

mod faults;
mod measured;
mod topologies;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use sandbox_executor::{JsonRequest, OutputChunk, RunEvent, RunResult, Verdict};
use sandbox_testing::GuardedChild;

use super::*;

const RETENTION: Duration = Duration::from_secs(3600);

const BOUNDS: StoreLimits = StoreLimits { waiting: 1_000_000, waiting_per_owner: 1_000_000, bytes_per_owner: 1 << 40 };

/// Longer than anything that works takes.
const LONG: Duration = Duration::from_secs(30);

/// A Redis server on a Unix socket in a directory of its own. It ends when it is dropped.
struct SocketServer {
    dir: tempfile::TempDir,
    child: Option<GuardedChild>,
}

impl SocketServer {
    /// Starts a server with these arguments.
    fn start(arguments: &[&str]) -> Self {
        let mut server = Self { dir: tempfile::tempdir().expect("tempdir"), child: None };
        server.start_again(arguments);
        server
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Starts the server after it was killed.
    fn start_again(&mut self, arguments: &[&str]) {
        let mut all = vec!["--port", "0", "--unixsocket", "redis.sock"];
        all.extend(arguments);
        self.child = start_redis(self.dir.path(), &all);
        assert!(self.child.is_some(), "redis-server does not start");
    }

    fn kill(&mut self) {
        self.child = None;
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
    }

    async fn store(&self) -> RedisStore {
        self.store_with_lease(LEASE).await
    }

    async fn store_with_lease(&self, lease: Duration) -> RedisStore {
        let settings = RedisSettings::from_url(&self.url()).expect("a URL");
        RedisStore::connect_as(settings, RETENTION, "sandbox", lease).await.expect("connect")
    }

    /// Runs a command.
    async fn command(&self, words: &[&str]) -> String {
        let client = redis::Client::open(self.url()).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("connect");
        let (name, arguments) = words.split_first().expect("a name");
        let answer: redis::Value = redis::cmd(name).arg(arguments).query_async(&mut connection).await.expect(name);
        redis::from_redis_value(answer).unwrap_or_default()
    }

    /// A number in `INFO`.
    async fn info(&self, section: &str, name: &str) -> u64 {
        let info = self.command(&["INFO", section]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
        line.trim().parse().expect("a number")
    }
}

/// Starts redis-server in a directory, unless it ends before it is ready: a port may be taken.
fn start_redis(dir: &Path, arguments: &[&str]) -> Option<GuardedChild> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "redis-server"]).args(arguments).current_dir(dir);
    if !arguments.contains(&"--sentinel") {
        command.args(["--dir", dir.to_str().expect("utf-8"), "--save", ""]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let (sender, started) = channel();
    // The server ends with the thread that started it, which lives as long as it prints.
    std::thread::spawn(move || {
        let mut child = GuardedChild(command.spawn().expect("start setpriv and redis-server"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(std::io::Result::ok);
        let is_ready = |line: String| {
            ["Ready to accept connections", "eady to accept connections at", "Sentinel ID is"]
                .iter()
                .any(|text| line.contains(text))
        };
        if lines.any(is_ready) {
            let _ = sender.send(child);
            lines.for_each(drop);
        }
    });
    started.recv().ok()
}

fn new_job(code: &str) -> NewJob {
    NewJob::of(JsonRequest { code: Some(code.to_owned()), ..JsonRequest::default() })
}

async fn create(store: &RedisStore) -> JobId {
    match store.create(new_job("x"), BOUNDS).await.expect("create") {
        Created::New(header) => header.id,
        other => panic!("{other:?}"),
    }
}

async fn take(store: &RedisStore) -> Option<Job> {
    store.sweep().await.expect("sweep");
    let turns = store.next_owners(u64::MAX >> 1, &Labels::default()).await.expect("owners");
    let (owner, alone) = match (turns.suspects.first(), turns.owners.first()) {
        (Some(owner), _) => (owner, true),
        (None, Some(owner)) => (owner, false),
        (None, None) => return None,
    };
    store.take(owner.as_deref(), &Offer { alone, ..Offer::default() }).await.expect("take")
}

fn printed(text: &str) -> Arc<RunResult> {
    Arc::new(RunResult { verdict: Verdict::Ok, success: true, stdout: text.to_owned(), ..RunResult::default() })
}

fn output(text: &str) -> Vec<RunEvent> {
    vec![RunEvent::Stdout(OutputChunk { data: text.to_owned(), ..OutputChunk::default() })]
}

/// Tries until it works.
async fn until_it_works<T>(call: impl AsyncFn() -> Result<T>) -> T {
    let began = Instant::now();
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn followers_and_workers_are_woken_by_other_servers() {
    let server = SocketServer::start(&[]);
    let (one, other) = (server.store().await, server.store().await);
    let id = create(&one).await;
    let mut watch = other.follow(id);
    let attempt = take(&one).await.expect("one").attempt();
    let mut seen = 0;
    for number in 1..=3 {
        one.append(attempt, output("x")).await.expect("append");
        while seen < number {
            tokio::time::timeout(LONG, watch.changed()).await.expect("woken");
            seen = other.progress(id).await.expect("progress").expect("there").events;
        }
    }
    assert!(take(&other).await.is_none());
    let (woken, created) = tokio::join!(tokio::time::timeout(LONG, other.something_queued(LONG)), create(&one));
    woken.expect("woken");
    assert_eq!(take(&other).await.map(|job| job.id), Some(created));
}

#[tokio::test]
async fn a_late_result_of_a_paused_server_is_refused() {
    let server = SocketServer::start(&[]);
    let lease = Duration::from_millis(100);
    let (paused, other) = (server.store_with_lease(lease).await, server.store_with_lease(LONG).await);
    let id = create(&paused).await;
    let first = take(&paused).await.expect("one").attempt();
    assert!(take(&other).await.is_none(), "it is leased");
    tokio::time::sleep(2 * lease).await;
    let second = take(&other).await.expect("the lease has ended").attempt();
    assert_eq!((second.id, second.number), (id, 2));
    let report = paused.heartbeat(vec![first]).await.expect("heartbeat");
    assert_eq!(report, HeartbeatReport { cancelled: vec![], lost: vec![id] });
    assert!(!paused.append(first, output("late")).await.expect("append"));
    assert!(!paused.finish(first, printed("late")).await.expect("finish"));
    assert!(other.finish(second, printed("right")).await.expect("finish"));
    assert!(!paused.finish(first, printed("late")).await.expect("finish"));
    let job = other.get(id).await.expect("get").expect("there");
    assert_eq!((job.status, job.result.map(|result| result.stdout)), (JobStatus::Finished, Some("right".to_owned())));
    // A result that arrives late but first is the job's.
    let id = create(&paused).await;
    let only = take(&paused).await.expect("one").attempt();
    tokio::time::sleep(2 * lease).await;
    assert!(paused.finish(only, printed("late, but first")).await.expect("finish"));
    assert!(take(&other).await.is_none());
    assert_eq!(other.header(id).await.expect("header").expect("there").attempts, 1);
}

#[tokio::test]
async fn a_heartbeat_keeps_all_leases() {
    let server = SocketServer::start(&[]);
    let store = server.store_with_lease(Duration::from_secs(2)).await;
    let mut attempts = vec![];
    for _ in 0..50 {
        create(&store).await;
        attempts.push(take(&store).await.expect("one").attempt());
    }
    store.end_leases().await;
    let before = server.info("stats", "total_commands_processed").await;
    let report = store.heartbeat(attempts.clone()).await.expect("heartbeat");
    assert_eq!(report, HeartbeatReport::default());
    let after = server.info("stats", "total_commands_processed").await;
    // One script that reads and renews each, and what the test itself sends.
    assert!(after - before < 150, "{}", after - before);
    let other = server.store().await;
    assert!(take(&other).await.is_none());
}

#[tokio::test]
async fn eviction_is_refused_at_the_start() {
    let server = SocketServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let settings = RedisSettings::from_url(&server.url()).expect("a URL");
    let error = RedisStore::connect(settings.clone(), RETENTION).await.expect_err("unsafe").to_string();
    assert!(error.contains("allkeys-lru") && error.contains("noeviction"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    RedisStore::connect(settings, RETENTION).await.expect("safe");
}
