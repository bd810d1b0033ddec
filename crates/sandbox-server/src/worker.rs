//! The worker: one loop takes jobs from the queue as slots become free, another renews their leases.
//!
//! Jobs that were running when a server died are suspects: each runs again alone, with no other job of the queue beside it on
//! this server, so that a job that takes its server down takes no other with it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_executor::{Refused, RunResult, Verdict};
use sandbox_jobs::{Attempt, Job, JobId, Offer, StoreError};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::capacity::Slot;
use crate::memory_budget::{ClientId, Reservation};
use crate::recorder::{EventBatch, Recorder, persist};
use crate::runs::{CancelHandle, perform, survive_panic};
use crate::state::App;

/// The longest that the worker waits before it looks at the queue again.
const GLANCE: Duration = Duration::from_secs(1);

/// How long to wait before looking again when there was no job to take after all.
const OVERTAKEN: Duration = Duration::from_millis(10);

/// The client, in the memory budget, whose share the requests of running jobs have. No API key has such a name.
const JOBS: &str = "running jobs";

/// A job that runs here.
#[derive(Debug)]
pub(crate) struct RunningJob {
    stop: CancelHandle,
    /// Whether a client, and not the end of the server, wants it to end.
    cancelled: AtomicBool,
    attempt: Attempt,
}

impl RunningJob {
    /// Ends the job's run, because a client has cancelled it.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }
}

/// How many jobs run here or wait for the store to record their end, and whether one of them must be alone. It belongs to the
/// server and not to the loop that takes jobs, which forgets everything when it panics, while the jobs go on.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    jobs: AtomicUsize,
    /// How many of them have ended and wait for the store.
    unrecorded: AtomicUsize,
    alone: AtomicBool,
    /// Wakes the worker when one is recorded.
    recorded: Notify,
}

/// A job's part in the workload, until it is dropped.
struct WorkShare {
    workload: Arc<Workload>,
    alone: bool,
    /// Whether the run has ended, so that only its end is to be recorded.
    has_ended: bool,
}

impl Workload {
    fn begin(self: &Arc<Self>, alone: bool) -> WorkShare {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        self.alone.fetch_or(alone, Ordering::SeqCst);
        WorkShare { workload: Arc::clone(self), alone, has_ended: false }
    }

    /// How many jobs have ended, and given back their slots, but wait for the store to record it.
    pub(crate) fn unrecorded(&self) -> usize {
        self.unrecorded.load(Ordering::SeqCst)
    }

    /// Waits until the end of a job may have been recorded.
    async fn a_job_was_recorded(&self) {
        let _ = tokio::time::timeout(GLANCE, self.recorded.notified()).await;
    }
}

impl WorkShare {
    /// Notes that the run has ended, before its slot is free.
    fn run_ended(&mut self) {
        self.has_ended = true;
        self.workload.unrecorded.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for WorkShare {
    fn drop(&mut self) {
        if self.alone {
            self.workload.alone.store(false, Ordering::SeqCst);
        }
        if self.has_ended {
            self.workload.unrecorded.fetch_sub(1, Ordering::SeqCst);
        }
        self.workload.jobs.fetch_sub(1, Ordering::SeqCst);
        self.workload.recorded.notify_one();
    }
}

/// What the worker does next.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    /// Takes a job of one of these owners.
    Take {
        /// The owners, the one to be served next first.
        owners: Vec<Option<String>>,
        /// Whether it has to run alone.
        alone: bool,
    },
    /// Waits until jobs have ended here: a suspect runs, or waits for its turn, or there are as many jobs as may be.
    WaitForJobs,
}

/// Decides what to do beside `most` jobs at most, those that run here among them. Suspects come first: no other job is
/// started until they have run.
fn next_step(turns: sandbox_jobs::Turns, workload: &Workload, most: usize) -> NextStep {
    let (jobs, one_is_alone) = (workload.jobs.load(Ordering::SeqCst), workload.alone.load(Ordering::SeqCst));
    if one_is_alone || jobs >= most || (jobs > 0 && !turns.suspects.is_empty()) {
        NextStep::WaitForJobs
    } else if turns.suspects.is_empty() {
        NextStep::Take { owners: turns.owners, alone: false }
    } else {
        NextStep::Take { owners: turns.suspects, alone: true }
    }
}

/// Takes jobs until the server closes.
pub(crate) async fn work(app: Arc<App>) {
    while !app.is_draining() {
        // Without a keeper every job would fail.
        app.keeper.wait(&app.service).await;
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
    // Results that wait for a slow store keep no slot, but there is an end to them.
    let (owners, alone) = match next_step(turns, &app.workload, 2 * app.slots.capacity()) {
        NextStep::Take { owners, alone } => (owners, alone),
        NextStep::WaitForJobs => {
            app.slots.job(vec![]);
            app.workload.a_job_was_recorded().await;
            return Ok(());
        }
    };
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
    let share = app.workload.begin(alone);
    // Another server may have been faster.
    let offer = Offer { labels: app.labels.clone(), alone };
    let Some(job) = app.jobs.take(owner.as_deref(), &offer).await? else {
        // Or the first job has expired: the store says so until it is swept.
        drop((share, slot));
        tokio::time::sleep(OVERTAKEN).await;
        return Ok(());
    };
    let (app, handle) = (Arc::clone(app), Handle::current());
    // It does not wait for memory: a batch that has it may wait for this slot.
    let size = usize::try_from(job.request_bytes).unwrap_or(usize::MAX);
    let memory = app.bodies.take_available(&ClientId(JOBS.into()), size);
    tokio::task::spawn_blocking(move || carry_out(&app, &handle, job, (slot, memory), share));
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

/// Renews the leases of the jobs that run here, and learns which of them have to end.
pub(crate) async fn report(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let attempts: Vec<Attempt> = running(&app).values().map(|job| job.attempt).collect();
        if attempts.is_empty() {
            continue;
        }
        let report = match app.jobs.heartbeat(attempts.clone()).await {
            Ok(report) => report,
            Err(error) => {
                tracing::error!(%error, "cannot renew the leases of jobs");
                continue;
            }
        };
        // A job may have been started again since.
        let find = |id: &JobId| running(&app).get(id).filter(|job| attempts.contains(&job.attempt)).cloned();
        for job in report.cancelled.iter().filter_map(find) {
            job.cancel();
        }
        for job in report.lost.iter().filter_map(find) {
            tracing::warn!(id = %job.attempt.id, attempt = job.attempt.number, "lost the lease of a job");
            app.metrics.lost_lease();
            job.stop.cancel();
        }
    }
}

/// The jobs that run here.
pub(crate) fn running(app: &App) -> MutexGuard<'_, HashMap<JobId, Arc<RunningJob>>> {
    app.running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries a job out, in a thread that may block. When the run has ended, thread and slot are free for another one, while the
/// end is recorded. Until that is done, the job's lease is renewed.
fn carry_out(app: &Arc<App>, handle: &Handle, mut job: Job, owned: (Slot, Reservation), mut share: WorkShare) {
    let (attempt, keeper) = (job.attempt(), app.keeper.number());
    app.metrics.job(job.waited(), attempt.number > 1);
    let stop = match CancelHandle::new() {
        Ok(stop) => stop,
        Err(error) => {
            let failed = internal_error(format!("cannot prepare the run: {error}"));
            return handle.block_on(conclude(app, attempt, AttemptEnd::HostFailure(failed)));
        }
    };
    let here = Arc::new(RunningJob { stop: stop.clone(), cancelled: AtomicBool::new(false), attempt });
    running(app).insert(job.id, Arc::clone(&here));
    let lost = Arc::clone(&here);
    let late = app.metrics.late_output();
    let mut recorder = Recorder::start(
        &app.jobs,
        &app.followed,
        handle,
        attempt,
        move || {
            late.inc();
        },
        move || lost.stop.cancel(),
    );
    let cancel = [stop.as_fd(), app.kill.as_fd()];
    let request = std::mem::take(&mut job.request);
    let check = || app.service.check_json(request, job.owner.as_deref(), &cancel);
    let ended = survive_panic(check, || app.metrics.panic())
        .and_then(|checked| perform(app, &job.id.to_string(), (checked, job.waited()), &stop, &mut recorder));
    share.run_ended();
    drop(owned);
    let app = Arc::clone(app);
    handle.spawn(async move {
        let last = recorder.finish(ended.as_deref().ok()).await;
        let end = AttemptEnd::of(ended, last, here.cancelled.load(Ordering::Relaxed));
        if matches!(end, AttemptEnd::KeeperEnd(_)) {
            // Otherwise the next attempt might begin with the same keeper, and fail without having run.
            app.keeper.wait_for_next(keeper).await;
        }
        conclude(&app, attempt, end).await;
        // The next attempt may run here already.
        running(&app).retain(|_, job| job.attempt != attempt);
        drop(share);
    });
}

fn internal_error(error: String) -> Arc<RunResult> {
    Arc::new(RunResult::internal_error(error))
}

/// How an attempt ended.
enum AttemptEnd {
    /// With the last events, and a result.
    Finished(EventBatch, Arc<RunResult>),
    /// The host failed; the job is tried again, or given up with this result.
    HostFailure(Arc<RunResult>),
    /// The keeper ended; the job may have been the cause, and is tried again alone or given up with this result.
    KeeperEnd(Arc<RunResult>),
    /// The server ends, the job does not: another server runs it.
    Shutdown,
}

impl AttemptEnd {
    /// How an attempt ended whose run returned this, with its last events. It may have been cancelled by a client.
    fn of(ended: Result<Arc<RunResult>, Refused>, last: EventBatch, cancelled: bool) -> Self {
        match ended {
            Ok(result) if result.verdict == Verdict::Cancelled && !cancelled => Self::Shutdown,
            Err(Refused::Cancelled) if cancelled => Self::Finished(last, Arc::new(RunResult::cancelled())),
            Err(Refused::Cancelled) => Self::Shutdown,
            Ok(result) if result.verdict == Verdict::InternalError => Self::HostFailure(result),
            Ok(result) => Self::Finished(last, result),
            Err(refused) if refused.is_keeper_end() => Self::KeeperEnd(internal_error(refused.to_string())),
            Err(refused) if refused.is_internal() => Self::HostFailure(internal_error(refused.to_string())),
            Err(refused) => Self::Finished(last, Arc::new(RunResult::refused(refused.to_string()))),
        }
    }
}

/// Records how an attempt ended. While the store fails, the outcome waits and is tried again for as long as the server lives.
async fn conclude(app: &App, attempt: Attempt, outcome: AttemptEnd) {
    let current = match outcome {
        AttemptEnd::Finished(last, result) => {
            let finish = || {
                let (last, is_late) = last.written_now();
                let finish = app.jobs.finish(attempt, last, Arc::clone(&result));
                async move { Ok((finish.await?, is_late)) }
            };
            let (current, was_late) = persist("the result", attempt, finish).await;
            if was_late {
                app.metrics.late_output().inc();
            }
            current
        }
        AttemptEnd::HostFailure(result) => {
            tracing::warn!(id = %attempt.id, attempt = attempt.number, error = result.error, "an attempt of a job failed");
            persist("the failure", attempt, || app.jobs.fail(attempt, Arc::clone(&result))).await
        }
        AttemptEnd::KeeperEnd(result) => {
            tracing::warn!(id = %attempt.id, attempt = attempt.number, "the keeper ended during an attempt of a job");
            persist("the interruption", attempt, || app.jobs.suspect(attempt, Arc::clone(&result))).await
        }
        AttemptEnd::Shutdown => persist("the interruption", attempt, || app.jobs.put_back(attempt)).await,
    };
    if !current {
        tracing::warn!(id = %attempt.id, attempt = attempt.number, "ignored the end of an attempt that was replaced");
    }
}

#[cfg(test)]
mod tests {
    use sandbox_jobs::Turns;

    use super::*;

    fn turns(owners: &[&str], suspects: &[&str]) -> Turns {
        let named = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect();
        Turns { owners: named(owners), suspects: named(suspects) }
    }

    #[test]
    fn a_suspect_runs_alone() {
        let take = |owner: &str, alone| NextStep::Take { owners: vec![Some(owner.to_owned())], alone };
        let workload = Arc::new(Workload::default());
        let next = |owners: &[&str], suspects: &[&str]| next_step(turns(owners, suspects), &workload, 4);
        let others = [workload.begin(false), workload.begin(false)];
        assert_eq!(next(&["a"], &[]), take("a", false));
        assert_eq!(next(&["a"], &["b"]), NextStep::WaitForJobs, "the others end first");
        drop(others);
        assert_eq!(next(&["a"], &["b"]), take("b", true));
        let _suspect = workload.begin(true);
        assert_eq!(next(&["a"], &["b"]), NextStep::WaitForJobs, "one at a time");
        assert_eq!(next(&["a"], &[]), NextStep::WaitForJobs, "and no other beside it");
    }

    #[tokio::test]
    async fn a_suspect_stays_alone_when_the_loop_that_started_it_panics() {
        // What the server has, and the part of it that a job's thread holds.
        let workload = Arc::new(Workload::default());
        let (thread, started) = std::sync::mpsc::channel();
        let task = || {
            let (workload, thread) = (Arc::clone(&workload), thread.clone());
            async move {
                let step = next_step(turns(&[], &["b"]), &workload, 4);
                if let NextStep::Take { alone, .. } = step {
                    thread.send(workload.begin(alone)).expect("a receiver");
                    panic!("after the job was started");
                }
            }
        };
        crate::tasks::restart_on_panic(task, Duration::ZERO, |_| {}).await;
        let suspect = started.try_recv().expect("the suspect was started");
        assert!(started.try_recv().is_err(), "and no other beside it");
        assert_eq!(next_step(turns(&["a"], &[]), &workload, 4), NextStep::WaitForJobs);
        let thread = std::thread::spawn(move || {
            let _share = suspect;
            panic!("the thread of the job");
        });
        assert!(thread.join().is_err());
        assert_eq!(
            next_step(turns(&[], &["b"]), &workload, 4),
            NextStep::Take { owners: vec![Some("b".to_owned())], alone: true }
        );
    }

    #[test]
    fn results_that_wait_for_the_store_are_bounded() {
        let workload = Arc::new(Workload::default());
        let next = || next_step(turns(&["a"], &[]), &workload, 2);
        let mut waiting = vec![workload.begin(false), workload.begin(false)];
        assert_eq!(next(), NextStep::WaitForJobs);
        drop(waiting.pop());
        assert!(matches!(next(), NextStep::Take { .. }));
    }

    #[test]
    fn the_workload_forgets_jobs_that_have_ended() {
        let workload = Arc::new(Workload::default());
        let one = workload.begin(false);
        drop(one);
        let alone = workload.begin(true);
        assert!(workload.alone.load(Ordering::SeqCst));
        drop(alone);
        assert!(!workload.alone.load(Ordering::SeqCst));
        assert_eq!(workload.jobs.load(Ordering::SeqCst), 0);
    }
}
