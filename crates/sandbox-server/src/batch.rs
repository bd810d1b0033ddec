//! `POST /v1/batch`: one program, many inputs. It is compiled once; each input has a cell and a verdict of its own.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandbox_executor::{JsonFile, JsonRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::{App, refuse_if_closing};
use crate::execute::{read_body, start_at};
use crate::problem::{Code, Problem};

/// The most inputs of one program.
const MOST_INPUTS: usize = 1000;

/// One program and its inputs.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    /// What all have in common.
    request: JsonRequest,
    /// What each has of its own.
    inputs: Vec<BatchInput>,
}

/// What one run of a batch has of its own.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BatchInput {
    /// What the program reads from standard input.
    stdin: Option<String>,
    /// Arguments of the program.
    args: Option<Vec<String>>,
    /// Variables, in addition to those of all.
    env: BTreeMap<String, String>,
    /// Files, in addition to those of all. A compiled program that has files of its own is compiled again.
    files: BTreeMap<String, JsonFile>,
}

impl Batch {
    /// The request for an input.
    fn request(&self, input: &BatchInput) -> JsonRequest {
        let mut request = self.request.clone();
        if input.stdin.is_some() {
            request.stdin.clone_from(&input.stdin);
        }
        if let Some(args) = &input.args {
            request.args.clone_from(args);
        }
        request.env.extend(input.env.clone());
        request.files.extend(input.files.clone());
        request
    }
}

/// The route: events `result` with the input's number, in the order in which they end, and `end`.
#[utoipa::path(
    post, path = "/v1/batch", tag = "jobs", request_body = Batch,
    responses(
        (status = 200, description = "Server-sent events: a result with the index of its input for each, then end", content_type = "text/event-stream", body = String),
        (status = 400, description = "The body is not JSON of the right shape", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not JSON", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The request makes no sense", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn batch(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    refuse_if_closing(&app)?;
    let batch: Batch = read_body(&app, request).await?;
    if !(1..=MOST_INPUTS).contains(&batch.inputs.len()) {
        return Err(Problem::new(Code::InvalidRequest, format!("inputs: give 1 to {MOST_INPUTS}")));
    }
    let requests: Vec<JsonRequest> = batch.inputs.iter().map(|input| batch.request(input)).collect();
    for (index, request) in requests.iter().enumerate() {
        app.engine.check(request).map_err(|refused| Problem::from(refused).of_input(index))?;
    }
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(drive(app, requests, sender));
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response())
}

type Out = Sender<Result<Event, Infallible>>;

/// Runs all, as places become free. When the client goes away, the runs that go on are dropped, which ends them.
async fn drive(app: Arc<App>, requests: Vec<JsonRequest>, out: Out) {
    let mut runs = JoinSet::new();
    for (index, request) in requests.into_iter().enumerate() {
        let permit = tokio::select! {
            permit = Arc::clone(&app.capacity).acquire_owned() => permit,
            () = out.closed() => return,
        };
        let Ok(permit) = permit else { return };
        let (app, out) = (Arc::clone(&app), out.clone());
        runs.spawn(async move {
            let ended = match start_at(&app, &request, permit) {
                Ok((run, events)) => run.finish(events).await,
                Err(problem) => Err(problem),
            };
            let what = match ended {
                Ok(result) => json!({ "event": "result", "index": index, "result": result }),
                Err(problem) => json!({ "event": "error", "index": index, "problem": problem }),
            };
            send(&out, &what).await;
        });
        // The first one compiles; the others then find what it has made.
        if index == 0 && runs.join_next().await.is_none() {
            return;
        }
    }
    loop {
        tokio::select! {
            ended = runs.join_next() => if ended.is_none() { break },
            () = out.closed() => return,
        }
    }
    send(&out, &json!({ "event": "end" })).await;
}

async fn send(out: &Out, what: &Value) {
    let name = what["event"].as_str().unwrap_or("message");
    let _ = out.send(Ok(Event::default().event(name).json_data(what).unwrap_or_default())).await;
}
