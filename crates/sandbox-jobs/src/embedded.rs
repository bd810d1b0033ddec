//! The embedded store: one file, one process.
//!
//! Jobs, their events, their [`index`] and idempotency keys are tables of one redb database. Every change is a transaction, so
//! that a process that is killed leaves a state in which each job is exactly one of queued, running, finished or
//! cancelled. Events are written without waiting for the disk: should they be lost, so is the run that made them, and
//! the job runs again.

mod deliveries;
mod index;
mod startup;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{Database, Durability, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use sandbox_executor::{RunEvent, RunResult};
use tokio::sync::{Notify, Semaphore, watch};

use self::deliveries::set_delivery;
#[cfg(all(test, feature = "redis"))]
use self::index::measure_events;
use self::index::{
    ACCOUNTS, ENDED, OWNED, OwnerUsage, RECORDS, Record, WAITING, account, record, reindex, set_account,
};
use self::startup::{make_indexes, open_private};
use crate::idempotency::known_key;
use crate::model::{
    Attempt, Created, Event, Exceeded, Filter, Job, JobId, JobStatus, NewJob, Page, Progress, StoreLimits, Summary,
    now, today,
};

const JOBS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("jobs");
const EVENTS: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("events");
const KEYS: TableDefinition<'_, &str, (u128, &[u8])> = TableDefinition::new("idempotency");
/// The number of runs of an owner on a day.
const QUOTAS: TableDefinition<'_, (u64, &str), u64> = TableDefinition::new("quotas");

/// How often a job is started before it is given up: one that takes the server down with it must not do so for ever.
pub(crate) const MOST_ATTEMPTS: u32 = 3;

/// How many jobs are looked at for one page.
pub(crate) const MOST_SCANNED: usize = if cfg!(test) { 20 } else { 10_000 };

/// How many pages are read at one time, so that reading them leaves threads for everything else.
const LISTINGS: usize = 2;

/// How many jobs are forgotten in one transaction.
const FORGOTTEN_AT_ONCE: usize = 500;

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
    /// For those who read pages.
    pub(crate) listings: Semaphore,
}

impl Embedded {
    /// Opens or makes the store. Jobs that were running when its last user died are queued again, or given up.
    pub fn open(file: &Path) -> Result<Self> {
        let database = Database::builder().create_file(open_private(file).map_err(redb::StorageError::from)?)?;
        let (queued, followed, listings) = (Notify::new(), Mutex::default(), Semaphore::new(LISTINGS));
        let store = Self { database, queued, followed, listings };
        let transaction = store.database.begin_write()?;
        make_indexes(&transaction)?;
        transaction.commit()?;
        Ok(store)
    }

    /// Creates a job and queues it.
    pub fn create(&self, new: &NewJob, bounds: &StoreLimits) -> Result<Created> {
        let digest = new.digest();
        let transaction = self.database.begin_write()?;
        if let Some(known) = find_key(&transaction, new, &digest)? {
            return Ok(known);
        }
        let job = new.queued();
        let bytes = serde_json::to_vec(&job).unwrap_or_default().len() as u64;
        if let Some(exceeded) = exceeded(&transaction, new, bytes, bounds)? {
            return Ok(Created::Refused(exceeded));
        }
        put(&transaction, &job)?;
        if let Some(key) = &new.idempotency_key {
            transaction.open_table(KEYS)?.insert(key.as_str(), (job.id.number(), digest.as_slice()))?;
            let before = record(&transaction, job.id)?;
            let after = before.clone().map(|record| Record { key: Some(key.clone()), ..record });
            reindex(&transaction, job.id, before.as_ref(), after.as_ref())?;
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

    /// How far a job is.
    pub fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        let transaction = self.database.begin_read()?;
        let records = transaction.open_table(RECORDS)?;
        let Some(record) = records.get(id.number())?.and_then(|bytes| Record::read(bytes.value())) else {
            return Ok(None);
        };
        let events = transaction.open_table(EVENTS)?;
        let last = events.range((id.number(), 0)..=(id.number(), u64::MAX))?.next_back().transpose()?;
        let events = last.map_or(0, |(key, _)| key.value().1);
        Ok(Some(Progress { status: record.summary.status, attempts: record.attempts, events }))
    }

    /// Fails if nothing can be written.
    pub fn probe(&self) -> Result<()> {
        Ok(self.database.begin_write()?.abort()?)
    }

    /// Jobs, newest first, from before `cursor` on.
    pub fn list(&self, filter: &Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let transaction = self.database.begin_read()?;
        let records = transaction.open_table(RECORDS)?;
        let owned = transaction.open_table(OWNED)?;
        let end = cursor.map_or(u128::MAX, JobId::number);
        let ids: Box<dyn Iterator<Item = Result<u128>>> = match filter.owner.as_deref() {
            Some(owner) => Box::new(owned.range((owner, 0)..(owner, end))?.rev().map(|entry| Ok(entry?.0.value().1))),
            None => Box::new(records.range(..end)?.rev().map(|entry| Ok(entry?.0.value()))),
        };
        let mut jobs: Vec<Summary> = vec![];
        for (scanned, id) in ids.enumerate() {
            let id = id?;
            if scanned == MOST_SCANNED {
                // The page goes on behind the last job that was looked at.
                return Ok(Page { jobs, next: Some(JobId::from_number(id.saturating_add(1))) });
            }
            let Some(record) = records.get(id)?.and_then(|bytes| Record::read(bytes.value())) else { continue };
            if !filter.fits(record.summary.status, Some(&record.owner)) {
                continue;
            }
            if jobs.len() == limit {
                let next = jobs.last().map(|job| job.id);
                return Ok(Page { jobs, next });
            }
            jobs.push(record.summary);
        }
        Ok(Page { jobs, next: None })
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> Result<u64> {
        Ok(self.database.begin_read()?.open_table(WAITING)?.len()?)
    }

    /// The owners whose jobs wait, the one to be served next first: it has the fewest running jobs, or was served longest
    /// ago. Owners with more bytes than this are left out.
    pub fn next_owners(&self, most_bytes: u64) -> Result<Vec<Option<String>>> {
        let transaction = self.database.begin_read()?;
        let mut owners = vec![];
        for entry in transaction.open_table(ACCOUNTS)?.iter()? {
            let (owner, account) = entry?;
            let OwnerUsage { waiting, running, bytes, turn } = account.value().into();
            if waiting > 0 && bytes <= most_bytes {
                owners.push((running, turn, owner.value().to_owned()));
            }
        }
        owners.sort_unstable();
        Ok(owners.into_iter().map(|(_, _, owner)| Some(owner).filter(|owner| !owner.is_empty())).collect())
    }

    /// Takes the job of an owner that has waited longest.
    pub fn take(&self, owner: Option<&str>) -> Result<Option<Job>> {
        let owner = owner.unwrap_or_default();
        let transaction = self.database.begin_write()?;
        let first = {
            let waiting = transaction.open_table(WAITING)?;
            let first = waiting.range((owner, 0)..=(owner, u128::MAX))?.next().transpose()?;
            first.map(|(key, _)| key.value().1)
        };
        let Some(id) = first else { return Ok(None) };
        let Some(mut job) = get(&transaction, JobId::from_number(id))? else { return Ok(None) };
        job.status = JobStatus::Running;
        job.started_at = Some(now());
        job.attempts += 1;
        put(&transaction, &job)?;
        let turn = {
            let accounts = transaction.open_table(ACCOUNTS)?;
            let turns = accounts.iter()?.filter_map(|entry| entry.ok().map(|(_, account)| account.value().3));
            turns.max().unwrap_or_default() + 1
        };
        let account = account(&transaction, owner)?;
        set_account(&transaction, owner, OwnerUsage { turn, ..account })?;
        transaction.commit()?;
        Ok(Some(job))
    }

    /// Waits until a job may have been queued.
    pub async fn something_queued(&self) {
        // Also from time to time, in case another worker consumed the notification.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.queued.notified()).await;
    }

    /// Notes something that happened in a job's run; a run that is not the job's any more has no say.
    pub fn append(&self, attempt: Attempt, what: &RunEvent) -> Result<()> {
        let id = attempt.id;
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None);
        if record(&transaction, id)?.is_none_or(|record| !record.has(attempt)) {
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
    pub fn finish(&self, attempt: Attempt, cancelled: bool, result: RunResult) -> Result<()> {
        let id = attempt.id;
        let transaction = self.database.begin_write()?;
        let Some(mut job) = get(&transaction, id)?.filter(|job| attempt.is_current(job)) else { return Ok(()) };
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
        let number = end(&transaction, &mut job, JobStatus::Cancelled, None)?;
        transaction.commit()?;
        self.tell(id, number, true);
        Ok(Some(job))
    }

    /// Puts a running job back into the queue, for a server that ends before it does.
    pub fn put_back(&self, attempt: Attempt) -> Result<()> {
        let id = attempt.id;
        let transaction = self.database.begin_write()?;
        let Some(mut job) = get(&transaction, id)?.filter(|job| attempt.is_current(job)) else { return Ok(()) };
        drop_events(&transaction, id)?;
        job.status = JobStatus::Queued;
        // It was not its fault.
        job.attempts = job.attempts.saturating_sub(1);
        put(&transaction, &job)?;
        transaction.commit()?;
        Ok(())
    }

    /// Charges runs against a daily quota. Returns false, and charges nothing, if too few are left.
    pub fn spend(&self, who: &str, runs: u64, most: u64) -> Result<bool> {
        let transaction = self.database.begin_write()?;
        let spent = spend(&transaction, who, runs, most)?;
        if spent {
            transaction.commit()?;
        }
        Ok(spent)
    }

    /// Forgets jobs that ended longer ago than this. Returns how many.
    pub fn expire(&self, retention: Duration) -> Result<usize> {
        let before = milliseconds(now() - retention.as_secs_f64());
        let mut forgotten = 0;
        loop {
            let transaction = self.database.begin_write()?;
            let old: Vec<JobId> = {
                let ended = transaction.open_table(ENDED)?;
                let old = ended.range(..(before, 0))?.take(FORGOTTEN_AT_ONCE);
                old.filter_map(|entry| Some(JobId::from_number(entry.ok()?.0.value().1))).collect()
            };
            for id in &old {
                forget(&transaction, *id)?;
            }
            let over = {
                let mut quotas = transaction.open_table(QUOTAS)?;
                let over = quotas.first()?.is_some_and(|(key, _)| key.value().0 < today());
                if over {
                    quotas.retain(|(day, _), _| day >= today())?;
                }
                over
            };
            // Usually there is nothing to write.
            if !old.is_empty() || over {
                transaction.commit()?;
            }
            forgotten += old.len();
            if old.len() < FORGOTTEN_AT_ONCE {
                return Ok(forgotten);
            }
        }
    }

    /// A job's last event as it changes. Closed when the job has ended.
    #[must_use]
    pub fn follow(&self, id: JobId) -> watch::Receiver<u64> {
        let mut followed = self.followed();
        // Entries without followers, whose jobs do not change, would otherwise stay forever.
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

/// The job of a request whose idempotency key is known.
fn find_key(transaction: &WriteTransaction, new: &NewJob, digest: &[u8]) -> Result<Option<Created>> {
    let Some(key) = &new.idempotency_key else { return Ok(None) };
    let keys = transaction.open_table(KEYS)?;
    let Some(entry) = keys.get(key.as_str())? else { return Ok(None) };
    let (number, stored) = entry.value();
    let id = JobId::from_number(number);
    Ok(Some(known_key(id, get(transaction, id)?, stored == digest)))
}

fn get(transaction: &WriteTransaction, id: JobId) -> Result<Option<Job>> {
    let jobs = transaction.open_table(JOBS)?;
    let found = jobs.get(id.number())?;
    Ok(found.and_then(|bytes| read_job(bytes.value())))
}

/// Writes a job, and what the indexes know of it.
fn put(transaction: &WriteTransaction, job: &Job) -> Result<()> {
    let bytes = serde_json::to_vec(job).unwrap_or_default();
    transaction.open_table(JOBS)?.insert(job.id.number(), bytes.as_slice())?;
    let before = record(transaction, job.id)?;
    let mut after = Record::of(job, bytes.len());
    if let Some(before) = &before {
        after.event_bytes = before.event_bytes;
        after.key.clone_from(&before.key);
    }
    reindex(transaction, job.id, before.as_ref(), Some(&after))
}

/// Removes all that there is of a job.
fn forget(transaction: &WriteTransaction, id: JobId) -> Result<()> {
    drop_events(transaction, id)?;
    transaction.open_table(JOBS)?.remove(id.number())?;
    let Some(record) = record(transaction, id)? else { return Ok(()) };
    if let Some(key) = &record.key {
        transaction.open_table(KEYS)?.remove(key.as_str())?;
    }
    set_delivery(transaction, id, &record.owner, None)?;
    reindex(transaction, id, Some(&record), None)
}

/// The bound that a new job of this size would exceed. If there is none, the job is charged.
fn exceeded(
    transaction: &WriteTransaction,
    new: &NewJob,
    bytes: u64,
    bounds: &StoreLimits,
) -> Result<Option<Exceeded>> {
    let owner = new.owner.as_deref().unwrap_or_default();
    let account = account(transaction, owner)?;
    if transaction.open_table(WAITING)?.len()? >= bounds.waiting {
        return Ok(Some(Exceeded::Waiting));
    }
    if account.waiting >= bounds.waiting_per_owner {
        return Ok(Some(Exceeded::WaitingPerOwner));
    }
    if account.bytes.saturating_add(bytes) > bounds.bytes_per_owner {
        return Ok(Some(Exceeded::BytesPerOwner));
    }
    match new.per_day {
        Some(most) if !spend(transaction, owner, 1, most)? => Ok(Some(Exceeded::PerDay)),
        _ => Ok(None),
    }
}

fn spend(transaction: &WriteTransaction, who: &str, runs: u64, most: u64) -> Result<bool> {
    let key = (today(), who);
    let mut quotas = transaction.open_table(QUOTAS)?;
    let spent = quotas.get(key)?.map_or(0, |spent| spent.value()).saturating_add(runs);
    if spent > most {
        return Ok(false);
    }
    quotas.insert(key, spent)?;
    Ok(true)
}

fn add_event(transaction: &WriteTransaction, id: JobId, what: &RunEvent) -> Result<u64> {
    let bytes = serde_json::to_vec(what).unwrap_or_default();
    let number = {
        let mut events = transaction.open_table(EVENTS)?;
        let number = match events.range((id.number(), 0)..=(id.number(), u64::MAX))?.next_back() {
            Some(entry) => entry?.0.value().1 + 1,
            None => 1,
        };
        events.insert((id.number(), number), bytes.as_slice())?;
        number
    };
    resize_events(transaction, id, |size| size + bytes.len() as u64)?;
    Ok(number)
}

fn drop_events(transaction: &WriteTransaction, id: JobId) -> Result<()> {
    let mut events = transaction.open_table(EVENTS)?;
    events.retain_in((id.number(), 0)..=(id.number(), u64::MAX), |_, _| false)?;
    resize_events(transaction, id, |_| 0)
}

fn resize_events(transaction: &WriteTransaction, id: JobId, size: impl Fn(u64) -> u64) -> Result<()> {
    let Some(before) = record(transaction, id)? else { return Ok(()) };
    let after = Record { event_bytes: size(before.event_bytes), ..before.clone() };
    reindex(transaction, id, Some(&before), Some(&after))
}

/// Writes a job's end and its last event, whose number is returned.
fn end(transaction: &WriteTransaction, job: &mut Job, status: JobStatus, result: Option<RunResult>) -> Result<u64> {
    job.status = status;
    job.finished_at = Some(now());
    job.result = result;
    put(transaction, job)?;
    if job.webhook.is_some() {
        set_delivery(transaction, job.id, job.owner.as_deref().unwrap_or_default(), Some(milliseconds(now())))?;
    }
    let result = job.result.clone().map(|result| RunEvent::Result { result: Arc::new(result) });
    let last = result.unwrap_or(RunEvent::Cancelled);
    add_event(transaction, job.id, &last)
}

#[cfg(all(test, feature = "redis"))]
mod measure {
    use super::*;
    use crate::store::Usage;

    impl Embedded {
        pub(crate) fn usage(&self, owner: &str) -> Usage {
            let transaction = self.database.begin_write().expect("begin");
            let OwnerUsage { waiting, running, bytes, .. } = account(&transaction, owner).expect("read");
            Usage { waiting, running, bytes }
        }

        /// What an owner has, found by reading everything.
        pub(crate) fn measured(&self, owner: &str) -> Usage {
            let transaction = self.database.begin_write().expect("begin");
            let jobs = transaction.open_table(JOBS).expect("open");
            let mut usage = Usage::default();
            for entry in jobs.iter().expect("read") {
                let (id, bytes) = entry.expect("read");
                let job = read_job(bytes.value()).expect("a job");
                if job.owner.as_deref().unwrap_or_default() == owner {
                    let events = measure_events(&transaction, JobId::from_number(id.value())).expect("read");
                    usage.add(job.status, bytes.value().len() as u64 + events);
                }
            }
            usage
        }
    }
}
