//! `POST /execute`: a synchronous run, answered with its result or as a stream of events.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use sandbox_base::counted;
use sandbox_executor::{JsonRequest, RunResult};

use crate::answer_form::{AnswerForm, FormOptions};
use crate::auth::Client;
use crate::body::{Body, read};
use crate::memory_budget::ClientId;
use crate::middleware::RequestId;
use crate::problem::{BadBody, Code, Problem};
use crate::runs::{Admission, start};
use crate::state::{App, refuse_if_closing};
use crate::streams;

/// Run code and wait for the result.
///
/// The run is cancelled if the client disconnects. With `Accept: text/event-stream` or `?stream=true`, the response is a
/// stream of server-sent events: `start`, `step`, `stdout`, `stderr`, and at the end `result` or `error`.
#[utoipa::path(
    post, path = "/execute", operation_id = "run_code", tag = "runs", request_body = JsonRequest,
    responses(
        (status = 200, description = "The result of the run, whether the program succeeded or failed", body = RunResult),
        BadBody,
        (status = 429, description = "The server is at capacity; nothing was run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn execute(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    Extension(client_id): Extension<ClientId>,
    options: Result<Query<FormOptions>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let streams = AnswerForm::of(options, request.headers(), AnswerForm::Json)? == AnswerForm::Stream;
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    refuse_if_closing(&app)?;
    let request: Body<JsonRequest> = read(&app, &client_id, request).await?;
    let stream = streams.then(|| app.streams.take(&client_id, 1)).transpose()?;
    let began = Instant::now();
    app.keeper.wait_briefly(&app.service).await?;
    let slot = app.slots.execute(&client.name).await?;
    let queued = began.elapsed();
    let (checked, request) = request.check(&app, &client).await?;
    spend(&app, &client, 1).await?;
    let run = start(&app, checked, Admission { id, client_id, slot, queued, request }, streams)?;
    let Some(stream) = stream else {
        let (result, held) = run.finish().await?;
        return Ok(held.answer(StatusCode::OK, &result));
    };
    // The stream holds the run: when the client goes away, both are dropped, and the run is cancelled.
    Ok(streams::respond(run, stream))
}

/// Charges runs against the daily quota of a client.
pub(crate) async fn spend(app: &App, client: &Client, runs: usize) -> Result<(), Problem> {
    let (Some(most), Some(name)) = (client.per_day, &client.name) else { return Ok(()) };
    if app.jobs.spend(name, runs as u64, most).await? { Ok(()) } else { Err(quota_exceeded(most)) }
}

/// The key has had its runs of the day.
pub(crate) fn quota_exceeded(most: u64) -> Problem {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let detail =
        format!("the API key is limited to {} per day; the quota resets at midnight UTC", counted(most, "run"));
    Problem::new(Code::QuotaExceeded, detail).retry_after(86_400 - since % 86_400)
}
