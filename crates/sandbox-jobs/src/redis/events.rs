//! The events of jobs: appended by the server that runs a job, read by those who follow it.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use sandbox_executor::RunEvent;

use super::record::written_nonce;
use super::{RESULT_EVENT, RedisStore, Result, json, parse, scripts};
use crate::model::{Attempt, Event, JobId};

/// The largest number of an event that the numbers of scripts can hold. No job has so many.
const LAST_EVENT: u64 = 1 << 53;

/// The events of an attempt that this server runs. No other server appends to them, so those after the last known one are
/// from a batch whose answer was lost or comes later, and are not appended again.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendState {
    pub(super) attempt: Attempt,
    /// The number of the last event that is known to be stored.
    pub(super) last: u64,
}

impl RedisStore {
    pub(super) fn appends(&self) -> MutexGuard<'_, HashMap<JobId, AppendState>> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the events of an attempt that has ended. This server may run the next attempt already.
    pub(super) fn forget_appends(&self, attempt: Attempt) {
        self.appends().retain(|id, state| *id != attempt.id || state.attempt != attempt);
    }

    /// Records what happened in an attempt. Returns false if it is not the job's current one.
    ///
    /// After a failure the same events have to be passed again, and may be followed by more: those that were stored are not
    /// stored twice.
    pub(crate) async fn append(&self, attempt: Attempt, events: Vec<RunEvent>) -> Result<bool> {
        let state = self.appends().get(&attempt.id).copied().filter(|state| state.attempt == attempt);
        let mut call = self.call(&scripts::APPEND);
        call.key(self.of("events", attempt.id))
            .arg(attempt.id.to_string())
            .arg(attempt.number)
            .arg(written_nonce(attempt.nonce));
        call.arg(state.map_or_else(String::new, |state| state.last.to_string()));
        for event in &events {
            call.arg(json(event));
        }
        let last: i64 = call.invoke_async(&mut self.connection().await?).await?;
        let Ok(last) = u64::try_from(last) else { return Ok(false) };
        if let Some(state) = self.appends().get_mut(&attempt.id).filter(|state| state.attempt == attempt) {
            state.last = last;
        }
        Ok(true)
    }

    /// The next events of a job after one of them, at most this many.
    pub(crate) async fn events(&self, id: JobId, after: u64, most: usize) -> Result<Vec<Event>> {
        let mut call = self.call(&scripts::EVENTS);
        call.key(self.of("events", id)).arg(id.to_string()).arg(after.min(LAST_EVENT)).arg(most);
        let mut connection = self.connection().await?;
        let (first, written): (u64, Vec<String>) = call.invoke_async(&mut connection).await?;
        let mut events = vec![];
        for (number, text) in (first..).zip(written) {
            let what = if text == RESULT_EVENT {
                let mut command = redis::cmd("GET");
                let result: Option<String> = command.arg(self.of("result", id)).query_async(&mut connection).await?;
                parse(result.as_ref()).map(|result| RunEvent::Result { result: Arc::new(result) })
            } else {
                parse(Some(&text))
            };
            events.extend(what.map(|what| Event { number, what }));
        }
        Ok(events)
    }
}
