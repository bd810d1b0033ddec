//! What every store must do, checked on each: the embedded one, and Redis, whose real server is started here.

use std::sync::OnceLock;
use std::time::Duration;

use sandbox_executor::{JsonRequest, Metrics, OutputChunk, RunEvent, RunResult, Verdict};
use sandbox_testing::RedisServer;
use serde_json::json;

use crate::embedded::MOST_SCANNED;
use crate::redis::{LEASE, RedisStore};
use crate::store::Usage;
use crate::{
    Attempt, Created, Delivery, Exceeded, Filter, Job, JobId, JobStatus, JobStore, NewJob, Progress, StoreLimits,
    Webhook,
};

const RETENTION: Duration = Duration::from_secs(60);

const BOUNDS: StoreLimits = StoreLimits { waiting: 1000, waiting_per_owner: 1000, bytes_per_owner: 1 << 20 };

/// The Redis server of this test process.
fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(|| RedisServer::start(None))
}

/// A store for one test, and what it lives in.
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
        let store = RedisStore::connect_as(&redis().address(), None, 0, RETENTION, prefix).await.expect("connect");
        JobStore::Redis(store.into())
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
            tokio::time::sleep(LEASE + Duration::from_millis(200)).await;
            Self::redis_store(&prefix).await
        };
        Self { store, dir, prefix }
    }
}

fn new_job(code: &str, key: Option<&str>) -> NewJob {
    let request = JsonRequest { code: Some(code.to_owned()), ..JsonRequest::default() };
    NewJob { request, idempotency_key: key.map(str::to_owned), owner: None, webhook: None, per_day: None }
}

async fn create(store: &JobStore, code: &str) -> Job {
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
    let owners = store.next_owners(BOUNDS.bytes_per_owner).await.expect("owners");
    match owners.first() {
        Some(owner) => store.take(owner.as_deref()).await.expect("take"),
        None => None,
    }
}

async fn get(store: &JobStore, id: JobId) -> Job {
    store.get(id).await.expect("get").expect("there")
}

#[tokio::test]
async fn jobs_are_taken_in_the_order_they_came() {
    for place in Place::both().await {
        let store = &place.store;
        let mut ids = vec![];
        for code in ["a", "b", "c"] {
            ids.push(create(store, code).await.id);
        }
        assert_eq!(store.waiting().await.expect("count"), 3, "{}", store.name());
        for id in &ids {
            let job = take(store).await.expect("one");
            assert_eq!((job.id, job.status, job.attempts), (*id, JobStatus::Running, 1));
        }
        assert!(take(store).await.is_none());
        assert_eq!(store.waiting().await.expect("count"), 0);
        let run = Attempt { id: ids[0], attempt: 1 };
        let result = RunResult { metrics: Metrics { cpu_time: 1.5, ..Metrics::default() }, ..succeeded("2") };
        store.finish(run, false, result.clone()).await.expect("finish");
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
        let run = take(store).await.expect("one").run();
        for data in ["1", "2"] {
            store.append(run, stdout(data)).await.expect("append");
        }
        follower.changed(Duration::from_millis(200)).await;
        let progress = async || store.progress(id).await.expect("progress");
        let running = Progress { status: JobStatus::Running, attempts: 1, events: 2 };
        assert_eq!(progress().await, Some(running));
        store.finish(run, false, succeeded("")).await.expect("finish");
        assert_eq!(progress().await, Some(Progress { status: JobStatus::Finished, events: 3, ..running }));
        assert_eq!(store.progress(JobId::new()).await.expect("progress"), None);
        store.probe().await.expect("writable");
        store.append(run, stdout("late")).await.expect("append");
        let numbers = async |after| -> Vec<u64> {
            store.events(id, after, 100).await.expect("events").iter().map(|event| event.number).collect()
        };
        assert_eq!((numbers(0).await, numbers(2).await, numbers(9).await), (vec![1, 2, 3], vec![3], vec![]));
        assert_eq!(store.events(id, 2, 100).await.expect("events")[0].what.name(), "result");
    }
}

#[tokio::test]
async fn a_kill_loses_no_job() {
    for place in Place::both().await {
        let running = create(&place.store, "running").await.id;
        let queued = create(&place.store, "queued").await.id;
        let first = take(&place.store).await.expect("one").run();
        place.store.append(first, stdout("")).await.expect("append");
        let place = place.after_a_kill().await;
        let store = &place.store;
        let mut taken = vec![];
        for _ in 0..2 {
            taken.push(take(store).await.expect("one"));
        }
        taken.sort_by_key(|job| job.id);
        assert_eq!((taken[0].id, taken[0].attempts, taken[1].id), (running, 2, queued), "{}", store.name());
        assert!(store.events(running, 0, 100).await.expect("events").is_empty(), "it begins anew");
        // Whoever was thought dead has no say any more.
        store.append(first, stdout("late")).await.expect("append");
        store.finish(first, false, succeeded("late")).await.expect("finish");
        assert_eq!(get(store, running).await.status, JobStatus::Running);
        store.finish(taken[0].run(), false, succeeded("right")).await.expect("finish");
        assert_eq!(get(store, running).await.result, Some(succeeded("right")));
    }
}

#[tokio::test]
async fn a_job_that_kills_its_servers_is_given_up() {
    for mut place in Place::both().await {
        let id = create(&place.store, "bomb").await.id;
        for attempt in 1..=3 {
            let job = take(&place.store).await.expect("one");
            assert_eq!((job.id, job.attempts), (id, attempt));
            place = place.after_a_kill().await;
        }
        assert!(take(&place.store).await.is_none());
        let job = get(&place.store, id).await;
        assert_eq!((job.status, job.attempts), (JobStatus::Finished, 3));
        assert_eq!(job.result.expect("a result").verdict, Verdict::InternalError);
    }
}

#[tokio::test]
async fn cancelled_jobs_never_start_or_are_told() {
    for place in Place::both().await {
        let store = &place.store;
        let id = create(store, "x").await.id;
        assert_eq!(store.cancel(id).await.expect("cancel").map(|job| job.status), Some(JobStatus::Cancelled));
        assert!(take(store).await.is_none());
        assert_eq!(store.events(id, 0, 100).await.expect("events")[0].what, RunEvent::Cancelled);
        let id = create(store, "y").await.id;
        let run = take(store).await.expect("one").run();
        assert_eq!(store.cancel(id).await.expect("cancel").map(|job| job.status), Some(JobStatus::Running));
        let told = store.heartbeat(&[run]).await.expect("heartbeat");
        assert!(told == [id] || store.name() == "embedded", "whoever runs it elsewhere hears of it");
        assert!(store.cancel(JobId::new()).await.expect("cancel").is_none());
        store.put_back(run).await.expect("put back");
        let again = take(store).await.expect("one");
        assert_eq!((again.id, again.attempts), (id, 1), "its own server's end is not its fault");
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
        assert_eq!(store.waiting().await.expect("count"), 1);
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
        let run = take(store).await.expect("one").run();
        store.finish(run, false, succeeded("")).await.expect("finish");
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
async fn somebody_is_told_of_the_end_until_they_know() {
    let lease = Duration::from_secs(60);
    for place in Place::both().await {
        let store = &place.store;
        let webhook = Webhook::new("http://example.com/".to_owned(), "s".repeat(20));
        let new = NewJob { webhook: Some(webhook.clone()), ..new_job("x", None) };
        let Created::New(job) = store.create(new, BOUNDS).await.expect("create") else { panic!("new") };
        create(store, "nobody is told of this one").await;
        assert!(store.take_delivery(lease, vec![]).await.expect("take").is_none(), "it has not ended");
        for _ in 0..2 {
            let run = take(store).await.expect("one").run();
            store.finish(run, false, succeeded("")).await.expect("finish");
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
        // Whoever had it died.
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
    let address = redis().address();
    let prefix = format!("test-{}", JobId::new());
    let other = RedisStore::connect_as(&address, None, 0, short, &prefix).await.expect("connect");
    for store in [file, JobStore::Redis(other.into())] {
        let (ended, waits) = (create(&store, "ended").await.id, create(&store, "waits").await.id);
        let run = take(&store).await.expect("one").run();
        store.finish(run, false, succeeded("")).await.expect("finish");
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

fn job_of(owner: &str, code: &str) -> NewJob {
    NewJob { owner: Some(owner.to_owned()), ..new_job(code, None) }
}

async fn create_for(store: &JobStore, owner: &str) -> JobId {
    match store.create(job_of(owner, "x"), BOUNDS).await.expect("create") {
        Created::New(job) => job.id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn owners_are_served_in_turn() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["a", "a", "a", "b", "c", "c"] {
            create_for(store, owner).await;
        }
        create(store, "of nobody").await;
        let mut order = vec![];
        while let Some(job) = take(store).await {
            order.push(job.owner.unwrap_or_default());
        }
        assert_eq!(order, ["", "a", "b", "c", "a", "c", "a"], "{}", store.name());
    }
}

#[tokio::test]
async fn the_owner_with_the_fewest_running_jobs_is_served_next() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["slow", "slow", "slow", "quick", "quick", "quick"] {
            create_for(store, owner).await;
        }
        let mut order = vec![];
        while let Some(job) = take(store).await {
            order.push(job.owner.clone().unwrap_or_default());
            if job.owner.as_deref() == Some("quick") {
                store.finish(job.run(), false, succeeded("")).await.expect("finish");
            }
        }
        assert_eq!(order, ["quick", "slow", "quick", "quick", "slow", "slow"], "{}", store.name());
        assert!(store.take(Some("quick")).await.expect("take").is_none(), "it has no more");
    }
}

#[tokio::test]
async fn a_job_beyond_a_bound_is_refused() {
    let refused = |exceeded| Created::Refused(exceeded);
    for place in Place::both().await {
        let store = &place.store;
        let try_for =
            async |owner: &str, code: &str, bounds| store.create(job_of(owner, code), bounds).await.expect("create");
        for _ in 0..2 {
            create_for(store, "a").await;
        }
        let few = StoreLimits { waiting: 3, waiting_per_owner: 2, ..BOUNDS };
        assert_eq!(try_for("a", "x", few).await, refused(Exceeded::WaitingPerOwner), "{}", store.name());
        assert!(matches!(try_for("b", "x", few).await, Created::New(_)));
        assert_eq!(try_for("b", "x", few).await, refused(Exceeded::Waiting));
        let small = StoreLimits { bytes_per_owner: 2000, ..BOUNDS };
        assert_eq!(try_for("a", &"x".repeat(2000), small).await, refused(Exceeded::BytesPerOwner));
        assert!(matches!(try_for("c", &"x".repeat(500), small).await, Created::New(_)));
        assert_eq!(store.waiting().await.expect("count"), 4, "what is refused is not stored");
        let once = NewJob { per_day: Some(1), ..job_of("d", "x") };
        assert!(matches!(store.create(once.clone(), BOUNDS).await.expect("create"), Created::New(_)));
        assert_eq!(store.create(once, BOUNDS).await.expect("create"), refused(Exceeded::PerDay));
    }
}

#[tokio::test]
async fn a_retry_is_neither_refused_nor_charged() {
    for place in Place::both().await {
        let store = &place.store;
        let new = NewJob { idempotency_key: Some("a/k".to_owned()), per_day: Some(2), ..job_of("a", "x") };
        let Created::New(first) = store.create(new.clone(), BOUNDS).await.expect("create") else { panic!("new") };
        let full = StoreLimits { waiting: 0, waiting_per_owner: 0, bytes_per_owner: 0 };
        for _ in 0..3 {
            let again = store.create(new.clone(), full).await.expect("create");
            assert_eq!(again, Created::Existing(first.clone()), "{}", store.name());
        }
        assert!(store.spend("a", 1, 2).await.expect("spend"), "one of two is left");
        assert!(!store.spend("a", 1, 2).await.expect("spend"));
    }
}

#[tokio::test]
async fn an_owner_whose_results_exceed_its_bytes_starts_no_more_jobs() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["a", "a", "b"] {
            create_for(store, owner).await;
        }
        let run = take(store).await.expect("one").run();
        store.finish(run, false, succeeded(&"x".repeat(10_000))).await.expect("finish");
        let owners = async |most| store.next_owners(most).await.expect("owners");
        let both = owners(100_000).await;
        assert_eq!(both, [Some("b".to_owned()), Some("a".to_owned())], "{}", store.name());
        assert_eq!(owners(10_000).await, [Some("b".to_owned())]);
    }
}

/// Checks that what the store says an owner has is what is stored.
async fn assert_exact(store: &JobStore, owner: &str, when: &str) -> Usage {
    let (counted, stored) = (store.usage(owner).await, store.measured(owner).await);
    assert_eq!(counted, stored, "{}, {when}", store.name());
    counted
}

#[tokio::test]
async fn usage_is_exact_after_every_change() {
    for place in Place::both().await {
        let store = &place.store;
        let webhook = Webhook::new("http://example.com/".to_owned(), "s".repeat(20));
        let with_webhook = NewJob { webhook: Some(webhook.clone()), ..job_of("a", "told") };
        let Created::New(told) = store.create(with_webhook, BOUNDS).await.expect("create") else { panic!("new") };
        for _ in 0..5 {
            create_for(store, "a").await;
        }
        create_for(store, "b").await;
        let usage = assert_exact(store, "a", "created").await;
        assert_eq!((usage.waiting, usage.running), (6, 0));
        let takes = async || store.take(Some("a")).await.expect("take").expect("one").run();
        let (first, second, third) = (takes().await, takes().await, takes().await);
        for run in [first, second, third] {
            store.append(run, stdout(&"é".repeat(100))).await.expect("append");
        }
        let usage = assert_exact(store, "a", "running").await;
        assert_eq!((usage.waiting, usage.running), (3, 3));
        store.finish(first, false, succeeded(&"é".repeat(100))).await.expect("finish");
        store.finish(first, false, succeeded("twice")).await.expect("finish");
        assert_exact(store, "a", "finished").await;
        let failed = Webhook { attempts: 1, error: Some("why".to_owned()), ..webhook };
        store.note_delivery(told.id, failed, Some(Duration::from_secs(60))).await.expect("note");
        assert_exact(store, "a", "told").await;
        store.put_back(second).await.expect("put back");
        assert_exact(store, "a", "put back").await;
        let waiting = create_for(store, "a").await;
        store.cancel(waiting).await.expect("cancel");
        store.cancel(waiting).await.expect("cancel");
        let usage = assert_exact(store, "a", "cancelled").await;
        assert_eq!((usage.waiting, usage.running), (4, 1));
        let place = place.after_a_kill().await;
        let store = &place.store;
        store.next_owners(BOUNDS.bytes_per_owner).await.expect("owners");
        let usage = assert_exact(store, "a", "killed").await;
        assert_eq!((usage.waiting, usage.running), (5, 0), "{}", store.name());
        assert_eq!(assert_exact(store, "b", "killed").await.waiting, 1);
    }
}

#[tokio::test]
async fn nothing_is_left_of_an_owner_whose_jobs_are_forgotten() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = JobStore::embedded(&dir.path().join("jobs.redb"), Duration::ZERO).expect("open");
    let address = redis().address();
    let prefix = format!("test-{}", JobId::new());
    let other = RedisStore::connect_as(&address, None, 0, Duration::ZERO, &prefix).await.expect("connect");
    for store in [file, JobStore::Redis(other.into())] {
        let webhook = Some(Webhook::new("http://example.com/".to_owned(), "s".repeat(20)));
        let new = NewJob { webhook, idempotency_key: Some("k".to_owned()), ..job_of("a", "x") };
        let Created::New(first) = store.create(new.clone(), BOUNDS).await.expect("create") else { panic!("new") };
        let run = take(&store).await.expect("one").run();
        store.append(run, stdout("")).await.expect("append");
        store.finish(run, false, succeeded(&"x".repeat(1000))).await.expect("finish");
        let second = create_for(&store, "a").await;
        store.cancel(second).await.expect("cancel");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(store.expire().await.expect("expire"), 2, "{}", store.name());
        assert_eq!(store.usage("a").await, Usage::default(), "{}", store.name());
        assert!(store.take_delivery(Duration::ZERO, vec![]).await.expect("take").is_none());
        let Created::New(again) = store.create(new, BOUNDS).await.expect("create") else { panic!("its key is free") };
        assert_ne!(again.id, first.id);
        // A full store makes room by itself if there is something to forget.
        let run = take(&store).await.expect("one").run();
        store.finish(run, false, succeeded(&"x".repeat(2000))).await.expect("finish");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let small = StoreLimits { bytes_per_owner: 2000, ..BOUNDS };
        assert!(matches!(store.create(job_of("a", "x"), small).await.expect("create"), Created::New(_)));
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

#[tokio::test]
async fn webhooks_of_some_owners_can_be_left_out() {
    for place in Place::both().await {
        let store = &place.store;
        for owner in ["a", "a", "b"] {
            let webhook = Some(Webhook::new("http://example.com/".to_owned(), "s".repeat(20)));
            store.create(NewJob { webhook, ..job_of(owner, "x") }, BOUNDS).await.expect("create");
        }
        while let Some(job) = take(store).await {
            store.finish(job.run(), false, succeeded("")).await.expect("finish");
        }
        let due = async |without: &[&str]| {
            let without = without.iter().map(|owner| Some((*owner).to_owned())).collect();
            let job = store.take_delivery(Duration::from_secs(60), without).await.expect("take");
            job.and_then(|job| job.owner).unwrap_or_default()
        };
        assert_eq!(due(&["a"]).await, "b", "{}", store.name());
        assert_eq!((due(&["a"]).await, due(&[]).await, due(&["b"]).await), (String::new(), "a".into(), "a".into()));
        assert_eq!(due(&[]).await, "");
    }
}

/// A job as 0.1.0 stored it.
fn old_job(id: JobId, status: &str, owner: &str) -> serde_json::Value {
    let result = if status == "finished" { json!({"verdict": "ok"}) } else { json!(null) };
    json!({
        "id": id, "status": status, "created_at": 1.7e9, "started_at": null,
        "finished_at": if status == "finished" { json!(crate::model::now()) } else { json!(null) },
        "attempts": u32::from(status != "queued"), "request": {"language": "python", "code": "print(1)"},
        "result": result, "owner": owner,
        "webhook": {"url": "http://example.com/", "secret": "s".repeat(20), "status": "pending", "attempts": 0}
    })
}

fn old_file(path: &std::path::Path, jobs: &[(JobId, &str)]) {
    use redb::{Database, TableDefinition};
    const JOBS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("jobs");
    const QUEUE: TableDefinition<'_, u128, ()> = TableDefinition::new("queue");
    const EVENTS: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("events");
    const DELIVERIES: TableDefinition<'_, u128, u64> = TableDefinition::new("deliveries");
    let database = Database::create(path).expect("make");
    let transaction = database.begin_write().expect("begin");
    for (id, status) in jobs {
        let bytes = old_job(*id, status, "a").to_string();
        transaction.open_table(JOBS).expect("open").insert(id.number(), bytes.as_bytes()).expect("insert");
        match *status {
            "queued" => drop(transaction.open_table(QUEUE).expect("open").insert(id.number(), ()).expect("insert")),
            "finished" => {
                let mut events = transaction.open_table(EVENTS).expect("open");
                events.insert((id.number(), 1), br#"{"event": "result"}"#.as_slice()).expect("insert");
                transaction.open_table(DELIVERIES).expect("open").insert(id.number(), 0).expect("insert");
            }
            _ => {}
        }
    }
    transaction.commit().expect("commit");
}

/// Runs a Redis command.
async fn command(connection: &mut ::redis::aio::MultiplexedConnection, words: &[&str]) -> String {
    let (name, arguments) = words.split_first().expect("a name");
    let answer: ::redis::Value = ::redis::cmd(name).arg(arguments).query_async(connection).await.expect(name);
    ::redis::from_redis_value(answer).unwrap_or_default()
}

async fn old_redis(prefix: &str, jobs: &[(JobId, &str)]) {
    let client = ::redis::Client::open(format!("redis://{}/0", redis().address())).expect("address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("connect");
    let (queue, all, due) = (format!("{prefix}:queue"), format!("{prefix}:jobs"), format!("{prefix}:deliveries"));
    command(&mut connection, &["XGROUP", "CREATE", &queue, "workers", "0", "MKSTREAM"]).await;
    for (id, status) in jobs {
        let (id, old) = (id.to_string(), old_job(*id, status, "a"));
        let (job, attempts) = (format!("{prefix}:job:{id}"), old["attempts"].to_string());
        let (request, webhook) = (old["request"].to_string(), old["webhook"].to_string());
        command(&mut connection, &["HSET", &job, "status", status, "attempts", &attempts, "created_at", "1.7e9"]).await;
        command(&mut connection, &["HSET", &job, "request", &request, "language", "python", "owner", "a"]).await;
        command(&mut connection, &["HSET", &job, "webhook", &webhook]).await;
        command(&mut connection, &["ZADD", &all, "0", &id]).await;
        if *status == "finished" {
            let (at, result) = (old["finished_at"].to_string(), old["result"].to_string());
            command(&mut connection, &["HSET", &job, "finished_at", &at, "result", &result, "verdict", "ok"]).await;
            let events = format!("{prefix}:events:{id}");
            command(&mut connection, &["XADD", &events, "1-0", "what", r#"{"event": "result"}"#]).await;
            command(&mut connection, &["ZADD", &due, "0", &id]).await;
            continue;
        }
        let entry = command(&mut connection, &["XADD", &queue, "*", "id", &id]).await;
        command(&mut connection, &["HSET", &job, "entry", &entry]).await;
        if *status == "running" {
            // By a server that has been silent for a minute.
            let read = ["XREADGROUP", "GROUP", "workers", "dead", "STREAMS", &queue, ">"];
            command(&mut connection, &read).await;
            let claim = ["XCLAIM", &queue, "workers", "dead", "0", &entry, "IDLE", "60000", "JUSTID"];
            command(&mut connection, &claim).await;
        }
    }
}

#[tokio::test]
async fn jobs_of_the_first_release_are_taken_over() {
    let jobs: Vec<(JobId, &str)> = ["finished", "running", "queued", "queued"].map(|s| (JobId::new(), s)).into();
    let dir = tempfile::tempdir().expect("tempdir");
    old_file(&dir.path().join("jobs.redb"), &jobs);
    let prefix = format!("test-{}", JobId::new());
    old_redis(&prefix, &jobs).await;
    for store in [Place::file(&dir), Place::redis_store(&prefix).await] {
        let usage = assert_exact(&store, "a", "taken over").await;
        assert_eq!((usage.waiting, usage.running), (3, 0), "{}", store.name());
        let list = store.list(Filter { status: None, owner: Some("a".to_owned()) }, 10, None).await.expect("list");
        assert_eq!(list.jobs.len(), 4);
        let due = store.take_delivery(Duration::from_secs(60), vec![]).await.expect("take").expect("one");
        assert_eq!(due.id, jobs[0].0);
        for (id, status) in &jobs[1..] {
            let job = take(&store).await.expect("one");
            let attempts = if *status == "running" { 2 } else { 1 };
            assert_eq!((job.id, job.attempts, job.owner.as_deref()), (*id, attempts, Some("a")), "{}", store.name());
            store.finish(job.run(), false, succeeded("")).await.expect("finish");
        }
        assert!(take(&store).await.is_none());
        assert_exact(&store, "a", "finished").await;
    }
}

#[tokio::test]
async fn a_server_of_the_first_release_may_go_on_queueing() {
    let prefix = format!("test-{}", JobId::new());
    let store = Place::redis_store(&prefix).await;
    create_for(&store, "a").await;
    let late = JobId::new();
    old_redis(&prefix, &[(late, "queued")]).await;
    store.expire().await.expect("expire");
    let taken = [take(&store).await.expect("one").id, take(&store).await.expect("one").id];
    assert!(taken.contains(&late));
    assert_exact(&store, "a", "taken over").await;
}
