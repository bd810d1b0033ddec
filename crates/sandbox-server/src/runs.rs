//! One run in the server, from a checked request to its result: the same for `/execute`, batches and jobs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use sandbox_base::wait::is_readable;
use sandbox_cell::Failure;
use sandbox_executor::{CheckedRequest, EventEncoder, Observer, Refused, RunEvent, RunResult, Step, Stream, Verdict};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::capacity::Slot;
use crate::memory_budget::{ClientId, Reservation};
use crate::problem::{Code, Problem};
use crate::state::{App, shutting_down};
use crate::streams::{Item, ServerEvent};
use crate::tasks::panic_text;
use crate::trace::Trace;

/// How long a run that has something to pass on waits until clients have read enough of what came before.
const PATIENCE: Duration = Duration::from_secs(2);

/// Cancels a run: becomes readable when the run is to end.
#[derive(Debug, Clone)]
pub(crate) struct CancelHandle(Arc<OwnedFd>);

impl CancelHandle {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?)))
    }

    /// Ends the run.
    pub(crate) fn cancel(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Cancels what a client waits for when the client's request is dropped.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) CancelHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl AsFd for CancelHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Carries out a request and accounts for it, in a thread that may block. It ends when it is cancelled, or with the
/// server.
pub(crate) fn perform(
    app: &App,
    id: &str,
    (checked, queued): (CheckedRequest, Duration),
    cancel: &CancelHandle,
    observer: &mut dyn Observer,
) -> Result<Arc<RunResult>, Refused> {
    let trace = Trace::begin(id);
    app.runs.fetch_add(1, Ordering::Relaxed);
    let mut counted = Counted { app, cancel, observer };
    let run = || app.service.run(checked, queued, &[cancel.as_fd(), app.kill.as_fd()], &mut counted);
    let ended = survive_panic(run, || app.metrics.panic()).map(|result| explain_shutdown(app, cancel, result));
    app.readiness.note(!ended.as_ref().is_err_and(Refused::is_internal));
    if let Ok(result) = &ended {
        let lost_cells = app.service.lost_cells();
        if lost_cells > 0 {
            tracing::error!(lost_cells, "cells do not respond and cannot be killed; look for processes in state D");
        }
        trace.end(result);
    }
    ended
}

/// Ends a run that panics as a failure, so that it is answered like any other.
pub(crate) fn survive_panic<T>(run: impl FnOnce() -> Result<T, Refused>, count: impl FnOnce()) -> Result<T, Refused> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        count();
        let why = panic_text(panic.as_ref());
        tracing::error!(why, "a run panicked");
        Err(Refused::Failure(Failure::new("the run failed", "internal error")))
    })
}

/// A run that the server ended was not cancelled by its caller.
fn explain_shutdown(app: &App, cancel: &CancelHandle, result: Arc<RunResult>) -> Arc<RunResult> {
    let is_ready = |fd: BorrowedFd<'_>| is_readable(&[fd], Duration::ZERO);
    if result.verdict != Verdict::Cancelled || is_ready(cancel.as_fd()) || !is_ready(app.kill.as_fd()) {
        return result;
    }
    let error = Some("the server is shutting down".to_owned());
    Arc::new(RunResult { error, ..Arc::unwrap_or_clone(result) })
}

/// Counts a run in the metrics before its client gets the result.
struct Counted<'a> {
    app: &'a App,
    cancel: &'a CancelHandle,
    observer: &'a mut dyn Observer,
}

impl Observer for Counted<'_> {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        self.observer.start(language, version);
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.observer.output(stream, bytes);
    }

    fn step(&mut self, step: Step, what: &str, waiting: bool) {
        self.observer.step(step, what, waiting);
    }

    fn step_over(&mut self, step: Step) {
        self.observer.step_over(step);
    }

    fn finish(&mut self, result: &Arc<RunResult>) {
        self.app.metrics.run(result);
        self.observer.finish(&explain_shutdown(self.app, self.cancel, Arc::clone(result)));
    }
}

/// A message to the client of a run.
#[derive(Debug)]
pub(crate) enum Update {
    /// An event, with the memory that it takes.
    Event(RunEvent, Reservation),
    /// The run could not be carried out.
    Failed(Problem),
}

impl Update {
    /// The server-sent event.
    pub(crate) fn item(self) -> Item {
        match self {
            Self::Event(event, held) => Item::of_run(&event, Some(Arc::new(held))),
            Self::Failed(problem) => ServerEvent::Error { index: None, problem }.item(Reservation::nothing()),
        }
    }
}

/// A run of a client. Dropping it cancels the run.
#[derive(Debug)]
pub(crate) struct RunHandle {
    _cancel: CancelOnDrop,
    updates: UnboundedReceiver<Update>,
}

impl RunHandle {
    /// The next update; none after the last.
    pub(crate) fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Update>> {
        self.updates.poll_recv(cx)
    }

    /// Waits for the end; the memory that the result takes comes with it.
    pub(crate) async fn finish(mut self) -> Result<(Arc<RunResult>, Reservation), Problem> {
        while let Some(update) = self.updates.recv().await {
            match update {
                Update::Event(RunEvent::Result { result }, held) => return Ok((result, held)),
                Update::Failed(problem) => return Err(problem),
                Update::Event(..) => {}
            }
        }
        Err(Problem::new(Code::Internal, "the run ended without a result"))
    }
}

/// What a run needs besides its request.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The request's id.
    pub(crate) id: String,
    /// The client, whose memory budget pays for what it has not read yet.
    pub(crate) client_id: ClientId,
    /// The right to run.
    pub(crate) slot: Slot,
    /// How long the request waited for it.
    pub(crate) queued: Duration,
    /// The memory of the request.
    pub(crate) request: Reservation,
}

/// Starts a run in a thread of its own. If it is `watched`, every event is sent, else only the result. What waits to be
/// read is accounted for.
pub(crate) fn start(
    app: &Arc<App>,
    checked: CheckedRequest,
    admission: Admission,
    watched: bool,
) -> Result<RunHandle, Problem> {
    let cancel = CancelHandle::new()
        .map_err(|error| Problem::new(Code::Internal, format!("cannot prepare the run: {error}")))?;
    let (sender, updates) = unbounded_channel();
    let run = RunHandle { _cancel: CancelOnDrop(cancel.clone()), updates };
    let (app, handle) = (Arc::clone(app), Handle::current());
    let Admission { id, client_id, slot, queued, request } = admission;
    tokio::task::spawn_blocking(move || {
        let answers = AnswerBudget { app: &app, handle, client_id, client: sender.clone() };
        let owned = Some((slot, request));
        let mut forward =
            ClientObserver { updates: sender, watched, answers, encoder: EventEncoder::default(), owned, failed: None };
        if let Err(refused) = perform(&app, &id, (checked, queued), &cancel, &mut forward) {
            drop(forward.owned.take());
            forward.end(Update::Failed(refused.into()));
        }
    });
    Ok(run)
}

/// Reserves memory for what a client has not read yet.
struct AnswerBudget<'a> {
    app: &'a App,
    handle: Handle,
    client_id: ClientId,
    /// Closed when the client has gone.
    client: UnboundedSender<Update>,
}

impl AnswerBudget<'_> {
    /// Reserves memory for an event or for the result, unless the run has to end meanwhile.
    fn reserve(&self, bytes: usize) -> Result<Reservation, Problem> {
        let available = self.app.answers.wait_for(&self.client_id, bytes, PATIENCE);
        self.handle.block_on(while_read(available, &self.client, self.app.runs_must_end()))
    }
}

/// Waits for memory until the client has gone or runs must end. Memory that is there is taken in any case: a run that the
/// server ends is answered too.
async fn while_read(
    available: impl Future<Output = Result<Reservation, Problem>>,
    client: &UnboundedSender<Update>,
    must_end: impl Future<Output = ()>,
) -> Result<Reservation, Problem> {
    tokio::select! {
        biased;
        reserved = available => reserved,
        () = client.closed() => Err(Refused::Cancelled.into()),
        () = must_end => Err(shutting_down()),
    }
}

/// Passes events on to a client.
struct ClientObserver<'a> {
    updates: UnboundedSender<Update>,
    watched: bool,
    answers: AnswerBudget<'a>,
    encoder: EventEncoder,
    /// The slot and the memory budget, released before the client gets the result, so that its next request finds them free.
    owned: Option<(Slot, Reservation)>,
    /// Why nothing more is passed on: the client does not read.
    failed: Option<Problem>,
}

impl ClientObserver<'_> {
    fn send(&mut self, event: RunEvent) {
        if self.failed.is_some() {
            return;
        }
        match self.answers.reserve(event.size()) {
            Ok(held) => drop(self.updates.send(Update::Event(event, held))),
            Err(problem) => self.failed = Some(problem),
        }
    }

    /// Sends the last update, unless the client has heard of a failure.
    fn end(&mut self, last: Update) {
        let _ = self.updates.send(self.failed.take().map_or(last, Update::Failed));
    }
}

impl Observer for ClientObserver<'_> {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        if self.watched {
            self.send(EventEncoder::start(language, version));
        }
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if self.watched
            && let Some(event) = self.encoder.output(stream, bytes)
        {
            self.send(event);
        }
    }

    fn step(&mut self, step: Step, what: &str, waiting: bool) {
        if self.watched {
            self.send(EventEncoder::step(step, what, waiting));
        }
    }

    fn finish(&mut self, result: &Arc<RunResult>) {
        for event in self.encoder.finish() {
            self.send(event);
        }
        // The slot is kept until there is memory for the result: slots bound the results that wait for some.
        let slot = self.owned.take().map(|(slot, _)| slot);
        let held = self.answers.reserve(result.size());
        drop(slot);
        self.end(match held {
            Ok(held) => Update::Event(RunEvent::Result { result: Arc::clone(result) }, held),
            Err(problem) => Update::Failed(problem),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_waited_for_only_while_the_client_is_there_and_runs_may_go_on() {
        use std::future::{pending, ready};
        let (client, updates) = unbounded_channel();
        let code = |reserved: Result<Reservation, Problem>| reserved.err().map(|problem| problem.code());
        let there = || ready(Ok(Reservation::nothing()));
        assert_eq!(code(while_read(pending(), &client, ready(())).await), Some(Code::ShuttingDown));
        assert_eq!(code(while_read(there(), &client, ready(())).await), None, "a stopped run is answered");
        drop(updates);
        assert!(while_read(pending(), &client, pending()).await.is_err());
        assert_eq!(code(while_read(there(), &client, pending()).await), None);
    }

    #[test]
    fn a_run_that_panics_is_a_failure_of_the_server() {
        let mut counted = 0;
        let ended = survive_panic::<()>(|| panic!("a bug"), || counted += 1);
        assert!(ended.is_err_and(|refused| refused.is_internal() && !refused.is_keeper_end()));
        assert_eq!(counted, 1);
    }
}
