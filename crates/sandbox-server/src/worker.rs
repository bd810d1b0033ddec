//! The worker: one loop takes jobs from the queue as slots become free, another renews their leases.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_executor::{EventEncoder, Observer, RunEvent, RunResult, Step, Stream, Verdict};
use sandbox_jobs::{Attempt, Job, JobId, JobStore, StoreError};
use tokio::runtime::Handle;

use crate::runs::{CancelHandle, perform};
use crate::state::App;

/// A job that runs here.
#[derive(Debug)]
pub(crate) struct RunningJob {
    stop: CancelHandle,
    /// Whether a client, and not the end of the server, wants it to end.
    cancelled: AtomicBool,
    attempt: Attempt,
}

impl RunningJob {
    /// Ends the job's run.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }
}

/// Takes jobs until the server closes.
pub(crate) async fn work(app: Arc<App>) {
    while !app.is_draining() {
        // Without a keeper every job would fail.
        app.keeper.wait().await;
        if let Err(error) = take_one(&app).await {
            // Synchronous runs need not wait for jobs that cannot be taken.
            app.slots.job(vec![]);
            tracing::error!(%error, "cannot take a job");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Starts the next job, or waits until there may be one or a slot for it.
async fn take_one(app: &Arc<App>) -> Result<(), StoreError> {
    let owners = app.jobs.next_owners(app.bounds.bytes_per_owner).await?;
    let none_waits = owners.is_empty();
    // The slot comes before the job: a job that was taken runs.
    let Some((owner, slot)) = app.slots.job(owners) else {
        let full = !none_waits && app.slots.are_full_for_jobs();
        tokio::select! {
            () = app.jobs.something_queued(), if !full => {}
            () = app.slots.changed(), if !none_waits => {}
        }
        return Ok(());
    };
    // Another server may have been faster.
    let Some(job) = app.jobs.take(owner.as_deref()).await? else { return Ok(()) };
    let (app, handle) = (Arc::clone(app), Handle::current());
    tokio::task::spawn_blocking(move || {
        carry_out(&app, &handle, &job);
        drop(slot);
    });
    Ok(())
}

/// Renews the leases of the jobs that run here, and learns which of them were cancelled.
pub(crate) async fn report(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let runs: Vec<Attempt> = running(&app).values().map(|job| job.attempt).collect();
        if runs.is_empty() {
            continue;
        }
        match app.jobs.heartbeat(&runs).await {
            Ok(cancelled) => {
                for id in cancelled {
                    if let Some(job) = running(&app).get(&id) {
                        job.cancel();
                    }
                }
            }
            Err(error) => tracing::error!(%error, "cannot renew the leases of jobs"),
        }
    }
}

/// The jobs that run here.
pub(crate) fn running(app: &App) -> MutexGuard<'_, HashMap<JobId, Arc<RunningJob>>> {
    app.running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries a job out, in a thread that may block.
fn carry_out(app: &App, handle: &Handle, job: &Job) {
    let attempt = job.attempt();
    if attempt.number > 1 {
        app.metrics.retry();
    }
    let cancel = match CancelHandle::new() {
        Ok(cancel) => cancel,
        Err(error) => {
            return conclude(app, handle, attempt, internal_error(format!("cannot prepare the run: {error}")));
        }
    };
    let here = Arc::new(RunningJob { stop: cancel.clone(), cancelled: AtomicBool::new(false), attempt });
    running(app).insert(job.id, Arc::clone(&here));
    let mut recorder = Recorder { store: &app.jobs, handle, attempt, encoder: EventEncoder::default() };
    let result = app
        .service
        .check_json(job.request.clone(), job.owner.as_deref())
        .and_then(|checked| perform(app, &job.id.to_string(), (checked, job.waited()), &cancel, &mut recorder));
    running(app).remove(&job.id);
    let ends = if let Err(refused) = &result
        && refused.is_keeper_end()
    {
        app.keeper.suspect(job.id).map_or(KeeperEnds::Retry, KeeperEnds::TooMany)
    } else {
        app.keeper.acquit(job.id);
        KeeperEnds::None
    };
    let result = match (ends, result) {
        (KeeperEnds::TooMany(ends), _) => {
            internal_error(format!("the keeper ended {ends} times while running this job"))
        }
        (_, Ok(result)) => result,
        (_, Err(refused)) => internal_error(refused.to_string()),
    };
    let is_cancelled = here.cancelled.load(Ordering::Relaxed);
    if !is_cancelled && (ends == KeeperEnds::Retry || result.verdict == Verdict::Cancelled) {
        // The server or the keeper ends, the job does not: it is run again, here or by another server.
        if let Err(error) = handle.block_on(app.jobs.put_back(attempt)) {
            tracing::error!(%error, id = %job.id, "cannot requeue a job");
        }
        return;
    }
    conclude(app, handle, attempt, result);
}

/// What becomes of a job whose keeper ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeeperEnds {
    /// The keeper did not end.
    None,
    /// The job is run again.
    Retry,
    /// The job is given up: so many keepers have ended while they ran it.
    TooMany(u32),
}

fn internal_error(error: String) -> Arc<RunResult> {
    Arc::new(RunResult::internal_error(error))
}

/// Ends a job with its result.
fn conclude(app: &App, handle: &Handle, attempt: Attempt, result: Arc<RunResult>) {
    let cancelled = result.verdict == Verdict::Cancelled;
    if let Err(error) = handle.block_on(app.jobs.finish(attempt, cancelled, Arc::unwrap_or_clone(result))) {
        tracing::error!(%error, id = %attempt.id, "cannot finish a job");
    }
}

/// Writes events into the store.
struct Recorder<'a> {
    store: &'a JobStore,
    handle: &'a Handle,
    attempt: Attempt,
    encoder: EventEncoder,
}

impl Recorder<'_> {
    fn record(&self, event: RunEvent) {
        if let Err(error) = self.handle.block_on(self.store.append(self.attempt, event)) {
            tracing::error!(%error, id = %self.attempt.id, "cannot record an event");
        }
    }
}

impl Observer for Recorder<'_> {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        self.record(EventEncoder::start(language, version));
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(event) = self.encoder.output(stream, bytes) {
            self.record(event);
        }
    }

    fn step(&mut self, step: Step, what: &str) {
        self.record(EventEncoder::step(step, what));
    }

    fn finish(&mut self, _: &Arc<RunResult>) {
        for event in self.encoder.finish() {
            self.record(event);
        }
    }
}
