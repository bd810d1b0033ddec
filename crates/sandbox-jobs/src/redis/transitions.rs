//! Steps of a job that need a decision: the header is read, the change is decided here, and one script makes it if the header
//! has not changed meanwhile.

use std::sync::Arc;

use sandbox_executor::{RunEvent, RunResult};

use super::record::JobRecord;
use super::{RESULT_EVENT, RedisStore, Result, decoded, json, scripts, unexpected};
use crate::header::{Interruption, JobHeader, Sequel, gave_up, restarted};
use crate::model::{Attempt, JobId, JobStatus};

/// The number of attempts of a step that another one has overtaken.
pub(super) const MOST_TRIES: usize = 50;

/// A change of a job.
pub(super) struct JobChange {
    pub(super) after: JobRecord,
    /// Whether the events so far are dropped.
    pub(super) drops_events: bool,
    /// After how many seconds it may start again.
    pub(super) pause: Option<f64>,
    pub(super) result: Option<String>,
    pub(super) events: Vec<String>,
    /// Whether it is void if the job's lease has not ended.
    pub(super) needs_lapse: bool,
}

impl JobChange {
    pub(super) fn to(after: JobRecord) -> Self {
        Self { after, drops_events: false, pause: None, result: None, events: vec![], needs_lapse: false }
    }

    /// Adds an event.
    pub(super) fn event(&mut self, written: String) {
        self.after.header.last_event += 1;
        self.after.header.event_bytes += written.len() as u64;
        self.events.push(written);
    }

    /// Ends the job.
    pub(super) fn end(mut self, status: JobStatus, result: Option<&RunResult>) -> Self {
        self.after.header.status = status;
        if let Some(result) = result {
            let written = json(result);
            self.after.header.result_bytes = written.len() as u64;
            self.after.header.verdict = Some(result.verdict.name().to_owned());
            self.result = Some(written);
            self.event(RESULT_EVENT.to_owned());
        } else if status == JobStatus::Expired {
            self.event(json(&RunEvent::Expired));
        } else {
            self.event(json(&RunEvent::Cancelled));
        }
        self
    }

    /// Interrupts the attempt of a running job. The result is that of a job that is given up.
    pub(super) fn interrupt(before: &JobRecord, why: Interruption, result: Option<&RunResult>) -> Self {
        let mut change = Self::to(before.clone());
        let header = &mut change.after.header;
        let sequel = why.note(header);
        header.event_bytes = 0;
        change.after.base = header.last_event;
        change.drops_events = true;
        change.event(json(&restarted(&before.header)));
        match sequel {
            Sequel::Queued(pause) => {
                change.after.header.status = JobStatus::Queued;
                change.pause = Some(pause).filter(|pause| *pause > 0.0);
                change
            }
            Sequel::Cancelled => change.end(JobStatus::Cancelled, None),
            Sequel::GivenUp => {
                let given_up = gave_up(change.after.header.failures);
                change.end(JobStatus::Finished, Some(result.unwrap_or(&given_up)))
            }
        }
    }
}

impl RedisStore {
    /// Changes a job, unless nothing is to be changed. Returns how it is then, if there is one.
    pub(super) async fn change(
        &self,
        id: JobId,
        decide: impl Fn(&JobRecord) -> Option<JobChange>,
    ) -> Result<Option<(JobHeader, bool)>> {
        for _ in 0..MOST_TRIES {
            let Some((before, written)) = self.record(id).await? else { return Ok(None) };
            let Some(change) = decide(&before) else { return Ok(Some((before.header, false))) };
            let mut call = self.call(&scripts::SWAP);
            call.key(self.of("result", id)).key(self.of("events", id));
            call.arg(id.to_string()).arg(written).arg(change.after.encode()).arg(u8::from(change.drops_events));
            call.arg(change.pause.map(|pause| pause.to_string()).unwrap_or_default());
            call.arg(u8::from(change.needs_lapse)).arg(change.result.unwrap_or_default()).arg(change.events);
            let mut connection = self.connection().await?;
            let after: Option<String> = call.invoke_async(&mut connection).await?;
            if after.as_deref() == Some("") {
                return Ok(Some((before.header, false)));
            }
            if let Some(after) = after {
                connection.wait_for_replicas().await?;
                return Ok(Some((decoded(id, &after)?.header, true)));
            }
        }
        Err(unexpected("a job changes too often"))
    }

    /// Ends the current attempt of a job; returns whether it was the current one.
    async fn end_attempt(&self, attempt: Attempt, end: impl Fn(&JobRecord) -> JobChange) -> Result<bool> {
        let changed = self.change(attempt.id, |before| before.header.is_current(attempt).then(|| end(before))).await?;
        self.forget_appends(attempt);
        Ok(changed.is_some_and(|(_, changed)| changed))
    }

    /// Ends a job with the last events and the result of its current attempt, which is its last event too. Returns false if
    /// the attempt is not the current one. Every job does this once: unlike the other steps it is one call.
    pub(crate) async fn finish(&self, attempt: Attempt, last: Vec<RunEvent>, result: Arc<RunResult>) -> Result<bool> {
        let mut call = self.call(&scripts::FINISH);
        call.key(self.of("result", attempt.id)).key(self.of("events", attempt.id));
        call.arg(attempt.id.to_string()).arg(attempt.number).arg(result.verdict.name()).arg(json(&*result));
        for event in &last {
            call.arg(json(event));
        }
        call.arg(RESULT_EVENT);
        let mut connection = self.connection().await?;
        let current: bool = call.invoke_async(&mut connection).await?;
        connection.wait_for_replicas().await?;
        self.forget_appends(attempt);
        Ok(current)
    }

    /// Puts a running job back into the queue, for a server that ends before it does.
    pub(crate) async fn put_back(&self, attempt: Attempt) -> Result<bool> {
        self.end_attempt(attempt, |before| JobChange::interrupt(before, Interruption::Shutdown, None)).await
    }

    /// Ends an attempt that failed for reasons of the host. The job is queued again, or ends with this result.
    pub(crate) async fn fail(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        let interrupt = |before: &JobRecord| JobChange::interrupt(before, Interruption::HostFailure, Some(&result));
        let ended = self.end_attempt(attempt, interrupt).await;
        self.sweeps.forget();
        ended
    }

    /// Ends an attempt whose keeper ended. The job is queued again as a suspect, or ends with this result.
    pub(crate) async fn suspect(&self, attempt: Attempt, result: Arc<RunResult>) -> Result<bool> {
        let interrupt = |before: &JobRecord| JobChange::interrupt(before, Interruption::Death, Some(&result));
        self.end_attempt(attempt, interrupt).await
    }

    /// Cancels a job: one that waits ends, one that runs has to be ended by its server, whatever happens to it meanwhile.
    pub(crate) async fn cancel(&self, id: JobId) -> Result<Option<JobHeader>> {
        let changed = self.change(id, |before| match before.header.status {
            JobStatus::Queued => Some(JobChange::to(before.clone()).end(JobStatus::Cancelled, None)),
            JobStatus::Running if !before.header.cancel_requested => {
                let mut after = before.clone();
                after.header.cancel_requested = true;
                Some(JobChange::to(after))
            }
            _ => None,
        });
        Ok(changed.await?.map(|(header, _)| header))
    }
}
