//! `GET /v1/execute/{id}/events`: the events of a job, as a stream while they happen or as pages of JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use sandbox_executor::RunEvent;
use sandbox_jobs::{JobHeader, JobId, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;

use crate::answer_form::AnswerForm;
use crate::auth::Client;
use crate::follow::JobFollower;
use crate::jobs::{find, parse_id, parse_wait};
use crate::memory_budget::{ClientId, Reservation};
use crate::problem::{Code, Problem};
use crate::state::App;
use crate::streams::{self, Item, ServerEvent};

/// How many events of at most 64 KiB are read from the store at once for a client that follows a job.
const EVENTS_AT_ONCE: usize = 16;

/// How many bytes of events are on a page, about.
const PAGE: usize = 1 << 20;

/// How long a stream waits before it reads events again after the store has failed: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

#[derive(Debug, Default, Deserialize)]
pub(crate) struct EventOptions {
    stream: Option<bool>,
    after: Option<u64>,
    wait: Option<String>,
}

/// An event of a job, with the same three fields as a server-sent event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobEvent {
    /// The number of the event. Numbers rise over all attempts of the job.
    id: u64,
    /// The name of the event.
    event: &'static str,
    /// The event.
    data: RunEvent,
}

/// A page of the events of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    /// The events, in order.
    events: Vec<JobEvent>,
    /// The value of `after` for the next page.
    next: u64,
    /// Whether there are no more events, now or later.
    ended: bool,
}

/// Get the events of a job.
///
/// With `Accept: application/json` or `?stream=false`, the response is a page of the events so far, as JSON. Repeat the
/// request with `after` set to `next` until `ended` is true; `wait` delays a page that would be empty. Otherwise the
/// response is a stream of server-sent events, which starts with the first event or after `Last-Event-ID`, and ends with
/// the job. Event numbers rise over all attempts of a job. `restarted` means that an attempt was interrupted: discard the
/// output before it. `late` means that output was recorded late. `shutdown` has no number and means that this server ends:
/// resume at any server.
#[utoipa::path(
    get, path = "/v1/execute/{id}/events", operation_id = "get_job_events", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("after" = Option<u64>, Query, description = "Number of the last event received; the response continues after it"),
        ("wait" = Option<String>, Query, description = "Wait up to this long for an event, such as 5s; for JSON"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The same as `after`; sent by clients that resume a stream"),
    ),
    responses(
        (status = 200, description = "A page of events", body = EventPage),
        (status = 429, description = "Too many event streams or waiting requests", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Invalid parameter", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    Path(id): Path<String>,
    options: Result<Query<EventOptions>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let id = parse_id(&id)?;
    let wait = parse_wait(options.wait.as_deref())?;
    let last = headers.get("last-event-id").map(|value| value.to_str().ok().and_then(|text| text.trim().parse().ok()));
    let after: u64 = match (options.after, last) {
        (Some(number), _) | (None, Some(Some(number))) => number,
        (None, None) => 0,
        (None, Some(None)) => {
            return Err(Problem::new(Code::InvalidRequest, "Last-Event-ID must be a number"));
        }
    };
    let job = find(&app, &client, id).await?;
    let place = app.streams.take(&client_id, 1)?;
    let follower = app.followed.follow(&app.jobs, id);
    match AnswerForm::choose(options.stream, &headers, AnswerForm::Stream) {
        AnswerForm::Stream => Ok(stream(&app, client_id, id, after, follower, place)),
        AnswerForm::Json => {
            let (page, held) = page(&app, &client_id, &job, after, follower, wait).await?;
            drop(place);
            Ok(held.answer_with(StatusCode::OK, page))
        }
    }
}

/// Reads a page of events, and waits for one if there is none.
async fn page(
    app: &App,
    client_id: &ClientId,
    job: &JobHeader,
    after: u64,
    mut follower: JobFollower,
    wait: Duration,
) -> Result<(EventPage, Reservation), Problem> {
    let until = Instant::now() + wait;
    let mut page = EventPage { events: vec![], next: after, ended: false };
    let mut held = Reservation::nothing();
    loop {
        // The state before the events: one that is final has all of them.
        let is_final = job.status.is_final() || follower.news().is_final();
        let mut size = 0;
        while size < PAGE {
            let turn = app.readers.acquire().await;
            let events = app.jobs.events(job.id, page.next, EVENTS_AT_ONCE).await?;
            drop(turn);
            let more = events.len() == EVENTS_AT_ONCE;
            let read: usize = events.iter().map(|event| event.what.size()).sum();
            // What has been read already is an answer, if there is no room for more.
            match app.answers.take(client_id, 2 * read) {
                Ok(reservation) => held.and(reservation),
                Err(problem) if page.events.is_empty() => return Err(problem),
                Err(_) => return Ok((page, held)),
            }
            size += read;
            page.next = events.last().map_or(page.next, |event| event.number);
            page.events.extend(events.into_iter().map(|event| JobEvent {
                id: event.number,
                event: event.what.name(),
                data: event.what,
            }));
            if !more {
                page.ended = is_final;
                break;
            }
        }
        if !page.events.is_empty() || page.ended {
            return Ok((page, held));
        }
        let mut shutdown = app.shutdown.subscribe();
        tokio::select! {
            () = follower.changed() => {}
            () = tokio::time::sleep_until(until) => return Ok((page, held)),
            _ = shutdown.wait_for(|over| *over) => return Ok((page, held)),
        }
    }
}

/// Answers with the events as they come.
fn stream(
    app: &Arc<App>,
    client_id: ClientId,
    id: JobId,
    mut after: u64,
    follower: JobFollower,
    place: Reservation,
) -> Response {
    // A client that reads slowly makes this wait, not the memory grow.
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let app = Arc::clone(app);
    let mut shutdown = app.shutdown.subscribe();
    let closing = async move { drop(shutdown.wait_for(|over| *over).await) };
    tokio::spawn(async move {
        tokio::select! {
            _ = feed(&app, &client_id, id, &mut after, follower, &sender) => {}
            () = sender.closed() => {}
            () = closing => {
                // Without a number, so that any server can go on from the last event.
                let _ = sender.send(ServerEvent::Shutdown.item(Reservation::nothing())).await;
            }
        }
    });
    streams::respond(ReceiverStream::new(receiver), place)
}

/// Sends a job's events as they come, until there will be no more. While the store fails, the client waits for it: a stream
/// that ended would seem complete.
async fn feed(
    app: &App,
    client_id: &ClientId,
    id: JobId,
    after: &mut u64,
    mut follower: JobFollower,
    out: &Sender<Item>,
) -> Result<(), ClientGone> {
    let mut pause = RETRY.0;
    loop {
        // The state before the events: one that is final has all of them.
        let is_final = follower.news().is_final();
        loop {
            match send_some(app, client_id, id, after, out).await? {
                Ok(true) => pause = RETRY.0,
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, %id, retry_in = ?pause, "cannot read the events of a job");
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(RETRY.1);
                }
            }
        }
        pause = RETRY.0;
        if is_final {
            return Ok(());
        }
        follower.changed().await;
    }
}

/// The client of a stream has gone away.
struct ClientGone;

/// Sends the next events of a job; returns whether there may be more, or why the store failed.
async fn send_some(
    app: &App,
    client_id: &ClientId,
    id: JobId,
    after: &mut u64,
    out: &Sender<Item>,
) -> Result<Result<bool, StoreError>, ClientGone> {
    let mut held = Reservation::nothing();
    let mut paid = 0;
    // Events are read by few at a time, and given up again if there is no room for them: only what waits for the client
    // to take it is kept, and that has been accounted for.
    let events = loop {
        let turn = app.readers.acquire().await;
        let events = match app.jobs.events(id, *after, EVENTS_AT_ONCE).await {
            Ok(events) => events,
            Err(error) => return Ok(Err(error)),
        };
        let events: Vec<(u64, &str, String)> = events.iter().map(written).collect();
        let size = events.iter().map(|(_, _, text)| text.len()).sum();
        if size <= paid {
            break events;
        }
        if let Ok(budget) = app.answers.take(client_id, size) {
            held = budget;
            break events;
        }
        drop((events, turn));
        held = Reservation::nothing();
        held.and(app.answers.wait(client_id, size).await);
        paid = size;
    };
    let more = events.len() == EVENTS_AT_ONCE;
    let held = Arc::new(held);
    for (number, name, text) in events {
        *after = number;
        let event = Event::default().id(number.to_string()).event(name).data(text);
        if out.send(Item { event, held: Some(Arc::clone(&held)) }).await.is_err() {
            return Err(ClientGone);
        }
    }
    Ok(Ok(more))
}

/// An event's number, name and text.
fn written(event: &sandbox_jobs::Event) -> (u64, &'static str, String) {
    (event.number, event.what.name(), serde_json::to_string(&event.what).unwrap_or_default())
}
