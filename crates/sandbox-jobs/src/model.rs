//! What a job is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox_executor::JsonRequest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
            .map_err(|_| format!("'{}' is not a job's id", text.chars().take(40).collect::<String>()))
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// It waits.
    Queued,
    /// It runs.
    Running,
    /// It has a result.
    Finished,
    /// Somebody did not want it any more.
    Cancelled,
}

impl JobStatus {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled)
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// How far it is.
    pub status: JobStatus,
    /// When it was created, in seconds since 1970; and so on.
    pub created_at: f64,
    /// When it was last started.
    pub started_at: Option<f64>,
    /// When it ended.
    pub finished_at: Option<f64>,
    /// How often it was started.
    pub attempts: u32,
    /// What was asked for.
    pub request: JsonRequest,
    /// What came of it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<sandbox_executor::RunResult>))]
    pub result: Option<Value>,
}

/// A job to be created.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What is asked for.
    pub request: JsonRequest,
    /// A key with which the same job is not created twice.
    pub idempotency_key: Option<String>,
}

/// One run of a job. When a job is taken away from a server that seems dead, a new run of it begins, and the old one has
/// no say any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOf {
    /// The job.
    pub id: JobId,
    /// Which of its attempts this is.
    pub attempt: u32,
}

impl RunOf {
    pub(crate) fn is_current(self, job: &Job) -> bool {
        job.id == self.id && job.status == JobStatus::Running && job.attempts == self.attempt
    }
}

impl Job {
    /// The run that is going on.
    #[must_use]
    pub fn run(&self) -> RunOf {
        RunOf { id: self.id, attempt: self.attempts }
    }
}

/// What came of creating a job.
#[derive(Debug, PartialEq)]
pub enum Created {
    /// It is new.
    New(Job),
    /// It was created before, with the same key.
    Existing(Job),
    /// The key was used for another request.
    Conflict(JobId),
}

/// Some of the jobs, the newest first.
#[derive(Debug, PartialEq)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page begins, if there is one.
    pub next: Option<JobId>,
}

/// Something that happened in a job. The last one has the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1.
    pub number: u64,
    /// What happened.
    pub what: Value,
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (since.as_secs_f64() * 1e3).round() / 1e3
}
