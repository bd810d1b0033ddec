//! `POST /execute`: a run while the client waits, as one answer or as a stream of events.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::response::sse::Event;
use sandbox_executor::{Checked, JsonRequest, Observer, Refused, RunResult, Step, Stream};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::app::{App, RequestId, refuse_if_closing};
use crate::auth::Client;
use crate::body::{Body, read};
use crate::held::{Held, Who};
use crate::openapi::StreamEvent;
use crate::problem::{BadBody, Code, Problem};
use crate::slots::Slot;
use crate::streams::{self, Item};
use crate::trace::Trace;

/// How long a run that has something to pass on waits until clients have read enough of what came before.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that happens in a run.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// A step before the run begins.
    Step { step: &'static str, what: String },
    /// The program has written to standard output.
    Stdout {
        data: String,
        /// What it takes.
        #[serde(skip)]
        held: Held,
    },
    /// The program has written to standard error.
    Stderr {
        data: String,
        /// What it takes.
        #[serde(skip)]
        held: Held,
    },
    /// The run is over.
    Result {
        result: Arc<RunResult>,
        /// What it takes.
        #[serde(skip)]
        held: Held,
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

    /// The event that tells a client of it.
    fn item(mut self) -> Item {
        let event = Event::default().event(self.name()).json_data(&self).unwrap_or_default();
        let held = match &mut self {
            Self::Stdout { held, .. } | Self::Stderr { held, .. } | Self::Result { held, .. } => std::mem::take(held),
            Self::Step { .. } | Self::Error { .. } => Held::nothing(),
        };
        Item { event, held: Some(Arc::new(held)) }
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
    Extension(who): Extension<Who>,
    options: Result<Query<Options>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let streams = options.stream || accepts.contains("text/event-stream");
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    refuse_if_closing(&app)?;
    let request: Body<JsonRequest> = read(&app, &who, request).await?;
    let stream = streams.then(|| app.streams.take(&who, 1)).transpose()?;
    let slot = app.slots.execute(&client.name).await?;
    let (checked, held) = request.check(&app, &client).await?;
    spend(&app, &client, 1).await?;
    let (run, mut events) = start(&app, &id, &who, checked, held, slot, streams)?;
    let Some(stream) = stream else {
        let (result, held) = run.finish(&mut events).await?;
        return Ok(held.answer(StatusCode::OK, &result));
    };
    // The stream holds the run: when the client goes away, both are dropped, and the run is cancelled.
    let items = UnboundedReceiverStream::new(events).map(move |happening| {
        let _held = &run;
        happening.item()
    });
    Ok(streams::respond(items, stream))
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
                Happening::Result { result, held } => return Ok((result, held)),
                Happening::Error { problem } => return Err(problem),
                _ => {}
            }
        }
        Err(Problem::new(Code::Internal, "the run ended without a result"))
    }
}

/// Starts a run in a thread of its own. If it is `watched`, everything that happens is told, else only the end. What waits
/// in the channel is accounted for.
pub(crate) fn start(
    app: &Arc<App>,
    id: &str,
    who: &Who,
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
    let (app, who, handle) = (Arc::clone(app), who.clone(), Handle::current());
    let trace = Trace::begin(id);
    app.runs.fetch_add(1, Ordering::Relaxed);
    tokio::task::spawn_blocking(move || {
        let room = |bytes: usize| handle.block_on(app.answers.wait_for(&who, bytes, PATIENCE));
        let unfinished = Default::default();
        let mut forward = Forward { events: sender, watched, room: &room, unfinished, failed: None };
        let ended = app.engine.run(checked, &[cancel.as_fd(), app.kill.as_fd()], &mut forward);
        drop(request);
        app.readiness.note(!matches!(&ended, Err(Refused::Failure(failure)) if !failure.request));
        match ended {
            Ok((result, going)) => {
                app.metrics.run(&result);
                let lost_cells = app.engine.lost_cells();
                if lost_cells > 0 {
                    tracing::error!(lost_cells, "cells neither answer nor die; look for processes in state D");
                }
                // The slot is free when the answer has somewhere to be, and before the client hears of the end, so that
                // its next request finds it.
                let held = room(size_of(&result));
                let result = Arc::new(result);
                drop(slot);
                forward.end(match held {
                    Ok(held) => Happening::Result { result: Arc::clone(&result), held },
                    Err(problem) => Happening::Error { problem },
                });
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
struct Forward<'a> {
    events: UnboundedSender<Happening>,
    /// Whether anybody wants to know before the end.
    watched: bool,
    /// Makes room for bytes that wait for the client.
    room: &'a dyn Fn(usize) -> Result<Held, Problem>,
    /// The beginning of a character whose end has not come yet.
    unfinished: [Vec<u8>; 2],
    /// Why nothing more is passed on: the client does not read.
    failed: Option<Problem>,
}

impl Forward<'_> {
    fn text(&mut self, stream: Stream, data: String) {
        if data.is_empty() || self.failed.is_some() {
            return;
        }
        let held = match (self.room)(data.len()) {
            Ok(held) => held,
            Err(problem) => {
                self.failed = Some(problem);
                return;
            }
        };
        let _ = self.events.send(match stream {
            Stream::Stdout => Happening::Stdout { data, held },
            Stream::Stderr => Happening::Stderr { data, held },
        });
    }

    fn end(mut self, last: Happening) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut self.unfinished[stream as usize]);
            self.text(stream, String::from_utf8_lossy(&rest).into_owned());
        }
        let _ = self.events.send(self.failed.map_or(last, |problem| Happening::Error { problem }));
    }
}

impl Observer for Forward<'_> {
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
