//! What only this store has to do: survive faults of Redis, share work between servers, and connect in every way.

mod faults;
mod measured;
mod topologies;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use sandbox_executor::{JsonRequest, OutputChunk, RunEvent, RunResult, Verdict};
use sandbox_testing::RedisServer;

use super::*;
use crate::model::{
    Backlog, Created, Event, Filter, HeartbeatReport, Job, JobStatus, Labels, NewJob, Offer, StoreLimits, Webhook,
};

const RETENTION: Duration = Duration::from_secs(3600);

const BOUNDS: StoreLimits = StoreLimits { waiting: 1_000_000, waiting_per_owner: 1_000_000, bytes_per_owner: 1 << 40 };

/// Longer than anything that works takes.
const LONG: Duration = Duration::from_secs(30);

/// A store in a server on a socket.
async fn store_in(server: &RedisServer) -> RedisStore {
    store_with_lease(server, LEASE).await
}

async fn store_with_lease(server: &RedisServer, lease: Duration) -> RedisStore {
    let settings = RedisSettings::from_url(&server.socket_url()).expect("a URL");
    RedisStore::connect_as(settings, RETENTION, "sandbox", lease).await.expect("connect")
}

/// Runs a command on the server at a URL. An answer that is not text is empty.
async fn command(url: &str, words: &[&str]) -> Result<String> {
    Ok(redis::from_redis_value(answer(url, words).await?).unwrap_or_default())
}

async fn answer(url: &str, words: &[&str]) -> Result<redis::Value> {
    // A busy machine may be slow.
    let patience =
        redis::AsyncConnectionConfig::new().set_connection_timeout(Some(LONG)).set_response_timeout(Some(LONG));
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&patience).await?;
    let (name, arguments) = words.split_first().expect("a name");
    redis::cmd(name).arg(arguments).query_async(&mut connection).await
}

/// Runs a command on a server on a socket that answers with a list.
async fn list_on(server: &RedisServer, words: &[&str]) -> Vec<String> {
    redis::from_redis_value(answer(&server.socket_url(), words).await.expect("a command")).expect("a list")
}

/// Runs a command on a server on a socket.
async fn on(server: &RedisServer, words: &[&str]) -> String {
    command(&server.socket_url(), words).await.expect("a command")
}

/// A number in `INFO`.
async fn info(server: &RedisServer, section: &str, name: &str) -> u64 {
    let info = on(server, &["INFO", section]).await;
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    line.trim().parse().expect("a number")
}

fn new_job(code: &str) -> NewJob {
    NewJob::of(JsonRequest { code: Some(code.into()), ..JsonRequest::default() })
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
    let server = RedisServer::on_socket(&[]);
    let (one, other) = (store_in(&server).await, store_in(&server).await);
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
async fn servers_without_the_index_of_ages_may_share_the_store() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let (old, new) = (create(&store).await, create(&store).await);
    // A server without the index queued one job, and took another.
    let index = "{sandbox}:ready_since";
    on(&server, &["DEL", index]).await;
    on(&server, &["ZADD", index, "1", &JobId::new().to_string()]).await;
    on(&server, &["ZADD", index, "2", &new.to_string()]).await;
    let taken = [take(&store).await.map(|job| job.id), take(&store).await.map(|job| job.id)];
    assert_eq!(taken, [Some(old), Some(new)]);
    store.expire().await.expect("expire");
    assert_eq!(store.backlog().await.expect("backlog"), Backlog::default());
    assert_eq!(on(&server, &["EXISTS", index]).await, "0", "nothing is left");
}

#[tokio::test]
async fn a_time_to_start_is_one_of_the_clock_of_redis() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let soon = crate::model::now() + 60.0;
    // The clock of one server is minutes ahead, so that the time seems to be over; that of another is behind.
    let ahead = NewJob { delay: Some(Duration::ZERO), not_before: Some(soon), ..new_job("ahead") };
    let behind = NewJob { delay: Some(Duration::from_secs(600)), not_before: Some(1e9), ..new_job("behind") };
    let Created::New(ahead) = store.create(ahead, BOUNDS).await.expect("create") else { panic!("new") };
    let Created::New(behind) = store.create(behind, BOUNDS).await.expect("create") else { panic!("new") };
    assert!(ahead.delayed && ahead.not_before.is_some_and(|time| (time - soon).abs() < 0.01), "{ahead:?}");
    assert!(!behind.delayed, "{behind:?}");
    assert_eq!(take(&store).await.map(|job| job.id), Some(behind.id));
    assert!(take(&store).await.is_none(), "the other one is early");
}

#[tokio::test]
async fn a_late_result_of_a_paused_server_is_refused() {
    let server = RedisServer::on_socket(&[]);
    let lease = Duration::from_millis(100);
    let (paused, other) = (store_with_lease(&server, lease).await, store_with_lease(&server, LONG).await);
    other.link.make_older(LONG);
    let id = create(&paused).await;
    let first = take(&paused).await.expect("one").attempt();
    assert!(take(&other).await.is_none(), "it is leased");
    tokio::time::sleep(2 * lease).await;
    let second = take(&other).await.expect("the lease has ended").attempt();
    assert_eq!((second.id, second.number), (id, 2));
    let report = paused.heartbeat(vec![first]).await.expect("heartbeat");
    assert_eq!(report, HeartbeatReport { cancelled: vec![], lost: vec![id] });
    assert!(!paused.append(first, output("late")).await.expect("append"));
    assert!(!paused.finish(first, vec![], printed("late")).await.expect("finish"));
    assert!(other.finish(second, vec![], printed("right")).await.expect("finish"));
    assert!(!paused.finish(first, vec![], printed("late")).await.expect("finish"));
    let job = other.get(id).await.expect("get").expect("there");
    assert_eq!((job.status, job.result.map(|result| result.stdout)), (JobStatus::Finished, Some("right".to_owned())));
    // A result that arrives late but first is the job's.
    let id = create(&paused).await;
    let only = take(&paused).await.expect("one").attempt();
    tokio::time::sleep(2 * lease).await;
    assert!(paused.finish(only, vec![], printed("late, but first")).await.expect("finish"));
    assert!(take(&other).await.is_none());
    assert_eq!(other.header(id).await.expect("header").expect("there").attempts, 1);
}

#[tokio::test]
async fn a_heartbeat_keeps_all_leases() {
    let server = RedisServer::on_socket(&[]);
    let store = store_with_lease(&server, Duration::from_secs(2)).await;
    let mut attempts = vec![];
    for _ in 0..50 {
        create(&store).await;
        attempts.push(take(&store).await.expect("one").attempt());
    }
    store.end_leases().await;
    let before = info(&server, "stats", "total_commands_processed").await;
    let report = store.heartbeat(attempts.clone()).await.expect("heartbeat");
    assert_eq!(report, HeartbeatReport::default());
    let after = info(&server, "stats", "total_commands_processed").await;
    // One script that reads and renews each, and what the test itself sends.
    assert!(after - before < 150, "{}", after - before);
    let other = store_in(&server).await;
    assert!(take(&other).await.is_none());
}

#[tokio::test]
async fn eviction_is_refused_at_the_start() {
    let server = RedisServer::on_socket(&["--maxmemory-policy", "allkeys-lru"]);
    let settings = RedisSettings::from_url(&server.socket_url()).expect("a URL");
    let error = RedisStore::connect(settings.clone(), RETENTION).await.expect_err("unsafe").to_string();
    assert!(error.contains("allkeys-lru") && error.contains("noeviction"), "{error}");
    on(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    RedisStore::connect(settings, RETENTION).await.expect("safe");
}

#[tokio::test]
async fn events_whose_answer_was_lost_are_not_stored_twice() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let id = create(&store).await;
    let attempt = take(&store).await.expect("one").attempt();
    let batch = |texts: &[&str]| texts.iter().flat_map(|text| output(text)).collect::<Vec<_>>();
    let stored = async || -> Vec<String> {
        let text = |event: Event| match event.what {
            RunEvent::Stdout(chunk) => chunk.data,
            other => panic!("{other:?}"),
        };
        store.events(id, 0, 100).await.expect("events").into_iter().map(text).collect()
    };
    assert!(store.append(attempt, batch(&["a"])).await.expect("append"));
    let before = *store.appends().get(&id).expect("known");
    assert!(store.append(attempt, batch(&["b", "c"])).await.expect("append"));
    // As if the answer to the second batch had been lost; the third adds an event to it. The answer to that one is lost, too.
    for _ in 0..2 {
        store.appends().insert(id, before);
        assert!(store.append(attempt, batch(&["b", "c", "d"])).await.expect("append"));
        assert_eq!(stored().await, ["a", "b", "c", "d"]);
    }
    assert!(store.append(attempt, batch(&["e", "f"])).await.expect("append"));
    // As if the second batch arrived only now.
    store.appends().insert(id, before);
    assert!(store.append(attempt, batch(&["b", "c"])).await.expect("append"));
    assert_eq!(stored().await, ["a", "b", "c", "d", "e", "f"]);
    assert!(store.finish(attempt, vec![], printed("")).await.expect("finish"));
    assert!(store.appends().is_empty());
}

#[tokio::test]
async fn a_creation_that_is_sent_twice_creates_one_job() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let (id, call) = store.creation(&new_job("x").into(), "", BOUNDS);
    let send = async || -> Vec<String> {
        call.invoke_async(&mut store.connection().await.expect("connect")).await.expect("create")
    };
    let first = send().await;
    assert_eq!(send().await, first);
    assert_eq!(store.backlog().await.expect("count").waiting, 1);
    let attempt = take(&store).await.expect("one").attempt();
    assert_eq!(attempt.id, id);
    send().await;
    assert!(store.finish(attempt, vec![], printed("once")).await.expect("finish"));
    send().await;
    assert!(take(&store).await.is_none(), "it does not run again");
    assert_eq!(store.backlog().await.expect("count").waiting, 0);
    let job = store.get(id).await.expect("get").expect("there");
    assert_eq!((job.status, job.attempts), (JobStatus::Finished, 1));
}

#[tokio::test]
async fn the_late_end_of_an_attempt_does_not_disturb_the_next_one() {
    let server = RedisServer::on_socket(&[]);
    let store = store_in(&server).await;
    let id = create(&store).await;
    let first = take(&store).await.expect("one").attempt();
    assert!(store.put_back(first).await.expect("put back"));
    let second = take(&store).await.expect("the same").attempt();
    assert_eq!((second.id, second.number), (id, 2));
    // As if the answer to the first one had been lost.
    assert!(!store.put_back(first).await.expect("put back"));
    assert!(!store.finish(first, vec![], printed("")).await.expect("finish"));
    assert!(store.heartbeat(vec![first]).await.expect("heartbeat").lost.contains(&id));
    assert_eq!(store.appends().get(&id).map(|state| state.attempt), Some(2));
}

#[tokio::test]
async fn a_retry_finds_its_job_after_an_upgrade_from_the_first_release() {
    const EVENTS: usize = 10_000;
    let server = RedisServer::on_socket(&[]);
    let new = NewJob { idempotency_key: Some("ann/k".to_owned()), owner: Some("ann".to_owned()), ..new_job("x") };
    let (id, digest) = (JobId::new(), sandbox_base::random::hex(&new.digest()));
    let (job, events) = (format!("sandbox:job:{id}"), format!("sandbox:events:{id}"));
    let mut pipe = redis::pipe();
    pipe.cmd("HSET").arg(&job).arg(&["status", "finished", "attempts", "1", "created_at", "1.7e9", "owner", "ann"]);
    pipe.cmd("HSET").arg(&job).arg("request").arg(json(&new.request)).arg("result").arg(json(&*printed("old")));
    pipe.cmd("HSET").arg(&job).arg(&["finished_at", "1.7e9", "verdict", "ok", "language", "python"]);
    pipe.cmd("ZADD").arg("sandbox:jobs").arg(0).arg(id.to_string());
    pipe.cmd("SET").arg("sandbox:key:ann/k").arg(format!("{id} {digest}"));
    // More than a script can have as results.
    for number in 1..EVENTS {
        pipe.cmd("XADD").arg(&events).arg(format!("{number}-0")).arg("what").arg(json(&output("x")[0]));
    }
    pipe.cmd("XADD").arg(&events).arg(format!("{EVENTS}-0")).arg("what").arg(r#"{"event":"result"}"#);
    let client = redis::Client::open(server.socket_url()).expect("a URL");
    let patience = redis::AsyncConnectionConfig::new().set_response_timeout(Some(LONG));
    let mut connection = client.get_multiplexed_async_connection_with_config(&patience).await.expect("connect");
    pipe.exec_async(&mut connection).await.expect("write");
    let store = store_in(&server).await;
    let Created::Existing(header) = store.create(new, BOUNDS).await.expect("create") else { panic!("it exists") };
    assert_eq!((header.id, header.status, header.last_event), (id, JobStatus::Finished, EVENTS as u64));
    let last = store.events(id, EVENTS as u64 - 1, 10).await.expect("events");
    assert!(matches!(&last[..], [Event { what: RunEvent::Result { result }, .. }] if result.stdout == "old"));
    let left = list_on(&server, &["KEYS", "sandbox:*"]).await;
    assert!(left.is_empty(), "nothing is left of the first release: {left:?}");
}
