//! The embedded store: one file, one process.
//!
//! Jobs, their events, the queue and idempotency keys are tables of one redb database. Every change is a transaction, so
//! that a process that is killed leaves a state in which each job is exactly one of queued, running, finished or
//! cancelled. Events are written without waiting for the disk: should they be lost, so is the run that made them, and
//! the job runs again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{Database, Durability, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::model::{Created, Event, Filter, Job, JobId, JobStatus, NewJob, Page, RunOf, Summary, Webhook, now, today};

const JOBS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("jobs");
const QUEUE: TableDefinition<'_, u128, ()> = TableDefinition::new("queue");
const EVENTS: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("events");
const KEYS: TableDefinition<'_, &str, (u128, &[u8])> = TableDefinition::new("idempotency");
/// When somebody is to be told of a job's end, in milliseconds since 1970.
const DELIVERIES: TableDefinition<'_, u128, u64> = TableDefinition::new("deliveries");
/// How many runs somebody has had on a day.
const QUOTAS: TableDefinition<'_, (u64, &str), u64> = TableDefinition::new("quotas");

/// How often a job is started before it is given up: one that takes the server down with it must not do so for ever.
pub(crate) const MOST_ATTEMPTS: u32 = 3;

/// How many jobs are remembered as being followed before it is looked whether they are.
const MOST_FOLLOWED: usize = 1000;

/// Why the file failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FileError(Box<redb::Error>);

impl<E: Into<redb::Error>> From<E> for FileError {
    fn from(error: E) -> Self {
        Self(Box::new(error.into()))
    }
}

type Result<T> = std::result::Result<T, FileError>;

/// Jobs in a file.
#[derive(Debug)]
pub struct Embedded {
    database: Database,
    /// Wakes workers when a job is queued.
    queued: Notify,
    /// Wakes those who follow a job: the number of its last event, or that it has ended.
    followed: Mutex<HashMap<JobId, watch::Sender<u64>>>,
}

impl Embedded {
    /// Opens or makes the store. Jobs that were running when its last user died are queued again, or given up.
    pub fn open(file: &Path) -> Result<Self> {
        let database = Database::builder().create_file(open_private(file).map_err(redb::StorageError::from)?)?;
        let store = Self { database, queued: Notify::new(), followed: Mutex::default() };
        let transaction = store.database.begin_write()?;
        {
            transaction.open_table(QUEUE)?;
            transaction.open_table(EVENTS)?;
            transaction.open_table(KEYS)?;
            transaction.open_table(DELIVERIES)?;
            transaction.open_table(QUOTAS)?;
            let interrupted: Vec<Job> = {
                let jobs = transaction.open_table(JOBS)?;
                let all = jobs.iter()?.filter_map(|entry| read_job(entry.ok()?.1.value()));
                all.filter(|job| job.status == JobStatus::Running).collect()
            };
            for mut job in interrupted {
                drop_events(&transaction, job.id)?;
                if job.attempts >= MOST_ATTEMPTS {
                    let error = format!("the server died {} times while it ran", job.attempts);
                    let result = sandbox_executor::RunResult::internal_error(error);
                    end(&transaction, &mut job, JobStatus::Finished, serde_json::to_value(result).ok())?;
                } else {
                    job.status = JobStatus::Queued;
                    put(&transaction, &job)?;
                    transaction.open_table(QUEUE)?.insert(job.id.number(), ())?;
                }
            }
        }
        transaction.commit()?;
        Ok(store)
    }

    /// Creates a job and queues it.
    pub fn create(&self, new: &NewJob) -> Result<Created> {
        let digest = new.digest();
        let transaction = self.database.begin_write()?;
        if let Some(key) = &new.idempotency_key {
            let known = {
                let keys = transaction.open_table(KEYS)?;
                let entry = keys.get(key.as_str())?;
                entry.map(|entry| (entry.value().0, entry.value().1 == digest.as_slice()))
            };
            if let Some((id, same)) = known {
                let id = JobId::from_number(id);
                let job = get(&transaction, id)?;
                return Ok(match job {
                    Some(job) if same => Created::Existing(job),
                    _ => Created::Conflict(id),
                });
            }
        }
        let job = Job {
            id: JobId::new(),
            status: JobStatus::Queued,
            created_at: now(),
            started_at: None,
            finished_at: None,
            attempts: 0,
            request: new.request.clone(),
            result: None,
            owner: new.owner.clone(),
            webhook: new.webhook.clone(),
        };
        put(&transaction, &job)?;
        transaction.open_table(QUEUE)?.insert(job.id.number(), ())?;
        if let Some(key) = &new.idempotency_key {
            transaction.open_table(KEYS)?.insert(key.as_str(), (job.id.number(), digest.as_slice()))?;
        }
        transaction.commit()?;
        self.queued.notify_one();
        Ok(Created::New(job))
    }

    /// A job.
    pub fn get(&self, id: JobId) -> Result<Option<Job>> {
        let transaction = self.database.begin_read()?;
        let jobs = transaction.open_table(JOBS)?;
        Ok(jobs.get(id.number())?.and_then(|bytes| read_job(bytes.value())))
    }

    /// Jobs, the newest first, from before `cursor` on.
    pub fn list(&self, filter: &Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(JOBS)?;
        let end = cursor.map_or(u128::MAX, JobId::number);
        let mut jobs = vec![];
        for entry in table.range(..end)?.rev() {
            let Some(job) = read_job(entry?.1.value()) else { continue };
            if !filter.fits(job.status, job.owner.as_deref()) {
                continue;
            }
            if jobs.len() == limit {
                let next = jobs.last().map(|job: &Summary| job.id);
                return Ok(Page { jobs, next });
            }
            jobs.push(job.summary());
        }
        Ok(Page { jobs, next: None })
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> Result<u64> {
        Ok(self.database.begin_read()?.open_table(QUEUE)?.len()?)
    }

    /// Takes the job that has waited longest.
    pub fn take(&self) -> Result<Option<Job>> {
        let transaction = self.database.begin_write()?;
        let first = {
            let mut queue = transaction.open_table(QUEUE)?;
            let first = queue.pop_first()?;
            first.map(|(id, _)| id.value())
        };
        let Some(id) = first else { return Ok(None) };
        let Some(mut job) = get(&transaction, JobId::from_number(id))? else { return Ok(None) };
        job.status = JobStatus::Running;
        job.started_at = Some(now());
        job.attempts += 1;
        put(&transaction, &job)?;
        transaction.commit()?;
        Ok(Some(job))
    }

    /// Waits until a job may have been queued.
    pub async fn something_queued(&self) {
        // Also from time to time, should somebody else have taken the word.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.queued.notified()).await;
    }

    /// Notes something that happened in a job's run; a run that is not the job's any more has no say.
    pub fn append(&self, run: RunOf, what: &Value) -> Result<()> {
        let id = run.id;
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None);
        if get(&transaction, id)?.is_none_or(|job| !run.is_current(&job)) {
            return Ok(());
        }
        let number = add_event(&transaction, id, what)?;
        transaction.commit()?;
        self.tell(id, number, false);
        Ok(())
    }

    /// The next events of a job after one of them, at most this many.
    pub fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(EVENTS)?;
        let mut events = vec![];
        let range = (id.number(), after.saturating_add(1))..=(id.number(), u64::MAX);
        for entry in table.range(range)?.take(most) {
            let (key, bytes) = entry?;
            if let Ok(what) = serde_json::from_slice(bytes.value()) {
                events.push(Event { number: key.value().1, what });
            }
        }
        Ok(events)
    }

    /// Ends a job with its run's result, which is its last event too.
    pub fn finish(&self, run: RunOf, cancelled: bool, result: Value) -> Result<()> {
        let id = run.id;
        let transaction = self.database.begin_write()?;
        let Some(mut job) = get(&transaction, id)?.filter(|job| run.is_current(job)) else { return Ok(()) };
        let status = if cancelled { JobStatus::Cancelled } else { JobStatus::Finished };
        let number = end(&transaction, &mut job, status, Some(result))?;
        transaction.commit()?;
        self.tell(id, number, true);
        Ok(())
    }

    /// Cancels a job that waits. One that runs, or has ended, is returned as it is.
    pub fn cancel(&self, id: JobId) -> Result<Option<Job>> {
        let transaction = self.database.begin_write()?;
        let Some(mut job) = get(&transaction, id)? else { return Ok(None) };
        if job.status != JobStatus::Queued {
            return Ok(Some(job));
        }
        transaction.open_table(QUEUE)?.remove(id.number())?;
        let number = end(&transaction, &mut job, JobStatus::Cancelled, None)?;
        transaction.commit()?;
        self.tell(id, number, true);
        Ok(Some(job))
    }

    /// Puts a running job back into the queue, for a server that ends before it does.
    pub fn put_back(&self, run: RunOf) -> Result<()> {
        let id = run.id;
        let transaction = self.database.begin_write()?;
        let Some(mut job) = get(&transaction, id)?.filter(|job| run.is_current(job)) else { return Ok(()) };
        drop_events(&transaction, id)?;
        job.status = JobStatus::Queued;
        // It was not its fault.
        job.attempts = job.attempts.saturating_sub(1);
        put(&transaction, &job)?;
        transaction.open_table(QUEUE)?.insert(id.number(), ())?;
        transaction.commit()?;
        Ok(())
    }

    /// A job of whose end somebody is to be told now. Whoever gets it has this long to do so.
    pub fn take_delivery(&self, lease: Duration) -> Result<Option<Job>> {
        // Seldom is there anything to do, and reading holds nobody up.
        if self.database.begin_read()?.open_table(DELIVERIES)?.is_empty()? {
            return Ok(None);
        }
        let transaction = self.database.begin_write()?;
        let time = milliseconds(now());
        let due = {
            let deliveries = transaction.open_table(DELIVERIES)?;
            let mut all = deliveries.iter()?.filter_map(|entry| entry.ok().map(|(id, at)| (at.value(), id.value())));
            all.by_ref().filter(|(at, _)| *at <= time).min()
        };
        let Some((_, id)) = due else { return Ok(None) };
        let job = get(&transaction, JobId::from_number(id))?;
        if job.is_some() {
            transaction.open_table(DELIVERIES)?.insert(id, milliseconds(now() + lease.as_secs_f64()))?;
        } else {
            transaction.open_table(DELIVERIES)?.remove(id)?;
        }
        transaction.commit()?;
        Ok(job)
    }

    /// Notes what came of telling somebody, and when to try again.
    pub fn note_delivery(&self, id: JobId, webhook: &Webhook, again: Option<Duration>) -> Result<()> {
        let transaction = self.database.begin_write()?;
        match again {
            Some(after) => {
                let at = milliseconds(now() + after.as_secs_f64());
                transaction.open_table(DELIVERIES)?.insert(id.number(), at)?;
            }
            None => {
                transaction.open_table(DELIVERIES)?.remove(id.number())?;
            }
        }
        if let Some(mut job) = get(&transaction, id)? {
            job.webhook = Some(webhook.clone());
            put(&transaction, &job)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Takes runs from what somebody may have on a day. Says no, and takes nothing, if there are not so many left.
    pub fn spend(&self, who: &str, runs: u64, most: u64) -> Result<bool> {
        let transaction = self.database.begin_write()?;
        let key = (today(), who);
        {
            let mut quotas = transaction.open_table(QUOTAS)?;
            let spent = quotas.get(key)?.map_or(0, |spent| spent.value()).saturating_add(runs);
            if spent > most {
                return Ok(false);
            }
            quotas.insert(key, spent)?;
        }
        transaction.commit()?;
        Ok(true)
    }

    /// Forgets jobs that ended longer ago than this. Returns how many.
    pub fn expire(&self, retention: Duration) -> Result<usize> {
        let before = now() - retention.as_secs_f64();
        let transaction = self.database.begin_write()?;
        let old: Vec<JobId> = {
            let jobs = transaction.open_table(JOBS)?;
            let all = jobs.iter()?.filter_map(|entry| read_job(entry.ok()?.1.value()));
            all.filter(|job| job.finished_at.is_some_and(|at| at < before)).map(|job| job.id).collect()
        };
        for id in &old {
            transaction.open_table(JOBS)?.remove(id.number())?;
            drop_events(&transaction, *id)?;
        }
        transaction.open_table(KEYS)?.retain(|_, (id, _)| !old.contains(&JobId::from_number(id)))?;
        transaction.open_table(QUOTAS)?.retain(|(day, _), _| day >= today())?;
        transaction.commit()?;
        Ok(old.len())
    }

    /// A job's last event as it changes. Closed when the job has ended.
    #[must_use]
    pub fn follow(&self, id: JobId) -> watch::Receiver<u64> {
        let mut followed = self.followed();
        // Those that nobody follows any more, and that nothing happens to, would stay for ever.
        if followed.len() >= MOST_FOLLOWED {
            followed.retain(|_, sender| sender.receiver_count() > 0);
        }
        followed.entry(id).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    fn tell(&self, id: JobId, number: u64, ended: bool) {
        let mut followed = self.followed();
        if let Some(sender) = followed.get(&id) {
            let _ = sender.send(number);
            if ended || sender.receiver_count() == 0 {
                followed.remove(&id);
            }
        }
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<u64>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn read_job(bytes: &[u8]) -> Option<Job> {
    serde_json::from_slice(bytes).ok()
}

fn get(transaction: &WriteTransaction, id: JobId) -> Result<Option<Job>> {
    let jobs = transaction.open_table(JOBS)?;
    let found = jobs.get(id.number())?;
    Ok(found.and_then(|bytes| read_job(bytes.value())))
}

fn put(transaction: &WriteTransaction, job: &Job) -> Result<()> {
    let bytes = serde_json::to_vec(job).unwrap_or_default();
    transaction.open_table(JOBS)?.insert(job.id.number(), bytes.as_slice())?;
    Ok(())
}

fn add_event(transaction: &WriteTransaction, id: JobId, what: &Value) -> Result<u64> {
    let mut events = transaction.open_table(EVENTS)?;
    let number = match events.range((id.number(), 0)..=(id.number(), u64::MAX))?.next_back() {
        Some(entry) => entry?.0.value().1 + 1,
        None => 1,
    };
    let bytes = serde_json::to_vec(what).unwrap_or_default();
    events.insert((id.number(), number), bytes.as_slice())?;
    Ok(number)
}

/// Opens or makes a file that nobody else can read: jobs hold code, variables and the secrets of webhooks.
fn open_private(file: &Path) -> std::io::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(file)?;
    if opened.metadata()?.mode() & 0o077 != 0 {
        opened.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(opened)
}

fn drop_events(transaction: &WriteTransaction, id: JobId) -> Result<()> {
    let mut events = transaction.open_table(EVENTS)?;
    events.retain_in((id.number(), 0)..=(id.number(), u64::MAX), |_, _| false)?;
    Ok(())
}

/// Writes a job's end and its last event, whose number is returned.
fn end(transaction: &WriteTransaction, job: &mut Job, status: JobStatus, result: Option<Value>) -> Result<u64> {
    job.status = status;
    job.finished_at = Some(now());
    job.result.clone_from(&result);
    put(transaction, job)?;
    if job.webhook.is_some() {
        transaction.open_table(DELIVERIES)?.insert(job.id.number(), 0)?;
    }
    let last = match result {
        Some(result) => serde_json::json!({ "event": "result", "result": result }),
        None => serde_json::json!({ "event": "cancelled" }),
    };
    add_event(transaction, job.id, &last)
}
