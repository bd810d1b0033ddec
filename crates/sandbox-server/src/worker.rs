//! Carrying out jobs: one loop that takes them from the queue as slots become free, another that says that they go on.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_executor::{Observer, RunResult, Step, Stream, Verdict};
use sandbox_jobs::{Job, JobId, RunOf, Store, StoreError};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::app::App;
use crate::execute::Happening;
use crate::trace::Trace;

/// A job that runs here.
#[derive(Debug)]
pub(crate) struct RunningJob {
    stop: OwnedFd,
    /// Whether a client, and not the end of the server, wants it to end.
    cancelled: AtomicBool,
    run: RunOf,
}

impl RunningJob {
    fn new(run: RunOf) -> std::io::Result<Self> {
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self { stop, cancelled: AtomicBool::new(false), run })
    }

    /// Ends the job's run.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

/// Takes jobs until the server closes.
pub(crate) async fn work(app: Arc<App>) {
    while !app.closing.load(Ordering::Relaxed) {
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

/// Says from time to time that the jobs which run here go on, and hears which of them nobody wants any more.
pub(crate) async fn report(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let runs: Vec<RunOf> = running(&app).values().map(|job| job.run).collect();
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
            Err(error) => tracing::error!(%error, "cannot say that jobs go on"),
        }
    }
}

/// The jobs that run here.
pub(crate) fn running(app: &App) -> MutexGuard<'_, HashMap<JobId, Arc<RunningJob>>> {
    app.running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries a job out, in a thread that may block.
fn carry_out(app: &App, handle: &Handle, job: &Job) {
    let run = job.run();
    let conclude = |result: &RunResult, trace: Option<Trace>| {
        app.metrics.run(result);
        if let Some(trace) = trace {
            trace.end(result);
        }
        let value = serde_json::to_value(result).unwrap_or(Value::Null);
        let cancelled = result.verdict == Verdict::Cancelled;
        if let Err(error) = handle.block_on(app.jobs.finish(run, cancelled, value)) {
            tracing::error!(%error, id = %job.id, "cannot finish a job");
        }
    };
    let here = match RunningJob::new(run) {
        Ok(here) => Arc::new(here),
        Err(error) => return conclude(&RunResult::internal_error(format!("cannot prepare the run: {error}")), None),
    };
    let trace = Trace::begin(&job.id.to_string());
    running(app).insert(job.id, Arc::clone(&here));
    app.runs.fetch_add(1, Ordering::Relaxed);
    let mut recorder = Recorder { store: &app.jobs, handle, run };
    let cancel = [here.stop.as_fd(), app.kill.as_fd()];
    let result = app
        .engine
        .check(&job.request, job.owner.as_deref())
        .and_then(|checked| app.engine.run(checked, &cancel, &mut recorder))
        .map_or_else(|refused| RunResult::internal_error(refused.to_string()), |(result, _)| result);
    running(app).remove(&job.id);
    if result.verdict == Verdict::Cancelled && !here.cancelled.load(Ordering::Relaxed) {
        // The server ends, the job does not: somebody else runs it.
        if let Err(error) = handle.block_on(app.jobs.put_back(run)) {
            tracing::error!(%error, id = %job.id, "cannot put a job back");
        }
        return;
    }
    conclude(&result, Some(trace));
}

/// Writes what happens into the store.
struct Recorder<'a> {
    store: &'a Store,
    handle: &'a Handle,
    run: RunOf,
}

impl Recorder<'_> {
    fn note(&self, what: Value) {
        if let Err(error) = self.handle.block_on(self.store.append(self.run, what)) {
            tracing::error!(%error, id = %self.run.id, "cannot note an event");
        }
    }
}

impl Observer for Recorder<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let name = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        self.note(json!({ "event": name, "data": String::from_utf8_lossy(bytes) }));
    }

    fn step(&mut self, step: Step, what: &str) {
        let happening = Happening::Step { step: step.name(), what: what.to_owned() };
        self.note(serde_json::to_value(happening).unwrap_or(Value::Null));
    }
}
