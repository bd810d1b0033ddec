//! Following jobs: one watcher for each followed job, shared by all clients that follow it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sandbox_jobs::{JobId, JobStore, Progress};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How long a watcher relies on the store to notify it of changes. Stores are reliable in this, and looking costs commands.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a watcher waits after a failure of the store.
const RETRY: Duration = Duration::from_secs(1);

/// The number of jobs that are remembered before those that are not followed any more are forgotten.
const MOST_REMEMBERED: usize = 64;

/// The jobs that are followed.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    jobs: Mutex<HashMap<JobId, Weak<Watcher>>>,
    watchers: Arc<AtomicUsize>,
}

/// The updates that followers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing is known yet.
    None,
    /// The job is this far.
    At(Progress),
    /// The job does not exist any more.
    Gone,
}

impl News {
    /// Whether nothing more will happen.
    pub(crate) fn is_final(self) -> bool {
        match self {
            Self::None => false,
            Self::At(progress) => progress.status.is_final(),
            Self::Gone => true,
        }
    }
}

/// Watches a job until it is dropped.
#[derive(Debug)]
struct Watcher {
    news: watch::Receiver<News>,
    task: AbortHandle,
    watchers: Arc<AtomicUsize>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client's part in watching a job.
#[derive(Debug)]
pub(crate) struct JobFollower {
    news: watch::Receiver<News>,
    _watcher: Arc<Watcher>,
}

impl JobFollower {
    /// The state of the job, as far as is known.
    pub(crate) fn news(&mut self) -> News {
        *self.news.borrow_and_update()
    }

    /// Waits for news; there may be none any more.
    pub(crate) async fn changed(&mut self) {
        if self.news.changed().await.is_err() {
            // The watcher ended with the job, after its last news.
            std::future::pending::<()>().await;
        }
    }
}

impl Followed {
    /// Whether a client of this server follows a job.
    pub(crate) fn is_followed(&self, id: JobId) -> bool {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(&id).is_some_and(|watcher| watcher.strong_count() > 0)
    }

    /// Follows a job.
    pub(crate) fn follow(&self, store: &JobStore, id: JobId) -> JobFollower {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = jobs.get(&id).and_then(Weak::upgrade).filter(|watcher| !watcher.news.borrow().is_final());
        let watcher = known.unwrap_or_else(|| {
            if jobs.len() >= MOST_REMEMBERED.max(2 * self.watchers.load(Ordering::Relaxed)) {
                jobs.retain(|_, watcher| watcher.strong_count() > 0);
            }
            let (sender, news) = watch::channel(News::None);
            self.watchers.fetch_add(1, Ordering::Relaxed);
            let task = tokio::spawn(keep_watch(store.clone(), id, sender));
            let watcher = Arc::new(Watcher { news, task: task.abort_handle(), watchers: Arc::clone(&self.watchers) });
            jobs.insert(id, Arc::downgrade(&watcher));
            watcher
        });
        let mut news = watcher.news.clone();
        news.mark_changed();
        JobFollower { news, _watcher: watcher }
    }
}

/// Tells followers how far a job is until it has ended.
async fn keep_watch(store: JobStore, id: JobId, followers: watch::Sender<News>) {
    // Followed before it is looked at, so that no change falls between.
    let mut changes = store.follow(id);
    loop {
        let (news, patience) = match store.progress(id).await {
            Ok(progress) => (progress.map_or(News::Gone, News::At), PATIENCE),
            Err(error) => {
                tracing::error!(%error, %id, "cannot read the progress of a job");
                (followers.borrow().to_owned(), RETRY)
            }
        };
        followers.send_if_modified(|told| std::mem::replace(told, news) != news);
        if news.is_final() {
            return;
        }
        changes.changed(patience).await;
    }
}
