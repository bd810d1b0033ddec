//! The embedded store: one file, one process.
//!
//! Headers, requests, results, events and their indexes are [`tables`] of one redb database. Every change is part of a
//! transaction of the one [`writer`], so that a process that is killed leaves a state in which each job is exactly one of
//! queued, running or ended. A change is on the disk before it is answered, with two exceptions: events, which may be lost
//! together with the run that made them, and the start of a run, which is on the disk before its first event is visible.

mod backup;
mod deliveries;
mod disk;
mod queries;
mod startup;
mod tables;
#[cfg(test)]
mod tests;
mod transitions;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, WriteTransaction};
use sandbox_executor::{RunEvent, RunResult};
use tokio::sync::{Notify, Semaphore, watch};

pub use self::backup::backup_file;
use self::disk::{Disk, OpenBackend};
use self::queries::{list, next_owners, read_header, whole};
use self::tables::{
    DELAYED, ENDED, EVENTS, EXPIRING, KEYS, QUOTAS, READY, READY_SINCE, REQUESTS, WEBHOOKS, header, put_header,
};
use self::transitions::{add_event, current, end, exceeded, find_key, forget_old, interrupt, spend, sweep, take};
use self::writer::{Need, Writer};
use crate::header::{Interruption, JobHeader, unreadable};
use crate::model::{
    Attempt, Backlog, Created, Event, Filter, HeartbeatReport, Job, JobId, JobStatus, Labels, Offer, Page, Progress,
    StoreLimits, Turns, Webhook, WrittenJob, now, today,
};

/// The maximum number of jobs that are looked at for one page.
pub(crate) const MOST_SCANNED: usize = if cfg!(test) { 20 } else { 10_000 };

/// The number of pages that are read concurrently, so that reading them leaves threads for everything else.
const LISTINGS: usize = 2;

/// The maximum number of jobs that are forgotten, started or expired in one step.
const AT_ONCE: usize = 500;

/// How many jobs are remembered as being followed before it is looked whether they are.
const MOST_FOLLOWED: usize = 1000;

/// Why the file failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FileError {
    /// The disk is full.
    #[error("the disk of the job store is full")]
    Full,
    /// Another process uses it.
    #[error("another process uses the file")]
    InUse,
    /// A newer release wrote it.
    #[error(
        "the file has format {found}, this release reads formats up to {known}; start the release that wrote it, or \
         restore a backup"
    )]
    Newer {
        /// The format of the file.
        found: u64,
        /// The newest format that this release knows.
        known: u64,
    },
    /// It cannot be read or written.
    #[error(transparent)]
    Failed(Arc<redb::Error>),
    /// An operation panicked. All operations of its transaction were undone.
    #[error("an operation on the file panicked")]
    Panicked,
    /// The store is closed, or its file could not be opened again after an error.
    #[error("the file is closed")]
    Closed,
}

impl<E: Into<redb::Error>> From<E> for FileError {
    fn from(error: E) -> Self {
        let error = error.into();
        if matches!(error, redb::Error::DatabaseAlreadyOpen) {
            return Self::InUse;
        }
        if let redb::Error::Io(cause) = &error {
            use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
            if [FileTooLarge, QuotaExceeded, StorageFull].contains(&cause.kind()) {
                return Self::Full;
            }
        }
        Self::Failed(Arc::new(error))
    }
}

impl FileError {
    /// Whether redb refuses everything until the file is opened again.
    fn needs_reopening(&self) -> bool {
        match self {
            Self::Full => true,
            Self::Failed(error) => matches!(**error, redb::Error::Io(_) | redb::Error::PreviousIo),
            Self::InUse | Self::Newer { .. } | Self::Panicked | Self::Closed => false,
        }
    }
}

type Result<T> = std::result::Result<T, FileError>;

/// Jobs in a file.
#[derive(Debug)]
pub struct Embedded {
    disk: Arc<Disk>,
    writer: Writer,
    /// How long ended jobs are kept.
    retention: Duration,
    /// Wakes workers when a job is queued.
    queued: Notify,
    /// Wakes those who deliver webhooks when one is due.
    due: Notify,
    /// Wakes those who follow a job: the number of its last event, or that it has ended.
    followed: Mutex<HashMap<JobId, watch::Sender<u64>>>,
    /// For those who read pages.
    listings: Semaphore,
    /// The last attempt of each job that runs. The start of a run is answered before it is on the disk, and a disk that fails
    /// then takes it back: the next attempt still needs another number.
    started: Arc<Mutex<HashMap<JobId, u32>>>,
}

impl Embedded {
    /// Opens or creates the store. Jobs that were running when its last user died are queued again, or given up.
    pub fn open(file: &Path, retention: Duration) -> Result<Self> {
        let (open, directory) = startup::open_file(file);
        Self::open_with(open, directory, retention)
    }

    fn open_with(open: OpenBackend, directory: Option<std::os::fd::OwnedFd>, retention: Duration) -> Result<Self> {
        let disk = Arc::new(Disk::new(open, directory)?);
        disk.write(|transaction| startup::prepare(transaction))?;
        let writer = Writer::start(Arc::clone(&disk)).map_err(redb::StorageError::from)?;
        Ok(Self {
            disk,
            writer,
            retention,
            queued: Notify::new(),
            due: Notify::new(),
            followed: Mutex::default(),
            listings: Semaphore::new(LISTINGS),
            started: Arc::default(),
        })
    }

    /// Reads, on a thread that may block on the disk.
    async fn read<T: Send + 'static>(
        &self,
        call: impl Fn(&ReadTransaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let disk = Arc::clone(&self.disk);
        tokio::task::spawn_blocking(move || disk.read(call)).await.map_err(|_| FileError::Closed)?
    }

    /// Creates a job and queues it, in this order: the idempotency key, the bounds of the queue, the quota.
    pub async fn create(&self, new: impl Into<WrittenJob>, bounds: StoreLimits) -> Result<Created> {
        let written = new.into();
        let bytes = written.bytes();
        let WrittenJob { job: new, request, webhook, digest } = written;
        let call = move |transaction: &WriteTransaction| {
            if let Some(known) = find_key(transaction, &new, &digest)? {
                return Ok(known);
            }
            let job = JobHeader::queued(&new, bytes, now());
            if let Some(exceeded) = exceeded(transaction, &new, job.bytes(), &bounds)? {
                return Ok(Created::Refused(exceeded));
            }
            let id = job.id.number();
            transaction.open_table(REQUESTS)?.insert(id, request.as_slice())?;
            if let Some(webhook) = &webhook {
                transaction.open_table(WEBHOOKS)?.insert(id, webhook.as_slice())?;
            }
            if let Some(key) = &new.idempotency_key {
                transaction.open_table(KEYS)?.insert(key.as_str(), (id, digest.as_slice()))?;
            }
            put_header(transaction, None, Some(&job))?;
            Ok(Created::New(job))
        };
        let created = self.writer.add(bytes, call).await?;
        if matches!(created, Created::New(_)) {
            self.queued.notify_one();
        }
        Ok(created)
    }

    /// A job.
    pub async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.read(move |transaction| {
            let Some(header) = read_header(transaction, id)? else { return Ok(None) };
            whole(transaction, header)
        })
        .await
    }

    /// The header of a job.
    pub async fn header(&self, id: JobId) -> Result<Option<JobHeader>> {
        self.read(move |transaction| read_header(transaction, id)).await
    }

    /// The state of a job.
    pub async fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        Ok(self.header(id).await?.map(|header| header.progress()))
    }

    /// Fails if nothing can be written.
    pub async fn probe(&self) -> Result<()> {
        self.writer.add(0, |_| Ok(())).await
    }

    /// Jobs, newest first, from before `cursor` on.
    pub async fn list(&self, filter: Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        let _turn = self.listings.acquire().await.map_err(|_| FileError::Closed)?;
        self.read(move |transaction| list(transaction, &filter, limit, cursor)).await
    }

    /// How many jobs wait, and for how long.
    pub async fn backlog(&self) -> Result<Backlog> {
        self.read(|transaction| {
            let waiting = transaction.open_table(READY)?.len()? + transaction.open_table(DELAYED)?.len()?;
            let first = transaction.open_table(READY_SINCE)?.first()?.map(|(key, _)| key.value().0);
            let age = first.map_or(0, |since| milliseconds(now()).saturating_sub(since));
            Ok(Backlog { waiting, age: Duration::from_millis(age) })
        })
        .await
    }

    /// The owners whose jobs wait for a worker with these labels. Owners with more bytes than this are left out.
    pub async fn next_owners(&self, most_bytes: u64, labels: &Labels) -> Result<Turns> {
        let labels = labels.clone();
        self.read(move |transaction| {
            let owners = |alone| {
                let offer = Offer { labels: labels.clone(), alone };
                next_owners(transaction, most_bytes, &offer.lanes())
            };
            Ok(Turns { owners: owners(false)?, suspects: owners(true)? })
        })
        .await
    }

    /// Takes the job of an owner with the highest priority that has waited longest.
    pub async fn take(&self, owner: Option<&str>, offer: &Offer) -> Result<Option<Job>> {
        let (owner, lanes, alone) = (owner.unwrap_or_default().to_owned(), offer.lanes(), offer.alone);
        let started = Arc::clone(&self.started);
        let call = move |transaction: &WriteTransaction| {
            let mut started = lock(&started);
            let last = |id: &JobId| started.get(id).copied().unwrap_or_default();
            let taken = take(transaction, &owner, &lanes, alone, last)?;
            if let Some(header) = &taken {
                started.insert(header.id, header.attempts);
            }
            Ok(taken)
        };
        let Some(header) = self.writer.run(Need::Soon, call).await? else { return Ok(None) };
        let attempt = header.attempt();
        let job = self.read(move |transaction| whole(transaction, header.clone())).await;
        // One that does not run would otherwise seem to until the next start.
        match &job {
            Ok(Some(_)) => {}
            Ok(None) => drop(self.fail(attempt, Arc::new(unreadable())).await?),
            Err(_) => drop(self.put_back(attempt).await),
        }
        job
    }

    /// Waits until a job may have been queued, or for this long.
    pub async fn something_queued(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.queued.notified()).await;
    }

    /// Waits until a webhook may be due, or for this long.
    pub async fn delivery_due(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.due.notified()).await;
    }

    /// Which of these attempts were cancelled, and which are not the job's current ones.
    pub async fn heartbeat(&self, attempts: Vec<Attempt>) -> Result<HeartbeatReport> {
        self.read(move |transaction| {
            let mut report = HeartbeatReport::default();
            for attempt in &attempts {
                match read_header(transaction, attempt.id)? {
                    Some(header) if header.is_current(*attempt) => {
                        if header.cancel_requested {
                            report.cancelled.push(attempt.id);
                        }
                    }
                    _ => report.lost.push(attempt.id),
                }
            }
            Ok(report)
        })
        .await
    }

    /// Records what happened in an attempt. Returns false if it is not the job's current one.
    pub async fn append(&self, attempt: Attempt, events: Vec<RunEvent>) -> Result<bool> {
        let call = move |transaction: &WriteTransaction| {
            let Some(before) = current(transaction, attempt)? else { return Ok(None) };
            let mut after = before.clone();
            for event in &events {
                add_event(transaction, &mut after, event)?;
            }
            put_header(transaction, Some(&before), Some(&after))?;
            Ok(Some(after.last_event))
        };
        // Followers are told of nothing that a failing disk could take back.
        let last = self.writer.run(Need::Durable, call).await?;
        if let Some(number) = last {
            self.tell(attempt.id, number, false);
        }
        Ok(last.is_some())
    }

    /// The next events of a job after one of them, at most this many.
    pub async fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        self.read(move |transaction| {
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
        })
        .await
    }

    /// Ends a job with the last events and the result of its current attempt, which is its last event too. Returns false if
    /// the attempt is not the current one.
    pub async fn finish(&self, attempt: Attempt, last: Vec<RunEvent>, result: Arc<RunResult>) -> Result<bool> {
        self.end_attempt(attempt, move |transaction, header| {
            let status = if header.cancel_requested { JobStatus::Cancelled } else { JobStatus::Finished };
            end(transaction, header, status, &last, Some(&result)).map(drop)
        })
        .await
    }

    /// Puts a running job back into the queue, for a server that ends before it does.
    pub async fn put_back(&self, attempt: Attempt) -> Result<bool> {
        self.end_attempt(attempt, move |transaction, header| {
            interrupt(transaction, header, Interruption::Shutdown, None).map(drop)
        })
        .await
    }

    /// Ends an attempt that failed for reasons of the host. The job is queued again, or ends with this result.
    pub async fn fail(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        self.end_attempt(attempt, move |transaction, header| {
            interrupt(transaction, header, Interruption::HostFailure, Some(&result)).map(drop)
        })
        .await
    }

    /// Ends an attempt whose keeper ended. The job is queued again as a suspect, or ends with this result.
    pub async fn suspect(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        self.end_attempt(attempt, move |transaction, header| {
            interrupt(transaction, header, Interruption::Death, Some(&result)).map(drop)
        })
        .await
    }

    /// Ends the current attempt of a job; returns whether it was the current one.
    async fn end_attempt(
        &self,
        attempt: Attempt,
        ends: impl FnOnce(&WriteTransaction, &JobHeader) -> Result<()> + Send + 'static,
    ) -> Result<bool> {
        let call = move |transaction: &WriteTransaction| {
            let Some(running) = current(transaction, attempt)? else { return Ok(None) };
            ends(transaction, &running)?;
            header(transaction, attempt.id)
        };
        let after = self.writer.run(Need::Durable, call).await?;
        lock(&self.started).retain(|id, number| *id != attempt.id || *number != attempt.number);
        if let Some(after) = &after {
            self.announce(after);
        }
        Ok(after.is_some())
    }

    /// Cancels a job: one that waits ends, one that runs has to be ended by its server, whatever happens to it meanwhile.
    pub async fn cancel(&self, id: JobId) -> Result<Option<JobHeader>> {
        let call = move |transaction: &WriteTransaction| {
            let Some(before) = header(transaction, id)? else { return Ok(None) };
            match before.status {
                JobStatus::Queued => end(transaction, &before, JobStatus::Cancelled, &[], None).map(Some),
                JobStatus::Running => {
                    let after = JobHeader { cancel_requested: true, ..before.clone() };
                    put_header(transaction, Some(&before), Some(&after))?;
                    Ok(Some(after))
                }
                JobStatus::Finished | JobStatus::Cancelled | JobStatus::Expired => Ok(Some(before)),
            }
        };
        let after = self.writer.run(Need::Durable, call).await?;
        if let Some(after) = &after {
            self.announce(after);
        }
        Ok(after)
    }

    /// Tells everyone who waits for a job how it is now.
    fn announce(&self, header: &JobHeader) {
        self.tell(header.id, header.last_event, header.status.is_final());
        if header.status == JobStatus::Queued {
            self.queued.notify_one();
        }
        if header.status.is_final() && header.webhook {
            self.due.notify_one();
        }
    }

    /// Queues delayed jobs whose time has come, and ends those that were not started in time. Returns how long until there
    /// is more to do, if it is known.
    pub async fn sweep(&self) -> Result<Option<Duration>> {
        loop {
            let next = self.read(|transaction| {
                let mut next: Option<u64> = None;
                for table in [DELAYED, EXPIRING] {
                    let table = transaction.open_table(table)?;
                    if let Some((key, _)) = table.first()? {
                        next = Some(next.map_or(key.value().0, |next| next.min(key.value().0)));
                    }
                }
                Ok(next)
            });
            let Some(next) = next.await? else { return Ok(None) };
            let time = milliseconds(now());
            if next > time {
                return Ok(Some(Duration::from_millis(next - time)));
            }
            for header in self.writer.run(Need::Durable, move |transaction| sweep(transaction, time)).await? {
                self.announce(&header);
            }
        }
    }

    /// Takes a job whose webhook is due, of any owner except these. Its delivery is leased for this long.
    pub async fn take_delivery(&self, lease: Duration, without: Vec<Option<String>>) -> Result<Option<Job>> {
        // Usually nothing is due, and reading blocks no other.
        let due = self.read(move |transaction| deliveries::first_due(transaction, &without)).await?;
        let Some(due) = due else { return Ok(None) };
        let leased = self.writer.run(Need::Durable, move |transaction| deliveries::lease(transaction, &due, lease));
        match leased.await? {
            Some(id) => self.get(id).await,
            None => Ok(None),
        }
    }

    /// Records the outcome of a delivery, and when to retry.
    pub async fn note_delivery(&self, id: JobId, webhook: Webhook, again: Option<Duration>) -> Result<()> {
        self.writer.run(Need::Durable, move |transaction| deliveries::note(transaction, id, &webhook, again)).await
    }

    /// Charges runs against a daily quota. Returns false, and charges nothing, if too few are left.
    pub async fn spend(&self, who: String, runs: u64, most: u64) -> Result<bool> {
        self.writer.run(Need::Soon, move |transaction| spend(transaction, &who, runs, most)).await
    }

    /// Forgets jobs that ended too long ago. Returns how many.
    pub async fn expire(&self) -> Result<usize> {
        let before = milliseconds(now() - self.retention.as_secs_f64());
        let mut forgotten = 0;
        loop {
            // Usually there is nothing to forget, and reading blocks no other.
            let any = self.read(move |transaction| {
                let old = transaction.open_table(ENDED)?.first()?.is_some_and(|(key, _)| key.value().0 < before);
                let over = transaction.open_table(QUOTAS)?.first()?.is_some_and(|(key, _)| key.value().0 < today());
                Ok(old || over)
            });
            if !any.await? {
                return Ok(forgotten);
            }
            forgotten += self.writer.run(Need::Soon, move |transaction| forget_old(transaction, before)).await?;
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
        lock(&self.followed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "redis"))]
mod measure {
    use super::tables::{ACCOUNTS, HEADERS, OwnerUsage, RESULTS};
    use super::*;
    use crate::header::OVERHEAD;
    use crate::store::Usage;

    impl Embedded {
        pub(crate) fn usage(&self, owner: &str) -> Usage {
            self.disk
                .read(|transaction| {
                    let accounts = transaction.open_table(ACCOUNTS)?;
                    let found = accounts.get(owner)?.map(|account| account.value().into());
                    let OwnerUsage { waiting, running, bytes, .. } = found.unwrap_or_default();
                    Ok(Usage { waiting, running, bytes })
                })
                .expect("read")
        }

        /// What an owner has, found by reading everything.
        pub(crate) fn measured(&self, owner: &str) -> Usage {
            let measure = |transaction: &ReadTransaction| {
                let mut usage = Usage::default();
                for entry in transaction.open_table(HEADERS)?.iter()? {
                    let (id, bytes) = entry?;
                    let header = JobHeader::decode(bytes.value()).expect("a header");
                    if header.owner_name() != owner {
                        continue;
                    }
                    let mut bytes = OVERHEAD;
                    for table in [REQUESTS, RESULTS, WEBHOOKS] {
                        let found = transaction.open_table(table)?.get(id.value())?;
                        bytes += found.map_or(0, |found| found.value().len() as u64);
                    }
                    let range = (id.value(), 0)..=(id.value(), u64::MAX);
                    for event in transaction.open_table(EVENTS)?.range(range)? {
                        bytes += event?.1.value().len() as u64;
                    }
                    usage.add(header.status, bytes);
                }
                Ok(usage)
            };
            self.disk.read(measure).expect("read")
        }
    }
}
