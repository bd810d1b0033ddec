//! `/v1/execute`: asynchronous jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sandbox_base::counted;
use sandbox_base::units::parse_duration;
use sandbox_executor::JsonRequest;
use sandbox_jobs::{Created, Exceeded, Job, JobHeader, JobId, JobStatus, NewJob, Page, StoreError, StoreLimits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::Client;
use crate::body::{Body, check, read};
use crate::execute::quota_exceeded;
use crate::memory_budget::ClientId;
use crate::problem::{BadBody, Code, Problem};
use crate::schedule;
use crate::state::{App, refuse_if_closing};
use crate::worker::running;

/// The longest that a client may wait for a job in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The most jobs on a page.
const LONGEST_PAGE: usize = 200;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_full() {
            let detail = "the job store is full; jobs can be read, and created again when there is room";
            return Self::new(Code::DiskFull, detail).retry_after(30);
        }
        if error.is_unavailable() {
            // The reason is for the operator: it may name parts of the installation.
            tracing::error!(%error, "the job store is unavailable");
            return unavailable();
        }
        Self::new(Code::Internal, error.to_string())
    }
}

pub(crate) fn unavailable() -> Problem {
    Problem::new(Code::Unavailable, "the job store is unavailable").retry_after(2)
}

fn unknown(id: &str) -> Problem {
    let shown: String = id.chars().take(40).collect();
    Problem::new(Code::NotFound, format!("no job '{shown}'; ended jobs are deleted after SANDBOX_JOB_RETENTION"))
}

/// The problem of a job that exceeds a bound of the store, with the setting.
pub(crate) fn refused(exceeded: Exceeded, bounds: &StoreLimits, client: &Client) -> Problem {
    let StoreLimits { waiting, waiting_per_owner, bytes_per_owner } = bounds;
    let (code, detail) = match exceeded {
        Exceeded::Waiting => {
            (Code::QueueFull, format!("the job queue is full: {} (SANDBOX_QUEUE)", counted(waiting, "queued job")))
        }
        Exceeded::WaitingPerOwner => {
            let detail = format!(
                "the job queue of this API key is full: {} (SANDBOX_QUEUE_PER_KEY)",
                counted(waiting_per_owner, "queued job")
            );
            (Code::QueueFull, detail)
        }
        Exceeded::BytesPerOwner => {
            let detail = format!(
                "requests, results and events would exceed {bytes_per_owner} bytes (SANDBOX_JOB_STORAGE); ended jobs are \
                 deleted after SANDBOX_JOB_RETENTION"
            );
            return Problem::new(Code::StorageFull, detail).retry_after(60);
        }
        Exceeded::PerDay => return quota_exceeded(client.per_day.unwrap_or_default()),
    };
    Problem::new(code, detail).retry_after(5)
}

pub(crate) fn parse_id(id: &str) -> Result<JobId, Problem> {
    id.parse().map_err(|_| unknown(id))
}

/// How long a client wants to wait.
pub(crate) fn parse_wait(text: Option<&str>) -> Result<Duration, Problem> {
    let wait = text.map(parse_duration).transpose();
    let wrong = |error| Problem::new(Code::InvalidRequest, format!("wait: {error}")).at("wait");
    Ok(wait.map_err(wrong)?.unwrap_or_default().min(LONGEST_WAIT))
}

/// A job as clients see it, without the secret of its webhook.
pub(crate) fn shown(mut job: Job) -> Job {
    if let Some(webhook) = &mut job.webhook {
        webhook.secret.clear();
    }
    job
}

/// The header of a job that the client may see.
pub(crate) async fn find(app: &App, client: &Client, id: JobId) -> Result<JobHeader, Problem> {
    app.jobs.header(id).await?.filter(|job| client.sees(job)).ok_or_else(|| unknown(&id.to_string()))
}

/// Responds with a job that the client may see. Memory for the job and for the response is reserved before the job is read.
async fn respond(app: &App, client: &Client, client_id: &ClientId, id: JobId) -> Result<Response, Problem> {
    let header = find(app, client, id).await?;
    let size = usize::try_from(header.request_bytes + header.result_bytes).unwrap_or(usize::MAX);
    let held = app.answers.take(client_id, size.saturating_mul(2))?;
    let job = app.jobs.get(id).await?.ok_or_else(|| unknown(&id.to_string()))?;
    Ok(held.answer_with(StatusCode::OK, shown(job)))
}

/// A job that was created.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedJob {
    /// The id of the job.
    id: JobId,
    /// The status of the job: `queued`, unless a request with the same `Idempotency-Key` has created it before.
    status: JobStatus,
    /// When the job was created, in seconds since 1970.
    created_at: f64,
}

/// Create a job.
///
/// The job is queued and runs without the client. Poll it, follow its events, or let a webhook report its end.
#[utoipa::path(
    post, path = "/v1/execute", operation_id = "create_job", tag = "jobs", request_body = JsonRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests with the same key create one job")),
    responses(
        (status = 202, description = "The job was queued; Location is its URL", body = CreatedJob),
        (status = 409, description = "The idempotency key was used for another request", body = Problem, content_type = "application/problem+json"),
        BadBody,
        (status = 429, description = "The job queue or the job storage is full, or the daily quota is exhausted; no job was created", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "The disk of the job store is full; no job was created", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    request: Request,
) -> Result<Response, Problem> {
    refuse_if_closing(&app)?;
    let key = request.headers().get("idempotency-key").map(|value| value.to_str().map(str::to_owned));
    let idempotency_key = match key {
        None => None,
        // Idempotency keys are separate for each API key.
        Some(Ok(key)) if (1..=200).contains(&key.len()) => {
            Some(format!("{}/{key}", client.name.as_deref().unwrap_or_default()))
        }
        Some(_) => return Err(Problem::new(Code::InvalidRequest, "Idempotency-Key must have 1 to 200 characters")),
    };
    let Body { value: mut request, size, held } = read::<JsonRequest>(&app, &client_id, request).await?;
    let webhook = request.webhook.take().map(|webhook| app.webhooks.check(webhook)).transpose()?;
    let schedule = request.take_schedule();
    check(&app, &client, request.clone(), size).await?;
    let (owner, per_day) = (client.name.clone(), client.per_day);
    let new = schedule::apply(schedule, NewJob { idempotency_key, owner, webhook, per_day, ..NewJob::of(request) })?;
    let created = app.jobs.create(new, app.bounds).await?;
    drop(held);
    let job = match created {
        Created::New(job) | Created::Existing(job) => job,
        Created::Conflict(id) => {
            let detail = format!("the Idempotency-Key was used for another request, job {id}");
            return Err(Problem::new(Code::IdempotencyConflict, detail));
        }
        Created::Refused(exceeded) => return Err(refused(exceeded, &app.bounds, &client)),
    };
    let location = format!("/v1/execute/{}", job.id);
    let answer = CreatedJob { id: job.id, status: job.status, created_at: job.created_at };
    let mut response = (StatusCode::ACCEPTED, Json(answer)).into_response();
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

#[derive(Debug, Deserialize)]
pub(crate) struct GetOptions {
    wait: Option<String>,
}

/// Get a job.
///
/// With `wait`, the response is delayed until the job ends or the time is over.
#[utoipa::path(
    get, path = "/v1/execute/{id}", operation_id = "get_job", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("wait" = Option<String>, Query, description = "Wait up to this long for the job to end, such as 5s"),
    ),
    responses(
        (status = 200, description = "The job, with its result if it has ended", body = Job),
        (status = 429, description = "Too many event streams or waiting requests", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Invalid parameter", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    Path(id): Path<String>,
    options: Result<Query<GetOptions>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let id = parse_id(&id)?;
    let wait = parse_wait(options.wait.as_deref())?;
    let job = find(&app, &client, id).await?;
    if !wait.is_zero() && !job.status.is_final() {
        let place = app.streams.take(&client_id, 1)?;
        let mut follower = app.followed.follow(&app.jobs, id);
        let ended = async {
            while !follower.news().is_final() {
                follower.changed().await;
            }
        };
        let _ = tokio::time::timeout(wait, ended).await;
        drop(place);
    }
    respond(&app, &client, &client_id, id).await
}

/// Cancel a job.
///
/// A queued job never starts; a running job is stopped.
#[utoipa::path(
    delete, path = "/v1/execute/{id}", operation_id = "cancel_job", tag = "jobs", params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job; a running job may take a moment to stop", body = Job),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    find(&app, &client, id).await?;
    let cancelled = app.jobs.cancel(id).await?.ok_or_else(|| unknown(&id.to_string()))?;
    if cancelled.status == JobStatus::Running {
        // A job on another server is cancelled through the store.
        let here = running(&app).get(&id).cloned();
        if let Some(here) = here {
            here.cancel();
        }
    }
    respond(&app, &client, &client_id, id).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListOptions {
    status: Option<JobStatus>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// List jobs.
///
/// Newest first. A key sees only its own jobs.
#[utoipa::path(
    get, path = "/v1/execute", operation_id = "list_jobs", tag = "jobs",
    params(
        ("status" = Option<JobStatus>, Query, description = "Only jobs with this status"),
        ("limit" = Option<usize>, Query, description = "Number of jobs, at most 200"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
    ),
    responses(
        (status = 200, description = "Jobs, newest first", body = Page),
        (status = 404, description = "The cursor is not a job id", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Invalid parameter", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    options: Result<Query<ListOptions>, QueryRejection>,
) -> Result<Json<Page>, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let cursor = options.cursor.as_deref().map(parse_id).transpose()?;
    let limit = options.limit.unwrap_or(50).clamp(1, LONGEST_PAGE);
    Ok(Json(app.jobs.list(client.jobs(options.status), limit, cursor).await?))
}
