//! Carrying out jobs: one loop that takes them from the queue as places become free.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use sandbox_executor::{Observer, Refused, RunResult, Step, Stream, Verdict};
use sandbox_jobs::{Job, JobId, Store};
use serde_json::{Value, json};

use crate::app::App;
use crate::execute::Happening;

/// A job that runs here.
#[derive(Debug)]
pub(crate) struct RunningJob {
    stop: OwnedFd,
    /// Whether a client, and not the end of the server, wants it to end.
    cancelled: AtomicBool,
}

impl RunningJob {
    fn new() -> std::io::Result<Self> {
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self { stop, cancelled: AtomicBool::new(false) })
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
        // A place is taken only when there is something to do: others may want it.
        let store = Arc::clone(&app.jobs);
        if !matches!(tokio::task::spawn_blocking(move || store.waiting()).await, Ok(Ok(1..))) {
            app.jobs.something_queued().await;
            continue;
        }
        let Ok(permit) = Arc::clone(&app.capacity).acquire_owned().await else { return };
        let store = Arc::clone(&app.jobs);
        let taken = tokio::task::spawn_blocking(move || store.take()).await;
        match taken {
            Ok(Ok(Some(job))) => {
                let app = Arc::clone(&app);
                tokio::task::spawn_blocking(move || {
                    carry_out(&app, &job);
                    drop(permit);
                });
            }
            Ok(Ok(None)) => {
                drop(permit);
                app.jobs.something_queued().await;
            }
            Ok(Err(error)) => {
                drop(permit);
                tracing::error!(%error, "cannot take a job");
                app.jobs.something_queued().await;
            }
            Err(_) => return,
        }
    }
}

fn carry_out(app: &App, job: &Job) {
    let running = match RunningJob::new() {
        Ok(running) => Arc::new(running),
        Err(error) => return conclude(app, job.id, false, &failed(format!("cannot prepare the run: {error}"))),
    };
    app.running.lock().unwrap_or_else(PoisonError::into_inner).insert(job.id, Arc::clone(&running));
    app.runs.fetch_add(1, Ordering::Relaxed);
    let mut recorder = Recorder { store: &app.jobs, id: job.id };
    let cancel = [running.stop.as_fd(), app.kill.as_fd()];
    let result = app
        .engine
        .check(&job.request)
        .and_then(|checked| app.engine.run(checked, &cancel, &mut recorder))
        .unwrap_or_else(|refused: Refused| failed(refused.to_string()));
    app.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&job.id);
    let cancelled = running.cancelled.load(Ordering::Relaxed);
    if result.verdict == Verdict::Cancelled && !cancelled {
        // The server ends, the job does not: somebody else runs it.
        if let Err(error) = app.jobs.put_back(job.id) {
            tracing::error!(%error, id = %job.id, "cannot put a job back");
        }
        return;
    }
    conclude(app, job.id, result.verdict == Verdict::Cancelled, &result);
}

fn failed(error: String) -> RunResult {
    RunResult::internal_error(error)
}

fn conclude(app: &App, id: JobId, cancelled: bool, result: &RunResult) {
    let value = serde_json::to_value(result).unwrap_or(Value::Null);
    if let Err(error) = app.jobs.finish(id, cancelled, value) {
        tracing::error!(%error, %id, "cannot finish a job");
    }
    tracing::info!(%id, verdict = result.verdict.name(), "job");
}

/// Writes what happens into the store.
struct Recorder<'a> {
    store: &'a Store,
    id: JobId,
}

impl Recorder<'_> {
    fn note(&self, what: &Value) {
        if let Err(error) = self.store.append(self.id, what) {
            tracing::error!(%error, id = %self.id, "cannot note an event");
        }
    }
}

impl Observer for Recorder<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let name = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        self.note(&json!({ "event": name, "data": String::from_utf8_lossy(bytes) }));
    }

    fn step(&mut self, step: Step, what: &str) {
        let happening = Happening::Step { step: step.name(), what: what.to_owned() };
        self.note(&serde_json::to_value(happening).unwrap_or(Value::Null));
    }
}
