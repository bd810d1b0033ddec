//! Readiness: checks the job store, the data directory and the sandbox on demand, at most about once a second. Whether there
//! is a keeper and whether the server drains is known at any time.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use sandbox_jobs::Backlog;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::state::App;

/// The reason of a server that is shutting down.
pub(crate) const CLOSING: &str = "shutting down";

/// The reason of a server that takes no more work.
pub(crate) const DRAINING: &str = "draining";

const NO_KEEPER: &str = "the keeper has ended and is being replaced";
const NO_SPACE: &str = "the data directory is full";
const NO_STORE: &str = "the job store is unavailable";
const NO_CELL: &str = "no sandbox can be created";

/// The time for which an answer is valid.
const FRESH: Duration = Duration::from_secs(1);

/// The time limit of each part's answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The least free space in the data directory with which jobs can be stored.
const LEAST_SPACE: u64 = 8 << 20;

/// After so many runs in succession that failed for want of a sandbox, one is made to see whether that works.
const SUSPICIOUS: u64 = 3;

/// The known state of the parts that runs need.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    state: Mutex<ReadyState>,
    /// Runs that failed since the last one that did not.
    failures: AtomicU64,
    /// The jobs that waited when the store last answered.
    backlog: std::sync::Mutex<Backlog>,
}

#[derive(Debug, Default)]
struct ReadyState {
    known: Option<(Instant, Vec<&'static str>)>,
    store: Check,
    cell: Check,
    disk: Check,
}

/// A check of one part. One that hangs is waited for again, and not begun anew: it may occupy a thread.
#[derive(Debug, Default)]
struct Check(Option<JoinHandle<Result<(), String>>>);

impl Check {
    /// Whether the check of a part succeeds in time.
    async fn passes(&mut self, part: &str, check: impl Future<Output = Result<(), String>> + Send + 'static) -> bool {
        let pending = self.0.get_or_insert_with(|| tokio::spawn(check));
        let Ok(ended) = tokio::time::timeout(PATIENCE, pending).await else {
            tracing::error!(part, "a health check hangs");
            return false;
        };
        self.0 = None;
        let found = ended.unwrap_or_else(|error| Err(error.to_string()));
        found.inspect_err(|error| tracing::error!(part, error, "a health check failed")).is_ok()
    }
}

/// Whether there is space for jobs in a directory.
fn check_space(dir: &Path) -> Result<(), String> {
    let found = rustix::fs::statvfs(dir).map_err(|errno| format!("cannot examine {}: {errno}", dir.display()))?;
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    // Some file systems have no fixed number of inodes.
    if bytes < LEAST_SPACE || (found.f_files > 0 && found.f_favail == 0) {
        return Err(format!("{} has {bytes} bytes and {} inodes left", dir.display(), found.f_favail));
    }
    Ok(())
}

impl Readiness {
    /// Notes how a run ended: whether the sandbox did what it is for.
    pub(crate) fn note(&self, worked: bool) {
        if worked {
            self.failures.store(0, Ordering::Relaxed);
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many jobs wait; none if the store does not answer.
    pub(crate) async fn queue(&self, app: &Arc<App>) -> Option<u64> {
        let works = !self.reasons(app).await.contains(&NO_STORE);
        works.then(|| self.last_backlog().waiting)
    }

    /// The jobs that wait, as of the last answer of the store: an outage must not look like an empty queue to alerts and
    /// autoscalers.
    pub(crate) async fn backlog(&self, app: &Arc<App>) -> Backlog {
        self.reasons(app).await;
        self.last_backlog()
    }

    fn last_backlog(&self) -> Backlog {
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why no work can be done; none if it can.
    pub(crate) async fn reasons(&self, app: &Arc<App>) -> Vec<&'static str> {
        // Concurrent requests share the result of the first.
        let mut state = self.state.lock().await;
        let fresh = state.known.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        let mut reasons = match fresh {
            Some((_, reasons)) => reasons.clone(),
            None => self.find_out(&mut state, app).await,
        };
        drop(state);
        // These are always known.
        if app.needs_keeper() && !app.service.is_alive() {
            reasons.insert(0, NO_KEEPER);
        }
        if app.closing.load(Ordering::Relaxed) {
            reasons.insert(0, CLOSING);
        } else if app.is_draining() {
            reasons.insert(0, DRAINING);
        }
        reasons
    }

    async fn find_out(&self, state: &mut ReadyState, app: &Arc<App>) -> Vec<&'static str> {
        let suspicious =
            app.needs_keeper() && app.service.is_alive() && self.failures.load(Ordering::Relaxed) >= SUSPICIOUS;
        let own = Arc::clone(app);
        let made = async move {
            let made = tokio::task::spawn_blocking(move || own.service.try_cell()).await;
            made.map_err(|error| error.to_string())?.map_err(|failure| failure.to_string())
        };
        let own = Arc::clone(app);
        let asked = async move {
            let began = Instant::now();
            own.jobs.probe().await.map_err(|error| error.to_string())?;
            own.metrics.store_probe(began.elapsed());
            let backlog = own.jobs.backlog().await.map_err(|error| error.to_string())?;
            *own.readiness.backlog.lock().unwrap_or_else(PoisonError::into_inner) = backlog;
            Ok(())
        };
        let dir = app.data_dir.clone();
        let looked = async move {
            let looked = tokio::task::spawn_blocking(move || check_space(&dir)).await;
            looked.map_err(|error| error.to_string())?
        };
        let ReadyState { store, cell, disk, .. } = state;
        let (has_cell, has_store, has_space) = tokio::join!(
            async { !suspicious || cell.passes("sandbox", made).await },
            store.passes("job store", asked),
            disk.passes("data directory", looked),
        );
        if suspicious && has_cell {
            self.note(true);
        }
        let found = [(has_cell, NO_CELL), (has_store, NO_STORE), (has_space, NO_SPACE)];
        let reasons: Vec<_> = found.into_iter().filter(|(works, _)| !works).map(|(_, reason)| reason).collect();
        state.known = Some((Instant::now(), reasons.clone()));
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_space_is_noticed() {
        let dir = tempfile::tempdir().expect("tempdir");
        assert_eq!(check_space(dir.path()), Ok(()));
        // This file system never has any.
        assert!(check_space(Path::new("/proc")).is_err_and(|why| why.contains("has 0 bytes")));
        assert!(check_space(&dir.path().join("none")).is_err());
    }
}
