//! Event streams as clients get them. An idle stream holds its place and no memory budget; an event holds what it takes
//! until the client has taken it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio_stream::Stream;

use crate::memory_budget::Reservation;
use crate::runs::{RunHandle, Update};

/// An event, with what it takes.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) event: Event,
    pub(crate) held: Option<Arc<Reservation>>,
}

/// A stream of events with its place among the streams.
struct Paced<S> {
    items: S,
    /// The memory of the previous event, released when the connection has room for the next one.
    last: Option<Arc<Reservation>>,
    _place: Reservation,
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
pub(crate) fn respond(items: impl Stream<Item = Item> + Unpin + Send + 'static, place: Reservation) -> Response {
    Sse::new(Paced { items, last: None, _place: place }).keep_alive(KeepAlive::default()).into_response()
}
