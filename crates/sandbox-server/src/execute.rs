//! `POST /execute`: a run while the client waits, as one answer or as a stream of events.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandbox_executor::{JsonRequest, Observer, RunResult, Step, Stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::app::{App, refuse_if_closing};
use crate::problem::{Code, Problem};

/// Something that happens in a run.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// A step before the run begins.
    Step { step: &'static str, what: String },
    /// The program has written to standard output.
    Stdout { data: String },
    /// The program has written to standard error.
    Stderr { data: String },
    /// The run is over.
    Result { result: Box<RunResult> },
    /// The run could not be carried out.
    Error { problem: Problem },
}

impl Happening {
    fn name(&self) -> &'static str {
        match self {
            Self::Step { .. } => "step",
            Self::Stdout { .. } => "stdout",
            Self::Stderr { .. } => "stderr",
            Self::Result { .. } => "result",
            Self::Error { .. } => "error",
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Options {
    #[serde(default)]
    stream: bool,
}

/// The route.
#[utoipa::path(
    post, path = "/execute", tag = "runs", request_body = JsonRequest,
    params(("stream" = Option<bool>, Query, description = "Send events as they happen")),
    responses(
        (status = 200, description = "The run has ended, well or badly; with Accept: text/event-stream, its events", body = RunResult),
        (status = 400, description = "The body is not JSON of the right shape", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not JSON", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The request makes no sense", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The server is at capacity; nothing was done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn execute(
    State(app): State<Arc<App>>,
    options: Result<Query<Options>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let streams = options.stream || accepts.contains("text/event-stream");
    let request = read(&app, request).await?;
    let (run, events) = start(&app, &request)?;
    if !streams {
        return Ok(Json(run.finish(events).await?).into_response());
    }
    // The stream holds the run: when the client goes away, both are dropped, and the run is cancelled.
    let stream = UnboundedReceiverStream::new(events).map(move |happening| {
        let _held = &run;
        let event = Event::default().event(happening.name());
        Ok::<_, Infallible>(event.json_data(&happening).unwrap_or_default())
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()).into_response())
}

/// Reads a request.
pub(crate) async fn read(app: &Arc<App>, request: Request) -> Result<JsonRequest, Problem> {
    read_body(app, request).await
}

/// Reads a body of some shape.
pub(crate) async fn read_body<T: DeserializeOwned>(app: &Arc<App>, request: Request) -> Result<T, Problem> {
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("application/json");
    if !kind.starts_with("application/json") {
        return Err(Problem::new(Code::UnsupportedMediaType, format!("the body is {kind}")));
    }
    let body = Bytes::from_request(request, app).await.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(Code::BodyTooLarge, "send less, or ask the operator to raise SANDBOX_MAX_BODY")
        }
        _ => Problem::new(Code::MalformedJson, format!("cannot read the body: {}", rejection.body_text())),
    })?;
    // A list would be taken for the fields in their order.
    if body.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err(Problem::new(Code::MalformedJson, "invalid body: it must be a JSON object"));
    }
    serde_json::from_slice(&body).map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))
}

/// A run that goes on. Dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Run {
    cancel: Arc<OwnedFd>,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.cancel, &1_u64.to_ne_bytes());
    }
}

impl Run {
    /// Waits for the end.
    pub(crate) async fn finish(self, mut events: UnboundedReceiver<Happening>) -> Result<RunResult, Problem> {
        while let Some(happening) = events.recv().await {
            match happening {
                Happening::Result { result } => return Ok(*result),
                Happening::Error { problem } => return Err(problem),
                _ => {}
            }
        }
        Err(Problem::new(Code::Internal, "the run ended without a result"))
    }
}

/// Starts a run in a thread of its own. What waits in the channel is bounded by the run's output limit.
pub(crate) fn start(app: &Arc<App>, request: &JsonRequest) -> Result<(Run, UnboundedReceiver<Happening>), Problem> {
    refuse_if_closing(app)?;
    let permit = Arc::clone(&app.capacity).try_acquire_owned().map_err(|_| {
        let detail = format!("{} runs are going on, which is the most at one time", app.most_runs);
        Problem::new(Code::AtCapacity, detail).retry_after(1)
    })?;
    start_at(app, request, permit)
}

/// Starts a run at a place that was taken for it.
pub(crate) fn start_at(
    app: &Arc<App>,
    request: &JsonRequest,
    permit: OwnedSemaphorePermit,
) -> Result<(Run, UnboundedReceiver<Happening>), Problem> {
    let checked = app.engine.check(request)?;
    let cancel = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
        .map_err(|errno| Problem::new(Code::Internal, format!("cannot prepare the run: {errno}")))?;
    let cancel = Arc::new(cancel);
    let run = Run { cancel: Arc::clone(&cancel) };
    let (sender, receiver) = unbounded_channel();
    let app = Arc::clone(app);
    app.runs.fetch_add(1, Ordering::Relaxed);
    tokio::task::spawn_blocking(move || {
        let mut forward = Forward { events: sender, unfinished: Default::default() };
        let ended = app.engine.run(checked, &[cancel.as_fd(), app.kill.as_fd()], &mut forward);
        // Free before the client hears of the end, so that its next request finds the place.
        drop(permit);
        let happening = match ended {
            Ok(result) => {
                app.metrics.run(&result);
                Happening::Result { result: Box::new(result) }
            }
            Err(refused) => Happening::Error { problem: refused.into() },
        };
        forward.end(happening);
    });
    Ok((run, receiver))
}

/// Passes on what happens.
struct Forward {
    events: UnboundedSender<Happening>,
    /// The beginning of a character whose end has not come yet.
    unfinished: [Vec<u8>; 2],
}

impl Forward {
    fn text(&mut self, stream: Stream, data: String) {
        if data.is_empty() {
            return;
        }
        let _ = self.events.send(match stream {
            Stream::Stdout => Happening::Stdout { data },
            Stream::Stderr => Happening::Stderr { data },
        });
    }

    fn end(mut self, last: Happening) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut self.unfinished[stream as usize]);
            self.text(stream, String::from_utf8_lossy(&rest).into_owned());
        }
        let _ = self.events.send(last);
    }
}

impl Observer for Forward {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let mut whole = std::mem::take(&mut self.unfinished[stream as usize]);
        whole.extend_from_slice(bytes);
        let cut = match std::str::from_utf8(&whole) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => whole.len(),
        };
        self.unfinished[stream as usize] = whole.split_off(cut);
        self.text(stream, String::from_utf8_lossy(&whole).into_owned());
    }

    fn step(&mut self, step: Step, what: &str) {
        let _ = self.events.send(Happening::Step { step: step.name(), what: what.to_owned() });
    }
}
