//! `/v1/execute`: runs that nobody waits for.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandbox_cell::units::parse_duration;
use sandbox_jobs::{Created, Job, JobId, JobStatus, NewJob, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_stream::wrappers::ReceiverStream;

use crate::app::{App, refuse_if_closing};
use crate::execute::read;
use crate::problem::{Code, Problem};

/// The longest that a client may wait for a job in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The most jobs on a page.
const LONGEST_PAGE: usize = 200;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

/// Calls the store, which may wait for the disk, where waiting harms nobody.
async fn in_store<T: Send + 'static>(
    app: &Arc<App>,
    call: impl FnOnce(&sandbox_jobs::Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let store = Arc::clone(&app.jobs);
    let called = tokio::task::spawn_blocking(move || call(&store)).await;
    Ok(called.map_err(|error| Problem::new(Code::Internal, error.to_string()))??)
}

fn unknown(id: &str) -> Problem {
    let shown: String = id.chars().take(40).collect();
    Problem::new(Code::NotFound, format!("there is no job '{shown}'; jobs are forgotten some time after their end"))
}

fn parse_id(id: &str) -> Result<JobId, Problem> {
    id.parse().map_err(|_| unknown(id))
}

async fn find(app: &Arc<App>, id: JobId) -> Result<Job, Problem> {
    in_store(app, move |store| store.get(id)).await?.ok_or_else(|| unknown(&id.to_string()))
}

/// `POST /v1/execute`.
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    refuse_if_closing(&app)?;
    let key = request.headers().get("idempotency-key").map(|value| value.to_str().map(str::to_owned));
    let idempotency_key = match key {
        None => None,
        Some(Ok(key)) if (1..=200).contains(&key.len()) => Some(key),
        Some(_) => return Err(Problem::new(Code::InvalidRequest, "Idempotency-Key must have 1 to 200 characters")),
    };
    let request = read(&app, request).await?;
    app.engine.check(&request)?;
    let most = app.most_waiting;
    let created = in_store(&app, move |store| {
        if store.waiting()? >= most {
            return Ok(None);
        }
        store.create(&NewJob { request, idempotency_key }).map(Some)
    });
    let job = match created.await? {
        Some(Created::New(job) | Created::Existing(job)) => job,
        Some(Created::Conflict(id)) => {
            let detail = format!("the Idempotency-Key belongs to another request, job {id}");
            return Err(Problem::new(Code::IdempotencyConflict, detail));
        }
        None => return Err(Problem::new(Code::QueueFull, format!("{most} jobs wait already")).retry_after(5)),
    };
    let location = format!("/v1/execute/{}", job.id);
    let answer = json!({ "id": job.id, "status": job.status, "created_at": job.created_at });
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

/// `GET /v1/execute/{id}`, at once or when the job has ended.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(options): Query<GetOptions>,
) -> Result<Json<Job>, Problem> {
    let id = parse_id(&id)?;
    let wait = options.wait.as_deref().map(parse_duration).transpose();
    let wait = wait.map_err(|error| Problem::new(Code::InvalidRequest, format!("wait: {error}")))?;
    let until = tokio::time::Instant::now() + wait.unwrap_or_default().min(LONGEST_WAIT);
    // Followed before it is looked at, so that no change falls between.
    let mut changes = app.jobs.follow(id);
    loop {
        let job = find(&app, id).await?;
        if job.status.is_final() || tokio::time::Instant::now() >= until {
            return Ok(Json(job));
        }
        let _ = tokio::time::timeout_at(until, changes.changed()).await;
        if changes.has_changed().is_err() {
            return Ok(Json(find(&app, id).await?));
        }
    }
}

/// `DELETE /v1/execute/{id}`: a job that waits never starts, one that runs is ended.
pub(crate) async fn cancel(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Job>, Problem> {
    let id = parse_id(&id)?;
    let job = in_store(&app, move |store| store.cancel(id)).await?.ok_or_else(|| unknown(&id.to_string()))?;
    if job.status == JobStatus::Running {
        let running = app.running.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(running) = running {
            running.cancel();
        }
    }
    Ok(Json(job))
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListOptions {
    status: Option<JobStatus>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// `GET /v1/execute`: jobs, the newest first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    options: Result<Query<ListOptions>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let cursor = options.cursor.as_deref().map(parse_id).transpose()?;
    let limit = options.limit.unwrap_or(50).clamp(1, LONGEST_PAGE);
    let page = in_store(&app, move |store| store.list(options.status, limit, cursor)).await?;
    let jobs: Vec<Value> = page
        .jobs
        .iter()
        .map(|job| {
            let verdict = job.result.as_ref().map(|result| &result["verdict"]);
            json!({
                "id": job.id, "status": job.status, "language": job.request.language(), "verdict": verdict,
                "created_at": job.created_at, "started_at": job.started_at, "finished_at": job.finished_at,
            })
        })
        .collect();
    Ok(Json(json!({ "jobs": jobs, "next": page.next })))
}

/// `GET /v1/execute/{id}/events`: what happened, and what happens, from the beginning or after `Last-Event-ID`.
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let last = headers.get("last-event-id").map(|value| value.to_str().ok().and_then(|text| text.trim().parse().ok()));
    let mut after: u64 = match last {
        None => 0,
        Some(Some(number)) => number,
        Some(None) => return Err(Problem::new(Code::InvalidRequest, "Last-Event-ID must be a number")),
    };
    let mut changes = app.jobs.follow(id);
    find(&app, id).await?;
    // A client that reads slowly makes this wait, not the memory grow.
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Event, Infallible>>(16);
    tokio::spawn(async move {
        loop {
            // The state before the events: one that is final has all of them.
            let Ok(job) = find(&app, id).await else { return };
            let Ok(events) = in_store(&app, move |store| store.events(id, after)).await else { return };
            for event in events {
                after = event.number;
                let name = event.what["event"].as_str().unwrap_or("message");
                let sse = Event::default().id(event.number.to_string()).event(name).json_data(&event.what);
                if sender.send(Ok(sse.unwrap_or_default())).await.is_err() {
                    return;
                }
            }
            if job.status.is_final() {
                return;
            }
            // Also from time to time: a job that is put back into the queue changes without an event.
            if let Ok(Err(_)) = tokio::time::timeout(Duration::from_secs(2), changes.changed()).await {
                changes = app.jobs.follow(id);
            }
            if sender.is_closed() {
                return;
            }
        }
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response())
}
