//! The worker: one loop takes jobs from the queue as slots become free, another renews their leases.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_executor::{EventEncoder, Observer, RunEvent, RunResult, Step, Stream, Verdict};
use sandbox_jobs::{Attempt, Job, JobId, JobStore, Offer, StoreError};
use tokio::runtime::Handle;

use crate::runs::{CancelHandle, perform};
use crate::state::App;

/// The longest that the worker waits before it looks at the queue again.
const GLANCE: Duration = Duration::from_secs(1);

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
    let turns = app.jobs.next_owners(app.bounds.bytes_per_owner, &app.labels).await?;
    let owners = turns.owners;
    let none_waits = owners.is_empty();
    // The slot comes before the job: a job that was taken runs.
    let Some((owner, slot)) = app.slots.job(owners) else {
        let full = !none_waits && app.slots.are_full_for_jobs();
        tokio::select! {
            () = app.jobs.something_queued(GLANCE), if !full => {}
            () = app.slots.changed(), if !none_waits => {}
        }
        return Ok(());
    };
    // Another server may have been faster.
    let Some(job) = app.jobs.take(owner.as_deref(), &Offer { labels: app.labels.clone(), alone: false }).await? else {
        return Ok(());
    };
    let (app, handle) = (Arc::clone(app), Handle::current());
    tokio::task::spawn_blocking(move || {
        carry_out(&app, &handle, &job);
        drop(slot);
    });
    Ok(())
}

/// Does what time makes due in the store, until the server ends.
pub(crate) async fn sweep(app: Arc<App>) {
    loop {
        let next = match app.jobs.sweep().await {
            Ok(next) => next.unwrap_or(GLANCE),
            Err(error) => {
                tracing::error!(%error, "cannot sweep the job queue");
                GLANCE
            }
        };
        tokio::time::sleep(next.clamp(Duration::from_millis(10), GLANCE)).await;
    }
}

/// Renews the leases of the jobs that run here, and learns which of them were cancelled.
pub(crate) async fn report(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let runs: Vec<Attempt> = running(&app).values().map(|job| job.attempt).collect();
        if runs.is_empty() {
            continue;
        }
        match app.jobs.heartbeat(runs).await {
            Ok(report) => {
                for id in report.cancelled {
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
    let result = match result {
        Ok(result) => result,
        // The host failed, not the job: it is run again.
        Err(refused) if refused.is_internal() => {
            if let Err(error) = handle.block_on(app.jobs.fail(attempt, internal_error(refused.to_string()))) {
                tracing::error!(%error, id = %job.id, "cannot requeue a job");
            }
            return;
        }
        Err(refused) => internal_error(refused.to_string()),
    };
    if result.verdict == Verdict::Cancelled && !here.cancelled.load(Ordering::Relaxed) {
        // The server ends, the job does not: another server runs it.
        if let Err(error) = handle.block_on(app.jobs.put_back(attempt)) {
            tracing::error!(%error, id = %job.id, "cannot requeue a job");
        }
        return;
    }
    conclude(app, handle, attempt, result);
}

fn internal_error(error: String) -> Arc<RunResult> {
    Arc::new(RunResult::internal_error(error))
}

/// Ends a job with its result.
fn conclude(app: &App, handle: &Handle, attempt: Attempt, result: Arc<RunResult>) {
    if let Err(error) = handle.block_on(app.jobs.finish(attempt, result)) {
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
        if let Err(error) = self.handle.block_on(self.store.append(self.attempt, vec![event])) {
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
