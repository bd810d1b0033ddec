//! The memory budget of requests and responses in flight, and the budget of event streams.
//!
//! A client that sends large requests or reads slowly reserves a part of a budget, at most half of it, so that the rest
//! remains for other clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Code, Problem};

/// The unit in which memory is counted: small enough to be precise, large enough for a semaphore's count.
const UNIT: usize = 1024;

/// How many shares are kept before those without a reservation are removed.
const MOST_REMEMBERED: usize = 1024;

/// Identifies a client: the name of its key, or its address where no key is required.
#[derive(Debug, Clone)]
pub(crate) struct ClientId(pub(crate) Arc<str>);

/// A budget, shared by all clients.
#[derive(Debug)]
pub(crate) struct SharedBudget {
    units: Arc<Semaphore>,
    size: usize,
    unit: usize,
    /// The detail of the problem if the budget is exhausted.
    exhausted: &'static str,
    /// The remaining share of each client.
    shares: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// A part of a budget, released on drop.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    all: Option<OwnedSemaphorePermit>,
    /// The same of the client's share. The permit keeps the share alive.
    share: Option<OwnedSemaphorePermit>,
}

impl SharedBudget {
    /// A budget of memory.
    pub(crate) fn memory(bytes: usize) -> Self {
        let exhausted = "the memory budget for requests and responses (SANDBOX_MAX_HELD) is exhausted, or this client \
                         uses half of it";
        Self::new(bytes / UNIT, UNIT, exhausted)
    }

    /// A budget of event streams.
    pub(crate) fn streams(places: usize) -> Self {
        let exhausted = "the limit on event streams and waiting requests (SANDBOX_MAX_STREAMS) is reached, or this \
                         client uses half of it";
        Self::new(places, 1, exhausted)
    }

    fn new(size: usize, unit: usize, exhausted: &'static str) -> Self {
        Self { units: Arc::new(Semaphore::new(size)), size, unit, exhausted, shares: Mutex::default() }
    }

    /// Reserves this much if it is available.
    pub(crate) fn take(&self, client_id: &ClientId, amount: usize) -> Result<Reservation, Problem> {
        let none = |_| Problem::new(Code::AtCapacity, self.exhausted).retry_after(1);
        let share = self.share(client_id).try_acquire_many_owned(self.units(amount, self.most())).map_err(none)?;
        let all = Arc::clone(&self.units).try_acquire_many_owned(self.units(amount, self.size)).map_err(none)?;
        Ok(Reservation { all: Some(all), share: Some(share) })
    }

    /// Reserves this much, or what is available of it, for something that cannot wait.
    pub(crate) fn take_available(&self, client_id: &ClientId, amount: usize) -> Reservation {
        let acquire = |semaphore: Arc<Semaphore>, most: u32| {
            let mut units = most;
            while units > 0 {
                match Arc::clone(&semaphore).try_acquire_many_owned(units) {
                    Ok(permit) => return Some(permit),
                    // Others may take or give back some meanwhile.
                    Err(_) => units = units.min(u32::try_from(semaphore.available_permits()).unwrap_or(u32::MAX)),
                }
            }
            None
        };
        let mut share = acquire(self.share(client_id), self.units(amount, self.most()));
        let granted = share.as_ref().map_or(0, |permit| u32::try_from(permit.num_permits()).unwrap_or(u32::MAX));
        let all = acquire(Arc::clone(&self.units), granted);
        let unused = granted as usize - all.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        drop(share.as_mut().and_then(|permit| permit.split(unused)));
        Reservation { all, share }
    }

    /// Reserves this much as soon as it is available.
    pub(crate) async fn wait(&self, client_id: &ClientId, amount: usize) -> Reservation {
        let share = self.share(client_id).acquire_many_owned(self.units(amount, self.most())).await.ok();
        let all = Arc::clone(&self.units).acquire_many_owned(self.units(amount, self.size)).await.ok();
        Reservation { all, share }
    }

    /// Reserves this much if it becomes available within this time.
    pub(crate) async fn wait_for(
        &self,
        client_id: &ClientId,
        amount: usize,
        patience: Duration,
    ) -> Result<Reservation, Problem> {
        let waited = tokio::time::timeout(patience, self.wait(client_id, amount)).await;
        waited.map_err(|_| Problem::new(Code::AtCapacity, self.exhausted).retry_after(1))
    }

    /// The maximum for one client.
    fn most(&self) -> usize {
        self.size.div_ceil(2)
    }

    /// An amount that is larger than the budget takes all of it.
    fn units(&self, amount: usize, most: usize) -> u32 {
        u32::try_from(amount.div_ceil(self.unit).min(most)).unwrap_or(u32::MAX)
    }

    fn share(&self, client_id: &ClientId) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&client_id.0).and_then(Weak::upgrade) {
            return share;
        }
        if shares.len() >= MOST_REMEMBERED {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.most()));
        shares.insert(Arc::clone(&client_id.0), Arc::downgrade(&share));
        share
    }
}

impl Reservation {
    /// An empty reservation.
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    /// Adds another reservation of the same client.
    pub(crate) fn and(&mut self, more: Self) {
        let merge = |mine: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>| match (mine, more) {
            (Some(permit), Some(more)) => permit.merge(more),
            (none @ None, more) => *none = more,
            (Some(_), None) => {}
        };
        merge(&mut self.all, more.all);
        merge(&mut self.share, more.share);
    }

    /// Gives memory back, unless the reservation is smaller than that.
    pub(crate) fn release(&mut self, bytes: usize) {
        for permit in [&mut self.all, &mut self.share].into_iter().flatten() {
            drop(permit.split(bytes / UNIT));
        }
    }

    /// Gives all back but this much.
    fn shrink(&mut self, bytes: usize) {
        for permit in [&mut self.all, &mut self.share].into_iter().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(bytes.div_ceil(UNIT))));
        }
    }

    /// Responds with JSON; the reservation lasts until the client has read it.
    pub(crate) fn answer(self, status: StatusCode, value: &impl Serialize) -> Response {
        self.respond(status, serde_json::to_vec(value).unwrap_or_default())
    }

    /// Responds with JSON. The reservation is for the value too, which is dropped.
    pub(crate) fn answer_with(mut self, status: StatusCode, value: impl Serialize) -> Response {
        let bytes = serde_json::to_vec(&value).unwrap_or_default();
        drop(value);
        self.shrink(bytes.len());
        self.respond(status, bytes)
    }

    fn respond(self, status: StatusCode, bytes: Vec<u8>) -> Response {
        let mut response = Response::new(Body::from(Bytes::from_owner(Accounted { bytes, _held: self })));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// Bytes with their reservation.
struct Accounted {
    bytes: Vec<u8>,
    _held: Reservation,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_id(name: &str) -> ClientId {
        ClientId(name.into())
    }

    #[test]
    fn budget_is_released_on_drop() {
        let budget = SharedBudget::memory(10 * UNIT);
        let mut held = Reservation::nothing();
        held.and(budget.take(&client_id("a"), 4 * UNIT).expect("there"));
        held.and(budget.take(&client_id("a"), 1).expect("there"));
        assert!(budget.take(&client_id("a"), 1).is_err(), "half is all for one client");
        let rest = budget.take(&client_id("b"), 5 * UNIT).expect("there");
        assert!(budget.take(&client_id("c"), 1).is_err());
        held.release(2 * UNIT);
        drop(budget.take(&client_id("a"), 2 * UNIT).expect("there again"));
        assert!(budget.take(&client_id("a"), 3 * UNIT).is_err());
        drop((held, rest));
        assert!(budget.take(&client_id("a"), 1000 * UNIT).is_ok(), "more than all is all");
    }

    #[test]
    fn what_is_available_can_be_taken_without_waiting() {
        let budget = SharedBudget::memory(10 * UNIT);
        let (jobs, other) = (client_id("jobs"), client_id("other"));
        let first = budget.take_available(&jobs, 3 * UNIT);
        let rest = budget.take_available(&jobs, 3 * UNIT);
        assert!(budget.take(&jobs, 1).is_err(), "half is all for one client");
        let others = budget.take(&other, 4 * UNIT).expect("there");
        drop(first);
        let most = budget.take(&client_id("third"), 4 * UNIT).expect("there");
        drop(budget.take_available(&jobs, 3 * UNIT));
        assert!(budget.take(&client_id("fourth"), 1).is_err(), "all is taken");
        assert_eq!(budget.share(&jobs).available_permits(), 3, "what was not there counts for no share");
        drop((rest, others, most));
        assert!(budget.take(&jobs, 5 * UNIT).is_ok());
    }

    #[test]
    fn shares_without_a_reservation_are_removed() {
        let budget = SharedBudget::streams(4);
        let held = budget.take(&client_id("stays"), 2).expect("there");
        for n in 0..3 * MOST_REMEMBERED {
            drop(budget.take(&client_id(&n.to_string()), 1).expect("there"));
        }
        assert!(budget.shares.lock().expect("lock").len() <= MOST_REMEMBERED);
        assert!(budget.take(&client_id("stays"), 1).is_err());
        drop(held);
        assert!(budget.take(&client_id("stays"), 1).is_ok());
    }
}
