//! The job model: a job and its status, its webhook, what a worker offers, and the limits of a store.
//!
//! The small [`JobHeader`] that stores read and write for most operations is in `header.rs`.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox_executor::{JsonRequest, RunEvent, RunResult};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::header::JobHeader;

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
    /// Not started before its time to start was over.
    Expired,
}

impl JobStatus {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Expired)
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
    /// The id of the job.
    pub id: JobId,
    /// The status of the job.
    pub status: JobStatus,
    /// When the job was created, in seconds since 1970.
    pub created_at: f64,
    /// When the job was last started, in seconds since 1970.
    pub started_at: Option<f64>,
    /// When the job ended, in seconds since 1970.
    pub finished_at: Option<f64>,
    /// How often the job was started.
    pub attempts: u32,
    /// The request.
    pub request: JsonRequest,
    /// The result, if the job has ended.
    pub result: Option<RunResult>,
    /// The name of the API key that created the job, if keys are required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The priority: jobs of an owner with a higher one start first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i8,
    /// The labels that the worker must have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: Labels,
    /// When the job may start, in seconds since 1970, if it was delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<f64>,
    /// When the job expires unless it has started, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<f64>,
    /// Whether a client has cancelled the job while it was running.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancel_requested: bool,
    /// The number of attempts that failed for reasons of the host. A job that was interrupted by a dead server is run
    /// again alone, and only such an attempt counts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// The webhook to call when the job ends.
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
    /// The status of the delivery.
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
    /// Jobs of an owner with a higher priority start first.
    pub priority: i8,
    /// The labels that its worker must have.
    pub labels: Labels,
    /// How long it waits before it may start. A duration, because the clocks of servers and of the store may differ.
    pub delay: Option<Duration>,
    /// The time from which [`Self::delay`] was computed, if the client gave one: the same in each retry of its request. A
    /// store with its own clock uses this time.
    pub not_before: Option<f64>,
    /// After how long it expires unless it has started.
    pub expires_in: Option<Duration>,
}

impl NewJob {
    /// A job without an owner that starts as soon as it can.
    #[must_use]
    pub fn of(request: JsonRequest) -> Self {
        Self {
            request,
            idempotency_key: None,
            owner: None,
            webhook: None,
            per_day: None,
            priority: 0,
            labels: Labels::default(),
            delay: None,
            not_before: None,
            expires_in: None,
        }
    }
}

/// The labels of a worker, or those that a job asks for: a job is taken only by a worker that has all of its labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = Vec<String>))]
#[serde(transparent)]
pub struct Labels(BTreeSet<String>);

impl Labels {
    /// The maximum number of labels of a worker or a job.
    pub const MOST: usize = 8;

    /// The maximum length of a label.
    pub const LONGEST: usize = 32;

    /// Checks labels: few, and of lower-case letters, digits, `.`, `_` and `-`.
    pub fn new(labels: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut set = BTreeSet::new();
        for label in labels {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
            if label.is_empty() || label.len() > Self::LONGEST || !label.bytes().all(fits) {
                let shown: String = label.chars().take(Self::LONGEST + 1).collect();
                return Err(format!(
                    "invalid label {shown:?}: expected 1 to {} lower-case letters, digits, '.', '_' or '-'",
                    Self::LONGEST
                ));
            }
            set.insert(label);
            if set.len() > Self::MOST {
                return Err(format!("too many labels: at most {}", Self::MOST));
            }
        }
        Ok(Self(set))
    }

    /// The labels in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The name of the queue for jobs that ask for exactly these labels.
    pub(crate) fn lane(&self) -> String {
        self.iter().collect::<Vec<_>>().join(",")
    }

    /// The queues that a worker with these labels serves: one for each subset. There are at most 2 to the power of
    /// [`Self::MOST`], whatever jobs ask for.
    pub(crate) fn lanes(&self) -> Vec<String> {
        let mut lanes = vec![String::new()];
        for label in self.iter() {
            let with = |lane: &String| if lane.is_empty() { label.to_owned() } else { format!("{lane},{label}") };
            let more: Vec<String> = lanes.iter().map(with).collect();
            lanes.extend(more);
        }
        lanes
    }
}

/// The offer of a worker to a job.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Its labels.
    pub labels: Labels,
    /// Whether the job would run alone, with no other job beside it. Such an offer is for suspects, which were running when
    /// a server died, and for them only.
    pub alone: bool,
}

impl Offer {
    /// The queues from which it takes.
    pub(crate) fn lanes(&self) -> Vec<String> {
        let lanes = self.labels.lanes();
        if self.alone { lanes.into_iter().map(|lane| suspects_of(&lane)).collect() } else { lanes }
    }
}

/// The queue for suspects among the jobs of a queue.
pub(crate) fn suspects_of(lane: &str) -> String {
    format!("!{lane}")
}

/// The jobs that wait for a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many there are, also those that may not start yet.
    pub waiting: u64,
    /// How long the first of those that can start now has waited since it could start. Zero if there is none.
    pub age: Duration,
}

/// The owners whose jobs wait for a worker. First comes the owner with the fewest running jobs, or that was served
/// longest ago.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    /// The owners with jobs that can run beside others.
    pub owners: Vec<Option<String>>,
    /// The owners with suspects, each of which has to run alone.
    pub suspects: Vec<Option<String>>,
}

/// The answer to a server about the attempts that it reports as running.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeartbeatReport {
    /// Jobs that a client has cancelled.
    pub cancelled: Vec<JobId>,
    /// Jobs that are not this server's any more: they have ended, or were given to another server.
    pub lost: Vec<JobId>,
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

impl Job {
    /// The current attempt.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        Attempt { id: self.id, number: self.attempts }
    }

    /// How long it has waited for its last start since it could start.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let since = self.not_before.unwrap_or(self.created_at);
        Duration::try_from_secs_f64(self.started_at.unwrap_or(since) - since).unwrap_or_default()
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
    New(JobHeader),
    /// It was created before, with the same key.
    Existing(JobHeader),
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

/// An event of a job. The last one has the result. Numbers rise over all attempts of a job, so that a client that resumes
/// after an event never gets one of an earlier attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1.
    pub number: u64,
    /// What happened.
    pub what: RunEvent,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
