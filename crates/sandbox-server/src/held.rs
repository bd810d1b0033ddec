//! How much memory requests and answers may take together, while they are on their way.
//!
//! A client that sends much or reads slowly holds some of it. When all there is for requests is held, others are told to
//! come again; when all there is for answers is held, runs that have ended keep their places until somebody reads.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Code, Problem};

/// What is counted in: small enough to be exact, large enough for a semaphore's count.
const UNIT: usize = 1024;

/// All that may be held.
#[derive(Debug)]
pub(crate) struct Room {
    units: Arc<Semaphore>,
    size: usize,
}

/// Some that is held, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held(Option<OwnedSemaphorePermit>);

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        let size = bytes / UNIT;
        Self { units: Arc::new(Semaphore::new(size)), size }
    }

    /// Takes this much, if it is there.
    pub(crate) fn take(&self, bytes: usize) -> Result<Held, Problem> {
        let units = self.units_for(bytes);
        let taken = Arc::clone(&self.units).try_acquire_many_owned(units).map_err(|_| {
            let detail = "what clients have sent and not yet read takes all the memory there is for it";
            Problem::new(Code::AtCapacity, detail).retry_after(1)
        })?;
        Ok(Held(Some(taken)))
    }

    /// Takes this much when it is there.
    pub(crate) async fn wait(&self, bytes: usize) -> Held {
        Held(Arc::clone(&self.units).acquire_many_owned(self.units_for(bytes)).await.ok())
    }

    /// Nobody can hold more than all.
    fn units_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.size)).unwrap_or(u32::MAX)
    }
}

impl Held {
    /// Nothing.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// This and that together.
    pub(crate) fn and(&mut self, more: Self) {
        match (&mut self.0, more.0) {
            (Some(permit), Some(more)) => permit.merge(more),
            (none @ None, more) => *none = more,
            (Some(_), None) => {}
        }
    }
}

impl Room {
    /// Answers with JSON, if there is room for it.
    pub(crate) fn answer(&self, value: &impl Serialize) -> Result<Response, Problem> {
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        Ok(self.take(bytes.len())?.respond(StatusCode::OK, bytes))
    }
}

impl Held {
    /// Answers with JSON; what it takes is held until the client has read it.
    pub(crate) fn answer(self, status: StatusCode, value: &impl Serialize) -> Response {
        self.respond(status, serde_json::to_vec(value).unwrap_or_default())
    }

    fn respond(self, status: StatusCode, bytes: Vec<u8>) -> Response {
        let held = self;
        let body = Full::new(Bytes::from(bytes)).map_frame(move |frame| {
            let _ = &held;
            frame
        });
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_not_there_until_it_is_dropped() {
        let room = Room::new(10 * UNIT);
        let mut held = Held::nothing();
        held.and(room.take(4 * UNIT).expect("there"));
        held.and(room.take(1).expect("there"));
        assert!(room.take(6 * UNIT).is_err());
        let rest = room.take(5 * UNIT).expect("there");
        drop((held, rest));
        assert!(room.take(1000 * UNIT).is_ok(), "more than all is all");
    }
}
