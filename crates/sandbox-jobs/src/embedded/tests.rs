//! What only the embedded store must do: survive kills, power cuts and full disks, keep its format, and share commits.

use std::collections::HashSet;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redb::{Database, StorageBackend};
use sandbox_executor::{JsonRequest, OutputChunk, Verdict};

use super::tables::{ACCOUNTS, META, OwnerUsage, RESULTS};
use super::*;
use crate::header::OVERHEAD;

const RETENTION: Duration = Duration::from_secs(600);

const LIMITS: StoreLimits = StoreLimits { waiting: 1 << 20, waiting_per_owner: 1 << 20, bytes_per_owner: 1 << 40 };

/// One change of a disk.
#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Resize(u64),
    Sync,
}

/// A disk that fills up like a real one: blocks that were written once can be written again, new ones need room.
#[derive(Debug, Default)]
struct TestDisk {
    bytes: Mutex<Vec<u8>>,
    blocks: Mutex<HashSet<u64>>,
    /// How many blocks there can be.
    capacity: Mutex<Option<usize>>,
    log: Mutex<Vec<Change>>,
    logs: AtomicBool,
}

const BLOCK: u64 = 4096;

impl TestDisk {
    fn of(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(bytes), ..Self::default() })
    }

    fn note(&self, change: Change) {
        if self.logs.load(Ordering::SeqCst) {
            lock(&self.log).push(change);
        }
    }
}

#[derive(Debug)]
struct TestBackend(Arc<TestDisk>);

impl StorageBackend for TestBackend {
    fn len(&self) -> std::io::Result<u64> {
        Ok(lock(&self.0.bytes).len() as u64)
    }

    fn read(&self, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
        let start = usize::try_from(offset).expect("offset");
        Ok(lock(&self.0.bytes)[start..start + len].to_vec())
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.note(Change::Resize(len));
        lock(&self.0.bytes).resize(usize::try_from(len).expect("length"), 0);
        Ok(())
    }

    fn sync_data(&self, _: bool) -> std::io::Result<()> {
        self.0.note(Change::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        let needed = offset / BLOCK..=(offset + data.len() as u64 - 1) / BLOCK;
        let mut blocks = lock(&self.0.blocks);
        for block in needed {
            if !blocks.contains(&block) && lock(&self.0.capacity).is_some_and(|most| blocks.len() >= most) {
                return Err(Error::from(ErrorKind::StorageFull));
            }
            blocks.insert(block);
        }
        drop(blocks);
        self.0.note(Change::Write(offset, data.to_vec()));
        let start = usize::try_from(offset).expect("offset");
        lock(&self.0.bytes)[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn open(disk: &Arc<TestDisk>) -> Result<Embedded> {
    let disk = Arc::clone(disk);
    let open = move || -> Result<Box<dyn StorageBackend>> { Ok(Box::new(TestBackend(Arc::clone(&disk)))) };
    Embedded::open_with(Box::new(open), None, RETENTION)
}

fn new_job(code: &str) -> NewJob {
    NewJob::of(JsonRequest { code: Some(code.to_owned()), ..JsonRequest::default() })
}

async fn try_create(store: &Embedded, code: &str) -> Result<JobId> {
    match store.create(new_job(code), LIMITS).await? {
        Created::New(job) => Ok(job.id),
        other => panic!("{other:?}"),
    }
}

async fn take_one(store: &Embedded) -> Attempt {
    store.take(None, &Offer::default()).await.expect("take").expect("one").attempt()
}

fn result(stdout: &str) -> Arc<RunResult> {
    Arc::new(RunResult { verdict: Verdict::Ok, stdout: stdout.to_owned(), ..RunResult::default() })
}

fn output(data: String) -> RunEvent {
    RunEvent::Stdout(OutputChunk { data, ..OutputChunk::default() })
}

/// Checks that the accounts match the stored jobs.
fn assert_consistent(store: &Embedded, when: &str) {
    let check = |transaction: &ReadTransaction| {
        let (mut bytes, mut waiting, mut running) = (0, 0, 0);
        for entry in transaction.open_table(tables::HEADERS)?.iter()? {
            let (id, header) = entry?;
            let header = JobHeader::decode(header.value()).expect("a header");
            bytes += OVERHEAD;
            for table in [REQUESTS, RESULTS, WEBHOOKS] {
                bytes += transaction.open_table(table)?.get(id.value())?.map_or(0, |found| found.value().len() as u64);
            }
            for event in transaction.open_table(EVENTS)?.range((id.value(), 0)..=(id.value(), u64::MAX))? {
                bytes += event?.1.value().len() as u64;
            }
            waiting += u64::from(header.status == JobStatus::Queued);
            running += u64::from(header.status == JobStatus::Running);
        }
        let accounts = transaction.open_table(ACCOUNTS)?;
        let counted: OwnerUsage = accounts.get("")?.map(|account| account.value().into()).unwrap_or_default();
        assert_eq!((counted.bytes, counted.waiting, counted.running), (bytes, waiting, running), "{when}");
        Ok(())
    };
    store.disk.read(check).expect("read");
}

#[tokio::test]
async fn a_full_disk_refuses_new_jobs_and_recovers_by_itself() {
    let disk = Arc::new(TestDisk::default());
    let store = open(&disk).expect("open");
    let mut ids = vec![];
    for number in 0..3 {
        ids.push(try_create(&store, &format!("early {number}")).await.expect("create"));
    }
    let attempt = take_one(&store).await;
    let used = lock(&disk.blocks).len();
    *lock(&disk.capacity) = Some(used + 20);
    let error = loop {
        match try_create(&store, &"x".repeat(20_000)).await {
            Ok(id) => ids.push(id),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FileError::Full), "{error}");
    for _ in 0..5 {
        // Reads continue, and refusals stay clear.
        let all = store.list(Filter::default(), 100, None).await.expect("list");
        assert_eq!(all.jobs.len(), ids.len().min(MOST_SCANNED));
        assert!(store.get(ids[0]).await.expect("get").is_some());
        let refused = try_create(&store, &"x".repeat(200_000)).await;
        assert!(matches!(refused, Err(FileError::Full)), "{refused:?}");
    }
    let late = store.finish(attempt, vec![], result(&"y".repeat(200_000))).await;
    assert!(matches!(late, Err(FileError::Full)), "{late:?}");
    // There is room again: without a restart, the result is recorded and jobs are created.
    *lock(&disk.capacity) = None;
    assert!(store.finish(attempt, vec![], result("kept")).await.expect("finish"));
    ids.push(try_create(&store, &"x".repeat(200_000)).await.expect("create"));
    assert_consistent(&store, "with room");
    drop(store);
    let store = open(&disk).expect("open again");
    for id in &ids {
        assert!(store.get(*id).await.expect("get").is_some());
    }
    assert_eq!(store.get(attempt.id).await.expect("get").expect("there").result.as_ref(), Some(&*result("kept")));
    assert_consistent(&store, "opened again");
}

#[tokio::test]
async fn a_failed_write_leaves_no_part_of_its_job() {
    let disk = Arc::new(TestDisk::default());
    let store = open(&disk).expect("open");
    let kept = try_create(&store, "kept").await.expect("create");
    let used = lock(&disk.blocks).len();
    for room in 0..12 {
        *lock(&disk.capacity) = Some(used + room);
        let key = NewJob { idempotency_key: Some(format!("k{room}")), ..new_job(&"x".repeat(100_000)) };
        if store.create(key.clone(), LIMITS).await.is_err() {
            *lock(&disk.capacity) = None;
            assert_eq!(store.backlog().await.expect("count").waiting, 1 + room as u64, "room {room}");
            assert!(matches!(store.create(key, LIMITS).await.expect("create"), Created::New(_)), "its key is free");
        }
        assert_consistent(&store, &format!("room {room}"));
    }
    assert!(store.get(kept).await.expect("get").is_some());
}

/// What a job must be at least, at the earliest from this point of the log on.
struct Promise {
    from: usize,
    id: JobId,
    finished: bool,
}

/// The disk as it was after so many changes, without those that were not synchronised if the power was cut.
fn disk_after(start: &[u8], log: &[Change], power_cut: bool) -> Arc<TestDisk> {
    let mut bytes = start.to_vec();
    let synced = log.iter().rposition(|change| matches!(change, Change::Sync)).unwrap_or(0);
    for (place, change) in log.iter().enumerate() {
        match change {
            // A file system keeps the length of a file apart from its contents.
            Change::Resize(len) => bytes.resize(usize::try_from(*len).expect("length"), 0),
            Change::Write(offset, data) if !power_cut || place < synced => {
                let start = usize::try_from(*offset).expect("offset");
                bytes[start..start + data.len()].copy_from_slice(data);
            }
            Change::Write(..) | Change::Sync => {}
        }
    }
    TestDisk::of(bytes)
}

#[tokio::test]
async fn no_kill_and_no_power_cut_loses_what_was_acknowledged() {
    let disk = Arc::new(TestDisk::default());
    drop(open(&disk).expect("open"));
    let store = open(&disk).expect("open");
    let start = lock(&disk.bytes).clone();
    disk.logs.store(true, Ordering::SeqCst);
    let position = || lock(&disk.log).len();
    let mut promises = vec![];
    for number in 0..6 {
        let id = try_create(&store, &"x".repeat(100 << number)).await.expect("create");
        promises.push(Promise { from: position(), id, finished: false });
        let attempt = take_one(&store).await;
        store.append(attempt, vec![output("o".repeat(5000))]).await.expect("append");
        if number % 2 == 0 {
            store.finish(attempt, vec![], result("done")).await.expect("finish");
            promises.push(Promise { from: position(), id, finished: true });
        } else {
            store.put_back(attempt).await.expect("put back");
            store.cancel(id).await.expect("cancel");
        }
    }
    let log = lock(&disk.log).clone();
    assert!(log.len() > 50, "{}", log.len());
    let mut checked = 0;
    for end in (0..=log.len()).step_by(5) {
        for power_cut in [false, true] {
            let copy = disk_after(&start, &log[..end], power_cut);
            let store = open(&copy).unwrap_or_else(|error| panic!("after {end} changes: {error}"));
            for promise in promises.iter().filter(|promise| promise.from <= end) {
                let job = store.get(promise.id).await.expect("get");
                let job = job.unwrap_or_else(|| panic!("lost a job after {end} of {} changes", log.len()));
                if promise.finished {
                    assert_eq!(job.result.as_ref(), Some(&*result("done")), "after {end} changes");
                }
                checked += 1;
            }
            assert_consistent(&store, &format!("after {end} changes, power cut: {power_cut}"));
        }
    }
    assert!(checked > 60, "{checked}");
}

#[tokio::test]
async fn a_newer_format_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("jobs.redb");
    drop(Embedded::open(&file, RETENTION).expect("open"));
    let database = Database::open(&file).expect("open");
    let transaction = database.begin_write().expect("begin");
    transaction.open_table(META).expect("open").insert("format", 99).expect("insert");
    transaction.commit().expect("commit");
    drop(database);
    let error = Embedded::open(&file, RETENTION).expect_err("newer").to_string();
    assert!(error.contains("format 99") && error.contains("restore a backup"), "{error}");
}

#[tokio::test]
async fn the_ages_of_jobs_are_found_in_a_file_of_a_release_that_had_no_index_of_them() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("jobs.redb");
    let age = async |store: &Embedded| store.backlog().await.expect("backlog").age;
    let store = Embedded::open(&file, RETENTION).expect("open");
    let waits = try_create(&store, "waits").await.expect("create");
    drop(store);
    let change = |change: &dyn Fn(&WriteTransaction)| {
        let database = Database::open(&file).expect("open");
        let transaction = database.begin_write().expect("begin");
        change(&transaction);
        transaction.commit().expect("commit");
    };
    change(&|transaction| assert!(transaction.delete_table(READY_SINCE).expect("delete")));
    let store = Embedded::open(&file, RETENTION).expect("open");
    let created = store.header(waits).await.expect("read").expect("there").created_at;
    let found = age(&store).await.as_secs_f64();
    assert!((0.0..=now() - created + 0.005).contains(&found), "{found}");
    take_one(&store).await;
    assert_eq!(age(&store).await, Duration::ZERO);
    drop(store);
    // Such a release takes jobs and leaves their entries.
    change(&|transaction| drop(transaction.open_table(READY_SINCE).expect("open").insert((1, 1), ())));
    let store = Embedded::open(&file, RETENTION).expect("open");
    assert!(age(&store).await < Duration::from_secs(600), "the job was interrupted just now");
}

#[tokio::test]
async fn a_backup_is_complete_and_can_be_opened() {
    let dir = tempfile::tempdir().expect("tempdir");
    let [file, live, still] = ["jobs.redb", "live.redb", "still.redb"].map(|name| dir.path().join(name));
    let store = Embedded::open(&file, RETENTION).expect("open");
    let (ended, waits) = (try_create(&store, "ended").await.expect("create"), try_create(&store, "waits").await);
    let attempt = take_one(&store).await;
    store.append(attempt, vec![output("seen".to_owned())]).await.expect("append");
    store.finish(attempt, vec![], result("done")).await.expect("finish");
    store.backup(&live).await.expect("backup");
    assert!(store.backup(&live).await.is_err(), "a file is not replaced");
    assert!(backup_file(&file, &still).is_err(), "the store is open");
    let later = try_create(&store, "later").await.expect("create");
    drop(store);
    backup_file(&file, &still).expect("backup");
    for (copy, has_later) in [(live, false), (still, true)] {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&copy).expect("metadata").permissions().mode() & 0o777, 0o600);
        let store = Embedded::open(&copy, RETENTION).expect("open");
        assert_consistent(&store, "restored");
        let job = store.get(ended).await.expect("get").expect("there");
        assert_eq!(job.result.as_ref(), Some(&*result("done")));
        assert_eq!(store.events(ended, 0, 10).await.expect("events").len(), 2);
        assert_eq!(take_one(&store).await.id, *waits.as_ref().expect("created"));
        assert_eq!(store.get(later).await.expect("get").is_some(), has_later);
    }
}

#[tokio::test]
async fn appending_and_listing_do_not_depend_on_the_size_of_requests() {
    let disk = Arc::new(TestDisk::default());
    let store = open(&disk).expect("open");
    for _ in 0..4 {
        try_create(&store, &"x".repeat(4 << 20)).await.expect("create");
    }
    let attempt = take_one(&store).await;
    disk.logs.store(true, Ordering::SeqCst);
    store.append(attempt, vec![output("small".to_owned())]).await.expect("append");
    store.put_back(attempt).await.expect("put back");
    store.cancel(attempt.id).await.expect("cancel");
    let written: usize =
        lock(&disk.log).iter().map(|change| if let Change::Write(_, data) = change { data.len() } else { 0 }).sum();
    assert!(written < 1 << 20, "{written} bytes were written");
}

#[tokio::test]
async fn concurrent_operations_share_commits() {
    const JOBS: usize = 300;
    let disk = Arc::new(TestDisk::default());
    let store = open(&disk).expect("open");
    disk.logs.store(true, Ordering::SeqCst);
    let syncs = || {
        let mut log = lock(&disk.log);
        let syncs = log.iter().filter(|change| matches!(change, Change::Sync)).count();
        log.clear();
        syncs
    };
    let ids: Vec<JobId> =
        futures_in_order((0..JOBS).map(|_| try_create(&store, "x"))).await.into_iter().flatten().collect();
    assert_eq!(ids.len(), JOBS);
    let created = syncs();
    assert!((1..JOBS / 2).contains(&created), "{created} commits for {JOBS} jobs");
    let cancelled = futures_in_order(ids.iter().map(|id| store.cancel(*id))).await;
    assert!(cancelled.into_iter().all(|job| job.expect("cancel").expect("there").status == JobStatus::Cancelled));
    let cancelled = syncs();
    assert!((1..JOBS / 2).contains(&cancelled), "{cancelled} commits for {JOBS} cancellations");
    assert_consistent(&store, "cancelled");
}

/// Creates this many jobs with this many callers, and returns how many that is a second.
async fn creation_rate(store: &Arc<Embedded>, callers: u32, jobs: u32) -> f64 {
    let began = Instant::now();
    let tasks = (0..callers).map(|_| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for _ in 0..jobs / callers {
                try_create(&store, &"x".repeat(1000)).await.expect("create");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("created");
    }
    f64::from(jobs) / began.elapsed().as_secs_f64()
}

/// `cargo test --release -p sandbox-jobs -- --ignored --nocapture figures`: how fast the store is on this disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
#[expect(clippy::print_stdout, reason = "that is what it is for")]
async fn figures() {
    let dir = tempfile::tempdir_in(".").expect("tempdir");
    let store = Arc::new(Embedded::open(&dir.path().join("jobs.redb"), Duration::ZERO).expect("open"));
    for callers in [1, 32] {
        let jobs = if callers == 1 { 200 } else { 9800 };
        println!("{callers} callers create {:.0} jobs a second", creation_rate(&store, callers, jobs).await);
    }
    let ids: Vec<JobId> = store
        .disk
        .read(|transaction| {
            let headers = transaction.open_table(tables::HEADERS)?;
            headers.iter()?.map(|entry| Ok(JobId::from_number(entry?.0.value()))).collect()
        })
        .expect("ids");
    let began = Instant::now();
    for some in ids.chunks(ids.len() / 32) {
        let (store, some) = (Arc::clone(&store), some.to_vec());
        let cancel = some.iter().map(|id| store.cancel(*id));
        for cancelled in futures_in_order(cancel).await {
            cancelled.expect("cancel");
        }
    }
    println!("{} jobs are cancelled in {:.2} s", ids.len(), began.elapsed().as_secs_f64());
    let began = Instant::now();
    let forgotten = store.expire().await.expect("expire");
    println!("{forgotten} jobs are forgotten in {:.2} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    store.list(Filter::default(), 50, None).await.expect("list");
    println!("the first listing takes {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
}

/// Waits for all of these at the same time.
async fn futures_in_order<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut waits = false;
        for (future, output) in all.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(cx) {
                std::task::Poll::Ready(value) => *output = Some(value),
                std::task::Poll::Pending => waits = true,
            }
        }
        if waits { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test]
async fn an_attempt_whose_start_was_lost_with_the_disk_is_not_repeated_under_its_number() {
    let disk = Arc::new(TestDisk::default());
    let store = open(&disk).expect("open");
    let id = try_create(&store, "x").await.expect("create");
    let queued = store.header(id).await.expect("read").expect("there");
    let first = take_one(&store).await;
    // As if the disk had failed before the start was written.
    let lose = move |transaction: &WriteTransaction| {
        let running = header(transaction, id)?;
        put_header(transaction, running.as_ref(), Some(&queued))
    };
    store.writer.run(Need::Durable, lose).await.expect("write");
    let second = take_one(&store).await;
    assert_eq!((second.id, second.number), (id, 2));
    assert!(!store.append(first, vec![output("first".to_owned())]).await.expect("append"));
    assert_eq!(store.heartbeat(vec![first, second]).await.expect("heartbeat").lost, [id]);
    assert!(!store.finish(first, vec![], result("first")).await.expect("finish"));
    assert!(store.finish(second, vec![], result("second")).await.expect("finish"));
    assert_eq!(store.get(id).await.expect("get").expect("there").result.as_ref(), Some(&*result("second")));
    assert!(lock(&store.started).is_empty());
    assert_consistent(&store, "afterwards");
}

#[tokio::test]
async fn the_writer_survives_an_operation_that_panics() {
    let disk = Arc::new(TestDisk::default());
    let store = open(&disk).expect("open");
    let before = try_create(&store, "before").await.expect("create");
    let panicked: Result<()> = store.writer.run(Need::Durable, |_| panic!("a bug")).await;
    assert!(matches!(panicked, Err(FileError::Panicked)), "{panicked:?}");
    let after = try_create(&store, "after").await.expect("create");
    for id in [before, after] {
        assert!(store.get(id).await.expect("get").is_some());
    }
    assert_consistent(&store, "afterwards");
}
