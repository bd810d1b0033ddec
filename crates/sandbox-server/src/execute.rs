//! `POST /execute`: a run while the client waits, as one answer or as a stream of events.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandbox_executor::{Checked, JsonRequest, Observer, RunResult, Step, Stream};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::app::{App, RequestId, refuse_if_closing};
use crate::auth::Client;
use crate::body::{Body, read};
use crate::held::Held;
use crate::openapi::StreamEvent;
use crate::problem::{BadBody, Code, Problem};
use crate::slots::Slot;
use crate::trace::Trace;

/// Something that happens in a run.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// A step before the run begins.
    Step { step: &'static str, what: String },
    /// The program has written to standard output.
    Stdout { data: String },
    /// The program has written to standard error.
    Stderr { data: String },
    /// The run is over.
    Result {
        result: Arc<RunResult>,
        /// What it takes.
        #[serde(skip)]
        held: Option<Held>,
    },
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
        (status = 200, description = "The run has ended, well or badly; with Accept: text/event-stream, its events", content(
            (RunResult = "application/json"), (StreamEvent = "text/event-stream")
        )),
        BadBody,
        (status = 429, description = "The server is at capacity; nothing was done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn execute(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Arc<Client>>,
    options: Result<Query<Options>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let streams = options.stream || accepts.contains("text/event-stream");
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    refuse_if_closing(&app)?;
    let request: Body<JsonRequest> = read(&app, request).await?;
    let slot = app.slots.execute(&client.name).await?;
    let (checked, held) = request.check(&app, &client).await?;
    spend(&app, &client, 1).await?;
    let (run, mut events) = start(&app, &id, checked, held, slot, streams)?;
    if !streams {
        let (result, held) = run.finish(&mut events).await?;
        return Ok(held.answer(StatusCode::OK, &result));
    }
    // The stream holds the run: when the client goes away, both are dropped, and the run is cancelled.
    let stream = UnboundedReceiverStream::new(events).map(move |happening| {
        let _held = &run;
        let event = Event::default().event(happening.name());
        Ok::<_, Infallible>(event.json_data(&happening).unwrap_or_default())
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()).into_response())
}

/// Takes runs from what somebody may have on a day.
pub(crate) async fn spend(app: &App, client: &Client, runs: usize) -> Result<(), Problem> {
    let (Some(most), Some(name)) = (client.per_day, &client.name) else { return Ok(()) };
    if app.jobs.spend(name, runs as u64, most).await? { Ok(()) } else { Err(quota_exceeded(most)) }
}

/// The key has had its runs of the day.
pub(crate) fn quota_exceeded(most: u64) -> Problem {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let detail = format!("the key may have {most} runs a day; the day begins at midnight UTC");
    Problem::new(Code::QuotaExceeded, detail).retry_after(86_400 - since % 86_400)
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
    /// Waits for the end; what the result takes is held with it.
    pub(crate) async fn finish(
        self,
        events: &mut UnboundedReceiver<Happening>,
    ) -> Result<(Arc<RunResult>, Held), Problem> {
        while let Some(happening) = events.recv().await {
            match happening {
                Happening::Result { result, held } => return Ok((result, held.unwrap_or_else(Held::nothing))),
                Happening::Error { problem } => return Err(problem),
                _ => {}
            }
        }
        Err(Problem::new(Code::Internal, "the run ended without a result"))
    }
}

/// Starts a run in a thread of its own. If it is `watched`, everything that happens is told, else only the end. What waits
/// in the channel is bounded by the run's output limit.
pub(crate) fn start(
    app: &Arc<App>,
    id: &str,
    checked: Checked,
    request: Held,
    slot: Slot,
    watched: bool,
) -> Result<(Run, UnboundedReceiver<Happening>), Problem> {
    let cancel = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
        .map_err(|errno| Problem::new(Code::Internal, format!("cannot prepare the run: {errno}")))?;
    let cancel = Arc::new(cancel);
    let run = Run { cancel: Arc::clone(&cancel) };
    let (sender, receiver) = unbounded_channel();
    let (app, handle) = (Arc::clone(app), Handle::current());
    let trace = Trace::begin(id);
    app.runs.fetch_add(1, Ordering::Relaxed);
    tokio::task::spawn_blocking(move || {
        let mut forward = Forward { events: sender, watched, unfinished: Default::default() };
        let ended = app.engine.run(checked, &[cancel.as_fd(), app.kill.as_fd()], &mut forward);
        drop(request);
        match ended {
            Ok((result, going)) => {
                app.metrics.run(&result);
                let lost_cells = app.engine.lost_cells();
                if lost_cells > 0 {
                    tracing::error!(lost_cells, "cells neither answer nor die; look for processes in state D");
                }
                // The slot is free when the answer has somewhere to be, and before the client hears of the end, so that
                // its next request finds it.
                let held = handle.block_on(app.answers.wait(size_of(&result)));
                let result = Arc::new(result);
                drop(slot);
                forward.end(Happening::Result { result: Arc::clone(&result), held: Some(held) });
                drop(going);
                trace.end(&result);
            }
            Err(refused) => {
                drop(slot);
                forward.end(Happening::Error { problem: refused.into() });
            }
        }
    });
    Ok((run, receiver))
}

/// About what a result takes.
fn size_of(result: &RunResult) -> usize {
    let files: usize = result.files.values().map(|file| file.content.len()).sum();
    let value = result.result.as_ref().map_or(0, String::len);
    2 * (result.stdout.len() + result.stderr.len() + value) + files + 1024
}

/// Passes on what happens.
struct Forward {
    events: UnboundedSender<Happening>,
    /// Whether anybody wants to know before the end.
    watched: bool,
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
        if !self.watched {
            return;
        }
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
        if !self.watched {
            return;
        }
        let _ = self.events.send(Happening::Step { step: step.name(), what: what.to_owned() });
    }
}
