//! The job model: a job, its status, its webhook, and the limits of a store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox_executor::{JsonRequest, RunEvent, RunResult};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A job's id. Later jobs have larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, format = "uuid"))]
pub struct JobId(Uuid);

impl JobId {
    /// A new id.
    #[must_use]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    pub(crate) fn number(self) -> u128 {
        self.0.as_u128()
    }

    pub(crate) fn from_number(number: u128) -> Self {
        Self(Uuid::from_u128(number))
    }
}

impl Default for JobId {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| format!("invalid job id '{}'", text.chars().take(40).collect::<String>()))
    }
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Waiting in the queue.
    Queued,
    /// Running.
    Running,
    /// Ended with a result.
    Finished,
    /// Cancelled by a client.
    Cancelled,
}

impl JobStatus {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled)
    }
}

/// The progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Its status.
    pub status: JobStatus,
    /// How often it was started.
    pub attempts: u32,
    /// The number of its last event; 0 if there is none.
    pub events: u64,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its status.
    pub status: JobStatus,
    /// When it was created, in seconds since 1970.
    pub created_at: f64,
    /// When it was last started, in seconds since 1970.
    pub started_at: Option<f64>,
    /// When it ended, in seconds since 1970.
    pub finished_at: Option<f64>,
    /// How often it was started.
    pub attempts: u32,
    /// The request.
    pub request: JsonRequest,
    /// The result, if it has ended.
    pub result: Option<RunResult>,
    /// The name of the API key that created it, if keys are required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The webhook to call when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// A webhook to call when the job ends, and the state of its delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Webhook {
    /// The URL.
    pub url: String,
    /// The secret for signatures. It is stored and never returned.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secret: String,
    /// Its status.
    pub status: Delivery,
    /// The number of attempts.
    pub attempts: u32,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Webhook {
    /// One that has not been tried.
    #[must_use]
    pub fn new(url: String, secret: String) -> Self {
        Self { url, secret, status: Delivery::Pending, attempts: 0, error: None }
    }
}

/// The state of a webhook delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Waiting for the next attempt.
    Pending,
    /// Delivered.
    Delivered,
    /// Failed after the last attempt.
    Failed,
}

/// A job to be created.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The request.
    pub request: JsonRequest,
    /// The idempotency key, if there is one.
    pub idempotency_key: Option<String>,
    /// The name of its API key.
    pub owner: Option<String>,
    /// The webhook to call when it ends.
    pub webhook: Option<Webhook>,
    /// The daily quota of its owner, which a new job is charged against.
    pub per_day: Option<u64>,
}

impl NewJob {
    /// The job, queued.
    pub(crate) fn queued(&self) -> Job {
        Job {
            id: JobId::new(),
            status: JobStatus::Queued,
            created_at: now(),
            started_at: None,
            finished_at: None,
            attempts: 0,
            request: self.request.clone(),
            result: None,
            owner: self.owner.clone(),
            webhook: self.webhook.clone(),
        }
    }
}

/// An attempt to run a job. When a server seems dead, its jobs are started again, and stores ignore what the earlier attempt
/// still reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The job.
    pub id: JobId,
    /// The number of the attempt, from 1.
    pub number: u32,
}

impl Attempt {
    pub(crate) fn is_current(self, job: &Job) -> bool {
        job.id == self.id && job.status == JobStatus::Running && job.attempts == self.number
    }
}

impl Job {
    /// The current attempt.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        Attempt { id: self.id, number: self.attempts }
    }

    /// How long it has waited for its last start.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let waited = self.started_at.unwrap_or(self.created_at) - self.created_at;
        Duration::try_from_secs_f64(waited).unwrap_or_default()
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            status: self.status,
            language: self.request.language().to_owned(),
            verdict: self.result.as_ref().map(|result| result.verdict.name().to_owned()),
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
        }
    }
}

/// Limits of a store. A job that would exceed one of them is refused.
#[derive(Debug, Clone, Copy)]
pub struct StoreLimits {
    /// The maximum number of queued jobs.
    pub waiting: u64,
    /// The maximum number of queued jobs of one owner.
    pub waiting_per_owner: u64,
    /// The maximum size of the jobs of one owner: requests, results and events. An owner that exceeds it with results starts no
    /// more jobs until some of them are deleted.
    pub bytes_per_owner: u64,
}

/// The limit that a job would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// [`StoreLimits::waiting`].
    Waiting,
    /// [`StoreLimits::waiting_per_owner`].
    WaitingPerOwner,
    /// [`StoreLimits::bytes_per_owner`].
    BytesPerOwner,
    /// [`NewJob::per_day`].
    PerDay,
}

/// The outcome of creating a job.
#[derive(Debug, PartialEq)]
pub enum Created {
    /// It is new.
    New(Job),
    /// It was created before, with the same key.
    Existing(Job),
    /// The key was used for another request.
    Conflict(JobId),
    /// It would exceed a limit; nothing was stored or charged.
    Refused(Exceeded),
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those with this status.
    pub status: Option<JobStatus>,
    /// Only those of this owner.
    pub owner: Option<String>,
}

impl Filter {
    pub(crate) fn fits(&self, status: JobStatus, owner: Option<&str>) -> bool {
        self.status.is_none_or(|wanted| wanted == status) && (self.owner.is_none() || self.owner.as_deref() == owner)
    }
}

/// A job without its request and result, which may be large.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summary {
    /// Its id.
    pub id: JobId,
    /// Its status.
    pub status: JobStatus,
    /// Its language.
    pub language: String,
    /// The verdict of its run, if it has ended.
    pub verdict: Option<String>,
    /// When it was created.
    pub created_at: f64,
    /// When it was last started, in seconds since 1970.
    pub started_at: Option<f64>,
    /// When it ended, in seconds since 1970.
    pub finished_at: Option<f64>,
}

/// A page of jobs, newest first. A page may be short or empty although a next one exists.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Summary>,
    /// The cursor of the next page, if there is one.
    pub next: Option<JobId>,
}

/// An event of a job. The last one has the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1.
    pub number: u64,
    /// What happened.
    pub what: RunEvent,
}

/// The day, in days since 1970: what a quota is for.
pub(crate) fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / 86_400
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (since.as_secs_f64() * 1e3).round() / 1e3
}
