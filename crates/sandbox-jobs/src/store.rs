//! One contract, two stores: embedded in a file, or Redis when many machines share the work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandbox_executor::{RunEvent, RunResult};

use crate::embedded::{Embedded, FileError};
use crate::model::{
    Attempt, Created, Event, Exceeded, Filter, Job, JobId, NewJob, Page, Progress, StoreLimits, Webhook,
};
#[cfg(feature = "redis")]
use crate::redis::RedisStore;

/// A job store.
#[derive(Debug, Clone)]
pub enum JobStore {
    /// In a file of this server's own.
    Embedded(Arc<Embedded>, Duration),
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

type Result<T> = std::result::Result<T, StoreError>;

/// Calls the embedded store on a thread that may block on the disk.
async fn blocking<T: Send + 'static>(
    store: &Arc<Embedded>,
    call: impl FnOnce(&Embedded) -> std::result::Result<T, FileError> + Send + 'static,
) -> Result<T> {
    let store = Arc::clone(store);
    let called = tokio::task::spawn_blocking(move || call(&store)).await;
    Ok(called.map_err(|_| StoreError::Gone)??)
}

impl JobStore {
    /// The store in a file. Jobs that were running when its last user died are queued again, or given up.
    pub fn embedded(file: &Path, retention: Duration) -> Result<Self> {
        Ok(Self::Embedded(Arc::new(Embedded::open(file)?), retention))
    }

    /// The store in Redis.
    #[cfg(feature = "redis")]
    pub async fn redis(address: &str, password: Option<&str>, database: i64, retention: Duration) -> Result<Self> {
        Ok(Self::Redis(Arc::new(RedisStore::connect(address, password, database, retention).await?)))
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

    /// Creates a job and queues it.
    ///
    /// A key that is known makes no new job, whatever the bounds: what is returned is the job that it made before.
    pub async fn create(&self, new: NewJob, bounds: StoreLimits) -> Result<Created> {
        let new = Arc::new(new);
        let created = self.try_create(&new, bounds).await?;
        if created != Created::Refused(Exceeded::BytesPerOwner) {
            return Ok(created);
        }
        // Jobs whose time is up do not count, even if they have not been forgotten yet.
        self.expire().await?;
        self.try_create(&new, bounds).await
    }

    async fn try_create(&self, new: &Arc<NewJob>, bounds: StoreLimits) -> Result<Created> {
        match self {
            Self::Embedded(store, _) => {
                let new = Arc::clone(new);
                blocking(store, move |store| store.create(&new, &bounds)).await
            }
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.create(new, &bounds).await?),
        }
    }

    /// A job.
    pub async fn get(&self, id: JobId) -> Result<Option<Job>> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.get(id)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.get(id).await?),
        }
    }

    /// How far a job is, without reading what it was asked or answered.
    pub async fn progress(&self, id: JobId) -> Result<Option<Progress>> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.progress(id)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.progress(id).await?),
        }
    }

    /// Fails if jobs could not be created or finished now.
    pub async fn probe(&self) -> Result<()> {
        match self {
            Self::Embedded(store, _) => blocking(store, Embedded::probe).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.probe().await?),
        }
    }

    /// Jobs, newest first, from before `cursor` on.
    pub async fn list(&self, filter: Filter, limit: usize, cursor: Option<JobId>) -> Result<Page> {
        match self {
            Self::Embedded(store, _) => {
                let _turn = store.listings.acquire().await.map_err(|_| StoreError::Gone)?;
                blocking(store, move |store| store.list(&filter, limit, cursor)).await
            }
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.list(&filter, limit, cursor).await?),
        }
    }

    /// How many jobs wait.
    pub async fn waiting(&self) -> Result<u64> {
        match self {
            Self::Embedded(store, _) => blocking(store, Embedded::waiting).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.waiting().await?),
        }
    }

    /// The owners whose jobs wait, the one to be served next first: it has the fewest running jobs, or was served longest
    /// ago. Owners whose jobs take more bytes than this are left out.
    pub async fn next_owners(&self, most_bytes: u64) -> Result<Vec<Option<String>>> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.next_owners(most_bytes)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.next_owners(most_bytes).await?),
        }
    }

    /// Takes the job of an owner that has waited longest, and starts a run of it.
    pub async fn take(&self, owner: Option<&str>) -> Result<Option<Job>> {
        match self {
            Self::Embedded(store, _) => {
                let owner = owner.map(str::to_owned);
                blocking(store, move |store| store.take(owner.as_deref())).await
            }
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.take(owner).await?),
        }
    }

    /// Waits until a job may have been queued.
    pub async fn something_queued(&self) {
        match self {
            Self::Embedded(store, _) => store.something_queued().await,
            #[cfg(feature = "redis")]
            Self::Redis(_) => tokio::time::sleep(Duration::from_millis(25)).await,
        }
    }

    /// Renews the leases of these attempts; returns the jobs that are to be cancelled. To be called every second or
    /// so: a server that is silent loses its jobs to others.
    #[cfg_attr(
        not(feature = "redis"),
        expect(unused_variables, clippy::unused_async, reason = "a file belongs to one server, which keeps its jobs")
    )]
    pub async fn heartbeat(&self, runs: &[Attempt]) -> Result<Vec<JobId>> {
        match self {
            Self::Embedded(..) => Ok(vec![]),
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.heartbeat(runs).await?),
        }
    }

    /// Notes something that happened in a run.
    pub async fn append(&self, attempt: Attempt, what: RunEvent) -> Result<()> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.append(attempt, &what)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.append(attempt, &what).await?),
        }
    }

    /// The next events of a job after one of them, at most this many.
    pub async fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.events(id, after, most)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.events(id, after, most).await?),
        }
    }

    /// Takes a job whose webhook is due, of any owner except these. Its delivery is leased for this long.
    pub async fn take_delivery(&self, lease: Duration, without: Vec<Option<String>>) -> Result<Option<Job>> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.take_delivery(lease, &without)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.take_delivery(lease, &without).await?),
        }
    }

    /// Records the outcome of a delivery, and when to retry.
    pub async fn note_delivery(&self, id: JobId, webhook: Webhook, again: Option<Duration>) -> Result<()> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.note_delivery(id, &webhook, again)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.note_delivery(id, &webhook, again).await?),
        }
    }

    /// Charges runs against a daily quota (in UTC). Returns false, and charges nothing, if there are not so many
    /// left.
    pub async fn spend(&self, who: &str, runs: u64, most: u64) -> Result<bool> {
        let owned = who.to_owned();
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.spend(&owned, runs, most)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.spend(who, runs, most).await?),
        }
    }

    /// Ends a job with its run's result, which is its last event too.
    pub async fn finish(&self, attempt: Attempt, cancelled: bool, result: RunResult) -> Result<()> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.finish(attempt, cancelled, result)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.finish(attempt, cancelled, result).await?),
        }
    }

    /// Cancels a job that waits; one that runs is cancelled by the server that runs it. Returns the job as it is then.
    pub async fn cancel(&self, id: JobId) -> Result<Option<Job>> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.cancel(id)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.cancel(id).await?),
        }
    }

    /// Puts a running job back into the queue, for a server that ends before it does.
    pub async fn put_back(&self, attempt: Attempt) -> Result<()> {
        match self {
            Self::Embedded(store, _) => blocking(store, move |store| store.put_back(attempt)).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.put_back(attempt).await?),
        }
    }

    /// Forgets jobs that ended long ago. To be called from time to time.
    pub async fn expire(&self) -> Result<usize> {
        match self {
            Self::Embedded(store, retention) => {
                let retention = *retention;
                blocking(store, move |store| store.expire(retention)).await
            }
            #[cfg(feature = "redis")]
            Self::Redis(store) => Ok(store.expire().await?),
        }
    }

    /// Follows a job: wakes when it may have changed.
    #[must_use]
    pub fn follow(&self, id: JobId) -> JobWatch {
        match self {
            Self::Embedded(store, _) => JobWatch::Told(Arc::clone(store), id, store.follow(id)),
            #[cfg(feature = "redis")]
            Self::Redis(_) => JobWatch::Asks,
        }
    }
}

/// Follows a job.
#[derive(Debug)]
pub enum JobWatch {
    /// The store notifies it of changes.
    Told(Arc<Embedded>, JobId, tokio::sync::watch::Receiver<u64>),
    /// It has to poll.
    Asks,
}

impl JobWatch {
    /// Whether the store notifies of changes, so that polling can be rare.
    #[must_use]
    pub fn is_told(&self) -> bool {
        matches!(self, Self::Told(..))
    }

    /// Waits until the job may have changed, or for this long.
    pub async fn changed(&mut self, most: Duration) {
        match self {
            Self::Told(store, id, changes) => {
                // The sender goes when the job has ended; it may have begun anew since.
                if let Ok(Err(_)) = tokio::time::timeout(most, changes.changed()).await {
                    *changes = store.follow(*id);
                }
            }
            Self::Asks => tokio::time::sleep(most).await,
        }
    }
}

/// What an owner has.
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
            Self::Embedded(store, _) => store.usage(owner),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.usage(owner).await,
        }
    }

    pub(crate) async fn measured(&self, owner: &str) -> Usage {
        match self {
            Self::Embedded(store, _) => store.measured(owner),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.measured(owner).await,
        }
    }
}
