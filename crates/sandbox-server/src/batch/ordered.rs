//! The results of a batch as one JSON array, in the order of the inputs.
//!
//! The array is written as it grows, and a result that comes before its turn is kept, with its memory, until then. So that
//! few are kept, an input is started only when the results of most inputs before it have been written.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use sandbox_executor::RunResult;
use serde::Serialize;
use tokio::sync::watch;
use tokio_stream::Stream;
use utoipa::ToSchema;

use super::{Ended, Message};
use crate::memory_budget::Reservation;
use crate::problem::Problem;

/// The outcome of one run of a batch: either `result` or `problem`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchItem {
    /// The index of the input.
    index: usize,
    /// The result of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RunResult>)]
    result: Option<Arc<RunResult>>,
    /// Why the run could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// How far the array has been written, for the runs that would get too far ahead of it.
pub(super) struct ArrayProgress(Option<(watch::Receiver<usize>, usize)>);

impl ArrayProgress {
    /// The progress of an answer that takes results in any order.
    pub(super) fn unbounded() -> Self {
        Self(None)
    }

    /// Waits until an input may start.
    pub(super) async fn allows(&mut self, index: usize) {
        if let Some((written, window)) = &mut self.0 {
            // If the answer is gone, the caller learns of that from the channel of its messages.
            let _ = written.wait_for(|written| index < written + *window).await;
        }
    }
}

/// Answers with the array.
pub(super) fn respond<S>(messages: S, place: Reservation, window: usize) -> (Response, ArrayProgress)
where
    S: Stream<Item = Message> + Unpin + Send + 'static,
{
    let (written, progress) = watch::channel(0);
    let array = Array { messages, written, early: BTreeMap::new(), last: None, ended: false, _place: place };
    let mut response = Response::new(Body::from_stream(array));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (response, ArrayProgress(Some((progress, window.max(1)))))
}

/// The array, in pieces: one for each result.
struct Array<S> {
    messages: S,
    /// The number of results that have been written.
    written: watch::Sender<usize>,
    /// Results whose turn has not come, by the index of their input.
    early: BTreeMap<usize, Ended>,
    /// The memory of the piece that was written last, released when the connection has room for the next one.
    last: Option<Reservation>,
    ended: bool,
    _place: Reservation,
}

impl<S> Array<S> {
    /// The next result in order, as text, if it is there.
    fn next_in_order(&mut self) -> Option<Bytes> {
        let index = *self.written.borrow();
        let Ended { outcome, .. } = self.early.remove(&index)?;
        let (item, held) = match outcome {
            Ok((result, held)) => (BatchItem { index, result: Some(result), problem: None }, held),
            Err(problem) => (BatchItem { index, result: None, problem: Some(problem) }, Reservation::nothing()),
        };
        let mut text = vec![if index == 0 { b'[' } else { b',' }];
        // Results and problems can always be written.
        let _ = serde_json::to_writer(&mut text, &item);
        self.last = Some(held);
        self.written.send_replace(index + 1);
        Some(text.into())
    }
}

impl<S: Stream<Item = Message> + Unpin> Stream for Array<S> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.last = None;
        loop {
            if let Some(text) = self.next_in_order() {
                return Poll::Ready(Some(Ok(text)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match Pin::new(&mut self.messages).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Message::Ended(ended))) => {
                    self.early.insert(ended.index, ended);
                }
                Poll::Ready(Some(Message::End)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Ok(Bytes::from_static(b"]"))));
                }
                // The runs were given up: an array that ended here would seem complete.
                Poll::Ready(None) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(io::Error::other("the batch was interrupted"))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use serde_json::Value;
    use tokio_stream::iter;

    use super::*;
    use crate::problem::Code;

    fn ended(index: usize) -> Message {
        Message::Ended(Ended { index, outcome: Err(Problem::new(Code::Internal, index.to_string())) })
    }

    #[tokio::test]
    async fn results_are_in_the_order_of_their_inputs() {
        let messages = iter([ended(2), ended(0), ended(1), Message::End]);
        let (response, _) = respond(messages, Reservation::nothing(), 4);
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        let list: Vec<Value> = serde_json::from_slice(&body).expect("an array");
        let indexes: Vec<_> = list.iter().map(|item| item["index"].as_u64().expect("a number")).collect();
        assert_eq!((indexes, &list[2]["problem"]["detail"]), (vec![0, 1, 2], &"2".into()));
        assert!(list[0].get("result").is_none());
    }

    #[tokio::test]
    async fn an_answer_that_was_interrupted_fails() {
        let (response, _) = respond(iter([ended(0)]), Reservation::nothing(), 4);
        assert!(to_bytes(response.into_body(), usize::MAX).await.is_err());
    }

    #[tokio::test]
    async fn inputs_far_ahead_of_the_array_wait() {
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let (response, mut progress) = respond(messages, Reservation::nothing(), 2);
        progress.allows(1).await;
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), progress.allows(2)).await;
        assert!(waits.is_err());
        let body = tokio::spawn(to_bytes(response.into_body(), usize::MAX));
        assert!(sender.send(ended(0)).await.is_ok());
        progress.allows(2).await;
        assert!(sender.send(Message::End).await.is_ok());
        assert!(body.await.expect("no panic").is_ok());
    }
}
