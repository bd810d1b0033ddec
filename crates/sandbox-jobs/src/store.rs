//! One contract, two stores: embedded in a file, or Redis when many machines share the work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandbox_executor::{RunEvent, RunResult};

use crate::embedded::{Embedded, FileError};
use crate::header::JobHeader;
use crate::model::{
    Attempt, Backlog, Created, Event, Exceeded, Filter, HeartbeatReport, Job, JobId, Labels, NewJob, Offer, Page,
    Progress, StoreLimits, Turns, Webhook,
};
#[cfg(feature = "redis")]
use crate::redis::{RedisSettings, RedisStore, RedisWatch};

/// A job store.
#[derive(Debug, Clone)]
pub enum JobStore {
    /// In a file that belongs to this server.
    Embedded(Arc<Embedded>),
    /// In Redis.
    #[cfg(feature = "redis")]
    Redis(Arc<RedisStore>),
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file did.
    #[error("the job store failed: {0}")]
    File(#[from] FileError),
    /// Redis did.
    #[cfg(feature = "redis")]
    #[error("Redis failed: {0}")]
    Redis(#[from] ::redis::RedisError),
    /// The server is about to end.
    #[error("the job store is closed")]
    Gone,
}

impl StoreError {
    /// Whether the store has no room for more jobs. Jobs can be read all the same.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::File(error) => matches!(error, FileError::Full),
            #[cfg(feature = "redis")]
            Self::Redis(error) => crate::redis::is_full(error),
            Self::Gone => false,
        }
    }
}

impl StoreError {
    /// Whether the store cannot be reached now, and the same call may work later.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::File(_) | Self::Gone => false,
            #[cfg(feature = "redis")]
            Self::Redis(_) => !self.is_full(),
        }
    }

    /// Whether the store did not answer, or answered that it is still starting.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::File(_) | Self::Gone => false,
            #[cfg(feature = "redis")]
            Self::Redis(error) => error.is_io_error() || error.is_timeout() || error.code() == Some("LOADING"),
        }
    }
}

type Result<T> = std::result::Result<T, StoreError>;

/// Calls the store that this is.
macro_rules! on_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Embedded($store) => Ok($call.await?),
            #[cfg(feature = "redis")]
            Self::Redis($store) => Ok($call.await?),
        }
    };
}

impl JobStore {
    /// The store in a file. Jobs that were running when its last user died are queued again, or given up.
    pub fn embedded(file: &Path, retention: Duration) -> Result<Self> {
        Ok(Self::Embedded(Arc::new(Embedded::open(file, retention)?)))
    }

    /// The store in Redis.
    #[cfg(feature = "redis")]
    pub async fn redis(settings: RedisSettings, retention: Duration) -> Result<Self> {
        Ok(Self::Redis(Arc::new(RedisStore::connect(settings, retention).await?)))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embedded(..) => "embedded",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
        }
    }

    /// Creates a job and queues it, in one step: first the idempotency key is looked up, then the bounds of the queue are
    /// checked, then the quota is charged. The job is durable when this returns.
    ///
    /// A key that is known creates no job and costs nothing, whatever the bounds: it returns the job that it created
    /// before. A key is kept for as long as its job.
    pub async fn create(&self, new: NewJob, bounds: StoreLimits) -> Result<Created> {
        let created = self.try_create(new.clone(), bounds).await?;
        if created != Created::Refused(Exceeded::BytesPerOwner) {
            return Ok(created);
        }
        // Jobs whose time is up do not count, even if they have not been forgotten yet.
        self.expire().await?;
        self.try_create(new, bounds).await
    }

    async fn try_create(&self, new: NewJob, bounds: StoreLimits) -> Result<Created> {
        on_store!(self, store => store.create(new, bounds))
    }

    /// A job.
    pub async fn get(&self, id: JobId) -> Result<Option<Job>> {
        on_store!(self, store => store.get(id))
    }

    /// The header of a job: everything except its request, result, webhook and events.
    pub async fn header(&self, id: JobId) -> Result<Option<JobHeader>> {
        on_store!(self, store => store.header(id))
    }

    /// The state of a job, without reading its request or result.
    pub async fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        on_store!(self, store => store.progress(id))
    }

    /// Fails if jobs could not be created or finished now.
    pub async fn probe(&self) -> Result<()> {
        on_store!(self, store => store.probe())
    }

    /// Jobs, newest first, from before `cursor` on.
    pub async fn list(&self, filter: Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        on_store!(self, store => store.list(filter, limit, cursor))
    }

    /// How many jobs wait, and for how long.
    pub async fn backlog(&self) -> Result<Backlog> {
        on_store!(self, store => store.backlog())
    }

    /// The owners whose jobs wait for a worker with these labels. Owners whose jobs take more bytes than this are left out.
    pub async fn next_owners(&self, most_bytes: u64, labels: &Labels) -> Result<Turns> {
        on_store!(self, store => store.next_owners(most_bytes, labels))
    }

    /// Starts an attempt of a job of this owner that fits the offer: the one with the highest priority, and of these the
    /// one that has waited longest.
    pub async fn take(&self, owner: Option<&str>, offer: &Offer) -> Result<Option<Job>> {
        on_store!(self, store => store.take(owner, offer))
    }

    /// Waits until a job may have been queued, or for this long.
    pub async fn something_queued(&self, most: Duration) {
        match self {
            Self::Embedded(store) => store.something_queued(most).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.something_queued(most).await,
        }
    }

    /// Waits until a webhook may be due, or for this long.
    pub async fn delivery_due(&self, most: Duration) {
        match self {
            Self::Embedded(store) => store.delivery_due(most).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.delivery_due(most).await,
        }
    }

    /// Renews the leases of all attempts that this server is running, and reports which of them have to end. To be called
    /// every second or so: a server that is silent loses its jobs to others.
    pub async fn heartbeat(&self, attempts: Vec<Attempt>) -> Result<HeartbeatReport> {
        on_store!(self, store => store.heartbeat(attempts))
    }

    /// Records what happened in an attempt. Returns false, and records nothing, if it is not the job's current attempt.
    pub async fn append(&self, attempt: Attempt, events: Vec<RunEvent>) -> Result<bool> {
        on_store!(self, store => store.append(attempt, events))
    }

    /// The next events of a job after one of them, at most this many. Numbers rise over all attempts. When an attempt is
    /// interrupted, its events are replaced by [`RunEvent::Restarted`].
    pub async fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        on_store!(self, store => store.events(id, after, most))
    }

    /// Takes a job whose webhook is due, of any owner except these. Its delivery is leased for this long.
    pub async fn take_delivery(&self, lease: Duration, without: Vec<Option<String>>) -> Result<Option<Job>> {
        on_store!(self, store => store.take_delivery(lease, without))
    }

    /// Records the outcome of a delivery, and when to retry.
    pub async fn note_delivery(&self, id: JobId, webhook: Webhook, again: Option<Duration>) -> Result<()> {
        on_store!(self, store => store.note_delivery(id, webhook, again))
    }

    /// Charges runs against a daily quota (in UTC). Returns false, and charges nothing, if there are not so many
    /// left.
    pub async fn spend(&self, who: &str, runs: u64, most: u64) -> Result<bool> {
        on_store!(self, store => store.spend(who.to_owned(), runs, most))
    }

    /// Ends a job with the last events and the result of its current attempt, which is the very last event. A job that was
    /// cancelled ends as cancelled, whatever the result. Returns false, and records nothing, if it is not the job's current
    /// attempt.
    pub async fn finish(&self, attempt: Attempt, last: Vec<RunEvent>, result: Arc<RunResult>) -> Result<bool> {
        on_store!(self, store => store.finish(attempt, last, result))
    }

    /// Ends an attempt that failed for reasons of the host. The job is queued again after a pause. After
    /// [`MOST_FAILURES`](crate::MOST_FAILURES) it is given up and ends with this result.
    pub async fn fail(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        on_store!(self, store => store.fail(attempt, result))
    }

    /// Ends an attempt whose keeper ended. The job is a suspect, like one whose server died: it runs again alone, and only
    /// such an attempt counts as a failure. If there were too many, the job is given up and ends with this result.
    pub async fn suspect(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        on_store!(self, store => store.suspect(attempt, result))
    }

    /// Cancels a job, and returns it as it is then. A job that waits ends. For one that runs, the cancellation is recorded
    /// before this returns, and holds whatever happens to its server: the job ends as cancelled.
    pub async fn cancel(&self, id: JobId) -> Result<Option<JobHeader>> {
        on_store!(self, store => store.cancel(id))
    }

    /// Puts a running job back into the queue, for a server that ends before it does. That does not count as a failure.
    pub async fn put_back(&self, attempt: Attempt) -> Result<bool> {
        on_store!(self, store => store.put_back(attempt))
    }

    /// Does what time has made due: delayed jobs can be taken, jobs that were not started in time end as expired, and jobs
    /// of dead servers are queued again as suspects. Returns how long until there is more to do, if it is known. To be
    /// called every second or so, by every server.
    pub async fn sweep(&self) -> Result<Option<Duration>> {
        on_store!(self, store => store.sweep())
    }

    /// Copies the store to a file that must not exist, if it is in a file. Jobs are created and run meanwhile. Returns false
    /// if the store is in Redis, which makes its own backups.
    pub async fn backup(&self, file: &Path) -> Result<bool> {
        match self {
            Self::Embedded(store) => store.backup(file).await.map(|()| true).map_err(StoreError::from),
            #[cfg(feature = "redis")]
            Self::Redis(_) => Ok(false),
        }
    }

    /// Forgets jobs that ended long ago, and returns how many. To be called from time to time.
    pub async fn expire(&self) -> Result<usize> {
        on_store!(self, store => store.expire())
    }

    /// Follows a job: wakes when it may have changed.
    #[must_use]
    pub fn follow(&self, id: JobId) -> JobWatch {
        match self {
            Self::Embedded(store) => JobWatch::Told(Arc::clone(store), id, store.follow(id)),
            #[cfg(feature = "redis")]
            Self::Redis(store) => JobWatch::Redis(store.follow(id)),
        }
    }
}

/// Follows a job.
#[derive(Debug)]
pub enum JobWatch {
    /// The store notifies it of changes.
    Told(Arc<Embedded>, JobId, tokio::sync::watch::Receiver<u64>),
    /// Redis does.
    #[cfg(feature = "redis")]
    Redis(RedisWatch),
}

impl JobWatch {
    /// Waits until the job may have changed, or for this long.
    pub async fn changed(&mut self, most: Duration) {
        match self {
            Self::Told(store, id, changes) => {
                // The sender goes when the job has ended; it may have begun anew since.
                if let Ok(Err(_)) = tokio::time::timeout(most, changes.changed()).await {
                    *changes = store.follow(*id);
                }
            }
            #[cfg(feature = "redis")]
            Self::Redis(watch) => drop(tokio::time::timeout(most, watch.changed()).await),
        }
    }
}

/// The accounts of an owner.
#[cfg(all(test, feature = "redis"))]
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) bytes: u64,
}

#[cfg(all(test, feature = "redis"))]
impl Usage {
    pub(crate) fn add(&mut self, status: crate::JobStatus, bytes: u64) {
        self.waiting += u64::from(status == crate::JobStatus::Queued);
        self.running += u64::from(status == crate::JobStatus::Running);
        self.bytes += bytes;
    }
}

#[cfg(all(test, feature = "redis"))]
impl JobStore {
    pub(crate) async fn usage(&self, owner: &str) -> Usage {
        match self {
            Self::Embedded(store) => store.usage(owner),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.usage(owner).await,
        }
    }

    pub(crate) async fn measured(&self, owner: &str) -> Usage {
        match self {
            Self::Embedded(store) => store.measured(owner),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.measured(owner).await,
        }
    }
}
