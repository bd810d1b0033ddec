//! What every store must do, checked on each: the embedded one, and Redis, whose real server is started here.

mod first_release;
mod interruptions;
mod owners;
mod scheduling;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sandbox_executor::{JsonRequest, Metrics, OutputChunk, RunEvent, RunResult, Verdict};
use sandbox_testing::RedisServer;
use serde_json::json;

use crate::embedded::MOST_SCANNED;
use crate::redis::{LEASE, RedisSettings, RedisStore};
use crate::store::Usage;
use crate::{
    Attempt, Backlog, Created, Delivery, Exceeded, Filter, HeartbeatReport, Job, JobHeader, JobId, JobStatus, JobStore,
    Labels, MOST_FAILURES, NewJob, Offer, Progress, StoreLimits, Turns, Webhook,
};

const RETENTION: Duration = Duration::from_secs(60);

const BOUNDS: StoreLimits = StoreLimits { waiting: 1000, waiting_per_owner: 1000, bytes_per_owner: 1 << 20 };

/// The Redis server of this test process.
fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(|| RedisServer::start(None))
}

/// A store in that server.
async fn redis_store(prefix: &str, retention: Duration) -> RedisStore {
    let settings = RedisSettings::from_address(&redis().address()).expect("an address");
    RedisStore::connect_as(settings, retention, prefix, LEASE).await.expect("connect")
}

/// A store for one test, and its directory or server.
struct Place {
    store: JobStore,
    dir: Option<tempfile::TempDir>,
    prefix: String,
}

impl Place {
    fn file(dir: &tempfile::TempDir) -> JobStore {
        JobStore::embedded(&dir.path().join("jobs.redb"), RETENTION).expect("open")
    }

    async fn redis_store(prefix: &str) -> JobStore {
        JobStore::Redis(redis_store(prefix, RETENTION).await.into())
    }

    async fn both() -> [Self; 2] {
        let dir = tempfile::tempdir().expect("tempdir");
        let prefix = format!("test-{}", JobId::new());
        let file = Self { store: Self::file(&dir), dir: Some(dir), prefix: String::new() };
        [file, Self { store: Self::redis_store(&prefix).await, dir: None, prefix }]
    }

    /// The store as the next server sees it, after this one was killed.
    async fn after_a_kill(self) -> Self {
        let Self { store, dir, prefix } = self;
        drop(store);
        let store = if let Some(dir) = &dir {
            Self::file(dir)
        } else {
            let store = redis_store(&prefix, RETENTION).await;
            store.end_leases().await;
            JobStore::Redis(store.into())
        };
        Self { store, dir, prefix }
    }
}

fn new_job(code: &str, key: Option<&str>) -> NewJob {
    let request = JsonRequest { code: Some(code.to_owned()), ..JsonRequest::default() };
    NewJob { idempotency_key: key.map(str::to_owned), ..NewJob::of(request) }
}

async fn create(store: &JobStore, code: &str) -> JobHeader {
    match store.create(new_job(code, None), BOUNDS).await.expect("create") {
        Created::New(job) => job,
        other => panic!("{other:?}"),
    }
}

/// The result of a run that printed this.
fn succeeded(stdout: &str) -> RunResult {
    let verdict = Verdict::Ok;
    RunResult { verdict, success: true, stdout: stdout.to_owned(), ..RunResult::default() }
}

fn stdout(data: &str) -> RunEvent {
    RunEvent::Stdout(OutputChunk { data: data.to_owned(), ..OutputChunk::default() })
}

/// Takes a job as a server does.
async fn take(store: &JobStore) -> Option<Job> {
    take_with(store, &Labels::default()).await
}

/// Takes a job as a server with labels does: suspects first, and alone.
async fn take_with(store: &JobStore, labels: &Labels) -> Option<Job> {
    store.sweep().await.expect("sweep");
    let turns = store.next_owners(BOUNDS.bytes_per_owner, labels).await.expect("owners");
    let (owner, alone) = match (turns.suspects.first(), turns.owners.first()) {
        (Some(owner), _) => (owner, true),
        (None, Some(owner)) => (owner, false),
        (None, None) => return None,
    };
    store.take(owner.as_deref(), &Offer { labels: labels.clone(), alone }).await.expect("take")
}

async fn get(store: &JobStore, id: JobId) -> Job {
    store.get(id).await.expect("get").expect("there")
}

fn job_of(owner: &str, code: &str) -> NewJob {
    NewJob { owner: Some(owner.to_owned()), ..new_job(code, None) }
}

async fn create_for(store: &JobStore, owner: &str) -> JobId {
    match store.create(job_of(owner, "x"), BOUNDS).await.expect("create") {
        Created::New(job) => job.id,
        other => panic!("{other:?}"),
    }
}

/// Checks that the accounts of an owner match the stored jobs.
async fn assert_exact(store: &JobStore, owner: &str, when: &str) -> Usage {
    let (counted, stored) = (store.usage(owner).await, store.measured(owner).await);
    assert_eq!(counted, stored, "{}, {when}", store.name());
    counted
}

#[tokio::test]
async fn jobs_are_taken_in_the_order_they_came() {
    for place in Place::both().await {
        let store = &place.store;
        let mut ids = vec![];
        for code in ["a", "b", "c"] {
            ids.push(create(store, code).await.id);
        }
        assert_eq!(store.backlog().await.expect("count").waiting, 3, "{}", store.name());
        for id in &ids {
            let job = take(store).await.expect("one");
            assert_eq!((job.id, job.status, job.attempts), (*id, JobStatus::Running, 1));
        }
        assert!(take(store).await.is_none());
        assert_eq!(store.backlog().await.expect("count").waiting, 0);
        let attempt = Attempt { id: ids[0], number: 1 };
        let result = RunResult { metrics: Metrics { cpu_time: 1.5, ..Metrics::default() }, ..succeeded("2") };
        store.finish(attempt, vec![], Arc::new(result.clone())).await.expect("finish");
        let job = get(store, ids[0]).await;
        assert_eq!(job.status, JobStatus::Finished);
        assert_eq!(job.result, Some(result));
        assert_eq!(job.request.code.as_deref(), Some("a"));
        assert!(job.finished_at >= job.started_at && job.started_at.is_some());
    }
}

#[tokio::test]
async fn events_can_be_followed_from_anywhere() {
    for place in Place::both().await {
        let store = &place.store;
        let id = create(store, "x").await.id;
        let mut follower = store.follow(id);
        let attempt = take(store).await.expect("one").attempt();
        for data in ["1", "2"] {
            store.append(attempt, vec![stdout(data)]).await.expect("append");
        }
        follower.changed(Duration::from_millis(200)).await;
        let progress = async || store.progress(id).await.expect("progress");
        let running = Progress { status: JobStatus::Running, attempts: 1, events: 2 };
        assert_eq!(progress().await, Some(running));
        store.finish(attempt, vec![], Arc::new(succeeded(""))).await.expect("finish");
        assert_eq!(progress().await, Some(Progress { status: JobStatus::Finished, events: 3, ..running }));
        assert_eq!(store.progress(JobId::new()).await.expect("progress"), None);
        store.probe().await.expect("writable");
        store.append(attempt, vec![stdout("late")]).await.expect("append");
        let numbers = async |after| -> Vec<u64> {
            store.events(id, after, 100).await.expect("events").iter().map(|event| event.number).collect()
        };
        assert_eq!((numbers(0).await, numbers(2).await, numbers(9).await), (vec![1, 2, 3], vec![3], vec![]));
        assert_eq!(store.events(id, 2, 100).await.expect("events")[0].what.name(), "result");
    }
}

#[tokio::test]
async fn the_last_events_are_recorded_with_the_result() {
    for place in Place::both().await {
        let store = &place.store;
        let (first, second) = (create(store, "a").await.id, create(store, "b").await.id);
        let attempt = take(store).await.expect("one").attempt();
        store.append(attempt, vec![stdout("1")]).await.expect("append");
        let last = || vec![stdout("2"), stdout("3")];
        assert!(store.finish(attempt, last(), Arc::new(succeeded("123"))).await.expect("finish"));
        assert!(!store.finish(attempt, last(), Arc::new(succeeded("again"))).await.expect("finish"), "it has ended");
        let events = store.events(first, 0, 100).await.expect("events");
        let names: Vec<_> = events.iter().map(|event| (event.number, event.what.name())).collect();
        assert_eq!(names, [(1, "stdout"), (2, "stdout"), (3, "stdout"), (4, "result")], "{}", store.name());
        // A cancelled job ends as cancelled even if its run was faster.
        let attempt = take(store).await.expect("one").attempt();
        store.cancel(second).await.expect("cancel");
        assert!(store.finish(attempt, last(), Arc::new(succeeded("23"))).await.expect("finish"));
        let job = get(store, second).await;
        assert_eq!((job.status, job.result), (JobStatus::Cancelled, Some(succeeded("23"))));
        assert_eq!(store.progress(second).await.expect("progress").map(|progress| progress.events), Some(3));
    }
}

#[tokio::test]
async fn the_same_key_makes_the_same_job() {
    for place in Place::both().await {
        let store = &place.store;
        let Created::New(first) = store.create(new_job("a", Some("k")), BOUNDS).await.expect("create") else {
            panic!("new")
        };
        let again = store.create(new_job("a", Some("k")), BOUNDS).await.expect("create");
        assert_eq!(again, Created::Existing(first.clone()));
        assert_eq!(store.create(new_job("b", Some("k")), BOUNDS).await.expect("create"), Created::Conflict(first.id));
        assert_eq!(store.backlog().await.expect("count").waiting, 1);
    }
}

#[tokio::test]
async fn lists_have_pages() {
    for place in Place::both().await {
        let store = &place.store;
        let mut ids = vec![];
        for code in ["0", "1", "2", "3", "4"] {
            ids.push(create(store, code).await.id);
        }
        let first = store.list(Filter::default(), 2, None).await.expect("list");
        assert_eq!(first.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[4], ids[3]]);
        let second = store.list(Filter::default(), 10, first.next).await.expect("list");
        assert_eq!((second.jobs.len(), second.next), (3, None));
        let attempt = take(store).await.expect("one").attempt();
        store.finish(attempt, vec![], Arc::new(succeeded(""))).await.expect("finish");
        let finished =
            store.list(Filter { status: Some(JobStatus::Finished), owner: None }, 10, None).await.expect("list");
        assert_eq!(finished.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[0]]);
        assert_eq!((finished.jobs[0].verdict.as_deref(), finished.jobs[0].language.as_str()), (Some("ok"), "python"));
        let mine = NewJob { owner: Some("me".to_owned()), ..new_job("mine", None) };
        let Created::New(mine) = store.create(mine, BOUNDS).await.expect("create") else { panic!("new") };
        let list = store.list(Filter { status: None, owner: Some("me".to_owned()) }, 10, None).await.expect("list");
        assert_eq!(list.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [mine.id]);
        assert_eq!(get(store, mine.id).await.owner.as_deref(), Some("me"));
    }
}

#[tokio::test]
async fn deliveries_are_retried_until_they_succeed() {
    let lease = Duration::from_secs(60);
    for place in Place::both().await {
        let store = &place.store;
        let webhook = Webhook::new("http://example.com/".to_owned(), "s".repeat(20));
        let new = NewJob { webhook: Some(webhook.clone()), ..new_job("x", None) };
        let Created::New(job) = store.create(new, BOUNDS).await.expect("create") else { panic!("new") };
        create(store, "without a webhook").await;
        assert!(store.take_delivery(lease, vec![]).await.expect("take").is_none(), "it has not ended");
        for _ in 0..2 {
            let attempt = take(store).await.expect("one").attempt();
            store.finish(attempt, vec![], Arc::new(succeeded(""))).await.expect("finish");
        }
        let due = store.take_delivery(lease, vec![]).await.expect("take").expect("one");
        assert_eq!((due.id, &due.webhook), (job.id, &Some(webhook.clone())), "{}", store.name());
        assert!(store.take_delivery(lease, vec![]).await.expect("take").is_none(), "one at a time");
        let failed = Webhook { attempts: 1, error: Some("why".to_owned()), ..webhook.clone() };
        store.note_delivery(job.id, failed.clone(), Some(Duration::from_millis(50))).await.expect("note");
        assert!(store.take_delivery(lease, vec![]).await.expect("take").is_none(), "not yet");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let again = store.take_delivery(Duration::ZERO, vec![]).await.expect("take").expect("one");
        assert_eq!(again.webhook, Some(failed));
        // The server that had it died.
        assert_eq!(store.take_delivery(lease, vec![]).await.expect("take").expect("one").id, job.id);
        let known = Webhook { attempts: 2, status: Delivery::Delivered, ..webhook };
        store.note_delivery(job.id, known.clone(), None).await.expect("note");
        assert!(store.take_delivery(lease, vec![]).await.expect("take").is_none());
        assert_eq!(get(store, job.id).await.webhook, Some(known));
    }
}

#[tokio::test]
async fn quotas_are_spent_and_no_more() {
    for place in Place::both().await {
        let spend = async |who, runs| place.store.spend(who, runs, 10).await.expect("spend");
        assert!(spend("a", 6).await && spend("a", 4).await);
        assert!(!spend("a", 1).await && spend("a", 0).await, "{}", place.store.name());
        assert!(!spend("b", 11).await && spend("b", 10).await, "a refusal takes nothing");
    }
}

#[tokio::test]
async fn jobs_are_forgotten_some_time_after_their_end() {
    let dir = tempfile::tempdir().expect("tempdir");
    let short = Duration::from_secs(1);
    let file = JobStore::embedded(&dir.path().join("jobs.redb"), short).expect("open");
    let other = redis_store(&format!("test-{}", JobId::new()), short).await;
    for store in [file, JobStore::Redis(other.into())] {
        let (ended, waits) = (create(&store, "ended").await.id, create(&store, "waits").await.id);
        let attempt = take(&store).await.expect("one").attempt();
        store.finish(attempt, vec![], Arc::new(succeeded(""))).await.expect("finish");
        store.expire().await.expect("expire");
        assert!(store.get(ended).await.expect("get").is_some());
        tokio::time::sleep(Duration::from_millis(1500)).await;
        store.expire().await.expect("expire");
        assert!(store.get(ended).await.expect("get").is_none(), "{}", store.name());
        assert!(store.events(ended, 0, 100).await.expect("events").is_empty());
        let left = store.list(Filter::default(), 10, None).await.expect("list");
        assert_eq!(left.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [waits]);
    }
}

#[tokio::test]
async fn a_page_ends_where_enough_was_looked_at() {
    const JOBS: usize = 2 * MOST_SCANNED + MOST_SCANNED / 2;
    for place in Place::both().await {
        let store = &place.store;
        for _ in 0..JOBS {
            create_for(store, "a").await;
        }
        let oldest = take(store).await.expect("one");
        create_for(store, "b").await;
        let filter = Filter { status: Some(JobStatus::Running), owner: Some("a".to_owned()) };
        let (mut cursor, mut pages, mut found) = (None, 0, vec![]);
        loop {
            let page = store.list(filter.clone(), 10, cursor).await.expect("list");
            found.extend(page.jobs.iter().map(|job| job.id));
            pages += 1;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (vec![oldest.id], 3), "{}", store.name());
    }
}
