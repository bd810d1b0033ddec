//! Event streams as clients get them. An idle stream holds its reservation and no memory budget; an event holds its memory
//! until the client has taken it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandbox_executor::{RunEvent, RunResult};
use serde::Serialize;
use tokio_stream::Stream;
use utoipa::ToSchema;

use crate::memory_budget::Reservation;
use crate::problem::Problem;
use crate::runs::{RunHandle, Update};

/// An event, with the memory that it takes.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) event: Event,
    pub(crate) held: Option<Arc<Reservation>>,
}

impl Item {
    /// An event of a run, with the memory that it takes.
    pub(crate) fn of_run(event: &RunEvent, held: Option<Arc<Reservation>>) -> Self {
        Self { event: Event::default().event(event.name()).json_data(event).unwrap_or_default(), held }
    }
}

/// An event that the server adds to those of runs (`RunEvent`).
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum ServerEvent {
    /// A run of a batch has ended.
    Result {
        /// The index of its input.
        index: usize,
        /// The result.
        #[schema(value_type = RunResult)]
        result: Arc<RunResult>,
    },
    /// A run could not be carried out.
    Error {
        /// The index of its input, in a batch.
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<usize>,
        /// The reason.
        problem: Problem,
    },
    /// All runs of a batch have ended.
    End,
    /// The server shuts down. Resume the stream at any server.
    Shutdown,
}

impl ServerEvent {
    fn name(&self) -> &'static str {
        match self {
            Self::Result { .. } => "result",
            Self::Error { .. } => "error",
            Self::End => "end",
            Self::Shutdown => "shutdown",
        }
    }

    /// The server-sent event, with the memory that it takes.
    pub(crate) fn item(&self, held: Reservation) -> Item {
        let event = Event::default().event(self.name()).json_data(self).unwrap_or_default();
        Item { event, held: Some(Arc::new(held)) }
    }
}

/// A stream of events with its reservation among the streams.
struct Paced<S> {
    items: S,
    /// The memory of the previous event, released when the connection has room for the next one.
    last: Option<Arc<Reservation>>,
    _reservation: Reservation,
}

impl<S: Stream<Item = Item> + Unpin> Stream for Paced<S> {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.last = None;
        Pin::new(&mut self.items).poll_next(cx).map(|item| {
            let Item { event, held } = item?;
            self.last = held;
            Some(Ok(event))
        })
    }
}

/// The updates of a run.
impl Stream for RunHandle {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.poll_update(cx).map(|update| update.map(Update::item))
    }
}

/// Answers with events.
pub(crate) fn respond(items: impl Stream<Item = Item> + Unpin + Send + 'static, reservation: Reservation) -> Response {
    Sse::new(Paced { items, last: None, _reservation: reservation }).keep_alive(KeepAlive::default()).into_response()
}
