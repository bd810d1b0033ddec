//! What time makes due: delays and leases that are over, jobs that expire or are forgotten; and when to look for it next.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::record::JobRecord;
use super::transitions::{JobChange, MOST_TRIES};
use super::{LEASE, RedisStore, Result, scripts};
use crate::header::Interruption;
use crate::model::{JobId, JobStatus};

/// The longest time between two sweeps. A lease that begins after one has not ended before the next.
pub(super) const SWEEP: Duration = LEASE;

/// The maximum number of jobs that are deleted in one step.
const FORGOTTEN_AT_ONCE: usize = 100;

/// When there is something to look for again: the notification of work that was known at the last look, and the time at which
/// something is due.
#[derive(Default)]
pub(super) struct NextLook(Mutex<Option<(u64, Instant)>>);

impl NextLook {
    pub(super) fn known(&self) -> Option<(u64, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, work: u64, left: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((work, Instant::now() + left));
    }

    /// Something may be due earlier than was known.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl RedisStore {
    /// Queues delayed jobs whose time has come, ends those that were not started in time, and interrupts those whose server
    /// is silent. Returns how long until the next sweep. Before that time, a sweep costs no command: an operation that makes something
    /// due earlier sends a notification.
    pub(crate) async fn sweep(&self) -> Result<Option<Duration>> {
        let work = *self.notices.work().borrow();
        if let Some((known, due)) = self.sweeps.known() {
            let left = due.saturating_duration_since(Instant::now());
            if known == work && self.notices.are_heard() && !left.is_zero() {
                return Ok(Some(left));
            }
        }
        for _ in 0..MOST_TRIES {
            let call = self.call(&scripts::SWEEP);
            let (lapsed, expired, left): (Vec<String>, Vec<String>, String) =
                call.invoke_async(&mut self.connection().await?).await?;
            for id in expired.iter().filter_map(|id| id.parse().ok()) {
                let expire = |before: &JobRecord| {
                    let waits = before.header.status == JobStatus::Queued && before.header.attempts == 0;
                    waits.then(|| JobChange::to(before.clone()).end(JobStatus::Expired, None))
                };
                self.change(id, expire).await?;
            }
            // After an outage, the servers that are alive have to have the time to renew their leases.
            let grace = self.lease.saturating_sub(self.link.age());
            if !lapsed.is_empty() && !grace.is_zero() {
                let left = grace.min(Duration::from_secs(1));
                self.sweeps.note(work, left);
                return Ok(Some(left));
            }
            for id in lapsed.iter().filter_map(|id| id.parse().ok()) {
                self.interrupt_lapsed(id).await?;
            }
            if let Some(left) = left.parse().ok().filter(|left| *left > 0.0) {
                let left = Duration::try_from_secs_f64(left).unwrap_or(SWEEP).min(SWEEP).min(self.lease);
                self.sweeps.note(work, left);
                return Ok(Some(left));
            }
        }
        Ok(Some(Duration::ZERO))
    }

    /// Interrupts the attempt of a job whose lease has ended, unless its server has renewed it meanwhile.
    async fn interrupt_lapsed(&self, id: JobId) -> Result<()> {
        let interrupt = |before: &JobRecord| {
            let runs = before.header.status == JobStatus::Running;
            runs.then(|| JobChange { needs_lapse: true, ..JobChange::interrupt(before, Interruption::Death, None) })
        };
        self.change(id, interrupt).await.map(drop)
    }

    /// Forgets jobs that ended too long ago, and takes over what a server of 0.1.0 has queued since. Returns how many were
    /// forgotten.
    pub(crate) async fn expire(&self) -> Result<usize> {
        self.adopt().await?;
        self.call(&scripts::CORRECT_AGES).invoke_async::<()>(&mut self.connection().await?).await?;
        let retention = self.retention.as_secs_f64();
        let mut forgotten = 0;
        loop {
            let mut call = self.call(&scripts::OLD);
            call.arg(retention).arg(FORGOTTEN_AT_ONCE);
            let old: Vec<String> = call.invoke_async(&mut self.connection().await?).await?;
            if old.is_empty() {
                return Ok(forgotten);
            }
            let mut call = self.call(&scripts::FORGET);
            for id in &old {
                for kind in ["request", "result", "events"] {
                    call.key(format!("{}:{kind}:{id}", self.prefix));
                }
            }
            call.arg(retention).arg(&old);
            forgotten += call.invoke_async::<usize>(&mut self.connection().await?).await?;
        }
    }
}

/// Waits until there is a later notification than this one, or for this long.
pub(super) async fn wait_past(mut work: watch::Receiver<u64>, known: u64, most: Duration) {
    let _ = tokio::time::timeout(most, work.wait_for(|count| *count != known)).await;
}
