//! The header of a job: the small record that stores read and write for everything except the request, the result and the
//! output, so that appending, listing and expiring cost the same whatever the size of a job.

use sandbox_executor::{JsonRequest, RunEvent, RunResult};
use serde::{Deserialize, Serialize};

use crate::model::{Attempt, Job, JobId, JobStatus, Labels, NewJob, Progress, Summary, Webhook, suspects_of};

/// The version of the encoding, which is its first byte.
const VERSION: u8 = 1;

/// How many attempts may fail for reasons of the host before the job is given up: one that takes the server down must not
/// do so for ever.
pub const MOST_FAILURES: u32 = 3;

/// What a job counts for in the bytes of its owner besides its request, result, webhook and events: its header and indexes.
pub(crate) const OVERHEAD: u64 = 256;

/// The number of bits for the numbers of an attempt's events.
const EVENTS_OF_AN_ATTEMPT: u32 = 32;

/// A job without its request, result, webhook and events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a record of independent facts")]
pub struct JobHeader {
    /// Its id.
    pub id: JobId,
    /// Its status.
    pub status: JobStatus,
    /// The name of the API key that created it, if keys are required.
    pub owner: Option<String>,
    /// How often it was started.
    pub attempts: u32,
    /// How many attempts failed for reasons of the host. An attempt that a dead server interrupted counts only if the job
    /// was running alone.
    pub failures: u32,
    /// When it was created, in seconds since 1970.
    pub created_at: f64,
    /// When it was last started, in seconds since 1970.
    pub started_at: Option<f64>,
    /// When it ended, in seconds since 1970.
    pub finished_at: Option<f64>,
    /// When it may start, in seconds since 1970: later than its creation if it was delayed or interrupted.
    pub not_before: Option<f64>,
    /// When it expires unless it has started, in seconds since 1970.
    pub expires_at: Option<f64>,
    /// Jobs of an owner with a higher priority start first.
    pub priority: i8,
    /// The labels that its worker must have.
    pub labels: Labels,
    /// Whether a client has cancelled it while it was running.
    pub cancel_requested: bool,
    /// Whether it is queued but must not start before [`Self::not_before`].
    pub delayed: bool,
    /// Whether a server died while running it.
    pub suspect: bool,
    /// Whether the current attempt runs alone.
    pub alone: bool,
    /// Its language.
    pub language: String,
    /// The verdict of its run, if it has ended.
    pub verdict: Option<String>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Whether it has a webhook.
    pub webhook: bool,
    /// The number of its last event, over all attempts.
    pub last_event: u64,
    /// The size of its request and its webhook.
    pub request_bytes: u64,
    /// The size of its result.
    pub result_bytes: u64,
    /// The size of its events.
    pub event_bytes: u64,
}

impl JobHeader {
    /// A new job, queued at this time.
    pub(crate) fn queued(new: &NewJob, request_bytes: u64, now: f64) -> Self {
        Self {
            id: JobId::new(),
            status: JobStatus::Queued,
            owner: new.owner.clone(),
            attempts: 0,
            failures: 0,
            created_at: now,
            started_at: None,
            finished_at: None,
            not_before: new.delay.map(|delay| now + delay.as_secs_f64()),
            expires_at: new.expires_in.map(|time| now + time.as_secs_f64()),
            priority: new.priority,
            labels: new.labels.clone(),
            cancel_requested: false,
            delayed: new.delay.is_some_and(|delay| !delay.is_zero()),
            suspect: false,
            alone: false,
            language: new.request.language().to_owned(),
            verdict: None,
            key: new.idempotency_key.clone(),
            webhook: new.webhook.is_some(),
            last_event: 0,
            request_bytes,
            result_bytes: 0,
            event_bytes: 0,
        }
    }

    /// The encoded header.
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// Reads an encoded header; none if it is not one that this release knows.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        if *version == VERSION { postcard::from_bytes(rest).ok() } else { None }
    }

    /// The current attempt.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        Attempt { id: self.id, number: self.attempts }
    }

    /// Whether the job is running, as this attempt.
    #[must_use]
    pub fn is_current(&self, attempt: Attempt) -> bool {
        self.status == JobStatus::Running && self.attempt() == attempt
    }

    /// What the job counts for in the bytes of its owner.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        OVERHEAD + self.request_bytes + self.result_bytes + self.event_bytes
    }

    /// The owner, as indexes spell it.
    pub(crate) fn owner_name(&self) -> &str {
        self.owner.as_deref().unwrap_or_default()
    }

    /// The queue that it waits in.
    pub(crate) fn lane(&self) -> String {
        let lane = self.labels.lane();
        if self.suspect { suspects_of(&lane) } else { lane }
    }

    /// Its place in the queue before jobs with a larger number.
    pub(crate) fn rank(&self) -> u8 {
        (i16::from(i8::MAX) - i16::from(self.priority)).try_into().unwrap_or(u8::MAX)
    }

    /// Since when it can start, or from when on, in seconds since 1970.
    pub(crate) fn ready_since(&self) -> f64 {
        self.not_before.unwrap_or(self.created_at)
    }

    /// The state of the job.
    pub(crate) fn progress(&self) -> Progress {
        Progress { status: self.status, attempts: self.attempts, events: self.last_event }
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            status: self.status,
            language: self.language.clone(),
            verdict: self.verdict.clone(),
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
        }
    }

    /// The whole job.
    pub(crate) fn job(self, request: JsonRequest, result: Option<RunResult>, webhook: Option<Webhook>) -> Job {
        Job {
            id: self.id,
            status: self.status,
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            attempts: self.attempts,
            request,
            result,
            owner: self.owner,
            priority: self.priority,
            labels: self.labels,
            not_before: self.not_before,
            expires_at: self.expires_at,
            cancel_requested: self.cancel_requested,
            failures: self.failures,
            webhook,
        }
    }
}

/// Why an attempt was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The server shut down.
    Shutdown,
    /// The server died.
    Death,
    /// The run failed for reasons of the host.
    HostFailure,
}

/// The outcome of an interruption for a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sequel {
    /// It is queued again, to start after this many seconds at the earliest.
    Queued(f64),
    /// It was cancelled.
    Cancelled,
    /// It is given up.
    GivenUp,
}

impl Interruption {
    /// Notes the interruption in the header, and decides what becomes of the job.
    pub(crate) fn note(self, header: &mut JobHeader) -> Sequel {
        let counts = match self {
            Self::Shutdown => false,
            Self::Death => std::mem::replace(&mut header.suspect, true) && header.alone,
            Self::HostFailure => true,
        };
        header.alone = false;
        header.failures += u32::from(counts);
        // Followers may have seen events that were not on the disk yet when the server died. So each attempt numbers its
        // events in a separate range.
        header.last_event = header.last_event.max(u64::from(header.attempts) << EVENTS_OF_AN_ATTEMPT);
        if header.cancel_requested {
            return Sequel::Cancelled;
        }
        if header.failures >= MOST_FAILURES {
            return Sequel::GivenUp;
        }
        Sequel::Queued(if self == Self::HostFailure { pause_after(header.failures) } else { 0.0 })
    }
}

/// How long a job waits after this many failures, in seconds: long enough for a part of the host to be replaced.
pub(crate) fn pause_after(failures: u32) -> f64 {
    if failures <= 1 { 1.0 } else { 5.0 }
}

/// The result of a job that killed its servers.
pub(crate) fn gave_up(failures: u32) -> RunResult {
    RunResult::internal_error(format!(
        "gave up after {failures} failed attempts: the server died each time while it ran this job alone"
    ))
}

/// The event for clients that follow a job: what came before does not count.
pub(crate) fn restarted(header: &JobHeader) -> RunEvent {
    RunEvent::Restarted { attempt: header.attempts + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> JobHeader {
        let request = JsonRequest { code: Some("x".repeat(100_000)), ..JsonRequest::default() };
        let new = NewJob { owner: Some("a-key".to_owned()), ..NewJob::of(request) };
        JobHeader::queued(&new, 100_000, 1.8e9)
    }

    #[test]
    fn headers_are_small_and_can_be_read_back() {
        let header = header();
        let bytes = header.encode();
        assert!(bytes.len() < 128, "{} bytes", bytes.len());
        assert_eq!(JobHeader::decode(&bytes), Some(header));
    }

    #[test]
    fn headers_of_another_version_are_refused() {
        let mut bytes = header().encode();
        bytes[0] = VERSION + 1;
        assert_eq!(JobHeader::decode(&bytes), None);
        assert_eq!(JobHeader::decode(&[]), None);
    }

    #[test]
    fn only_deaths_of_a_server_that_ran_the_job_alone_count() {
        let mut header = header();
        assert_eq!(Interruption::Death.note(&mut header), Sequel::Queued(0.0));
        assert_eq!((header.failures, header.suspect), (0, true));
        assert_eq!(Interruption::Shutdown.note(&mut header), Sequel::Queued(0.0));
        for failures in 1..MOST_FAILURES {
            header.alone = true;
            assert_eq!(Interruption::Death.note(&mut header), Sequel::Queued(0.0));
            assert_eq!(header.failures, failures);
        }
        header.alone = true;
        assert_eq!(Interruption::Death.note(&mut header), Sequel::GivenUp);
    }

    #[test]
    fn a_cancelled_job_is_never_queued_again() {
        for why in [Interruption::Shutdown, Interruption::Death, Interruption::HostFailure] {
            let mut header = JobHeader { cancel_requested: true, ..header() };
            assert_eq!(why.note(&mut header), Sequel::Cancelled);
        }
    }
}
