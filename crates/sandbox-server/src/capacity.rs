//! Capacity: each run takes one of `SANDBOX_CAPACITY` slots, by the rules of the [`ledger`]. `/execute` gets 429 if it would
//! have to wait for long; batches and jobs wait.

mod ledger;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_base::counted;
use tokio::sync::{Notify, oneshot};

use self::ledger::{Ledger, RunKind};
use crate::problem::{Code, Problem};

pub(crate) use self::ledger::Owner;

/// The longest that `/execute` waits for a slot that it is owed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest that the worker waits before it looks at the queue again: jobs may have been cancelled.
const GLANCE: Duration = Duration::from_secs(1);

/// All slots of the server.
#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<SlotState>,
    /// Wakes the worker when a job may find a slot.
    changed: Notify,
    capacity: usize,
}

#[derive(Debug)]
struct SlotState {
    ledger: Ledger,
    /// The runs that wait, by ticket.
    waiting: HashMap<u64, oneshot::Sender<Slot>>,
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    owner: Owner,
    kind: RunKind,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.change(|ledger| ledger.release(&self.owner, self.kind));
        self.slots.changed.notify_one();
    }
}

/// A run that waits for a slot. Dropping it gives up the wait.
struct WaitingRun {
    slots: Arc<Slots>,
    ticket: u64,
    slot: oneshot::Receiver<Slot>,
}

impl Drop for WaitingRun {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.waiting.remove(&self.ticket);
        drop(state);
        self.slots.change(|ledger| ledger.leave(self.ticket));
        self.slots.changed.notify_one();
    }
}

impl Slots {
    /// Slots for `capacity` runs, of which `percent` are reserved for each class. Some owners may have only so many.
    pub(crate) fn new(capacity: usize, percent: usize, caps: HashMap<Owner, usize>) -> Arc<Self> {
        let state = SlotState { ledger: Ledger::new(capacity, percent, caps), waiting: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), capacity })
    }

    /// Changes how many runs some owners may have. Runs that go on are not ended.
    pub(crate) fn set_caps(self: &Arc<Self>, caps: HashMap<Owner, usize>) {
        self.change(|ledger| ledger.set_caps(caps));
        self.changed.notify_one();
    }

    /// The number of slots.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of slots in use.
    pub(crate) fn held(&self) -> usize {
        self.state().ledger.held()
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the ledger, and hands slots to the runs that it admits then.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state.ledger);
        let mut handed = vec![];
        for (ticket, owner, kind) in state.ledger.settle() {
            let slot = Slot { slots: Arc::clone(self), owner, kind };
            handed.push((state.waiting.remove(&ticket), slot));
        }
        drop(state);
        for (waiter, slot) in handed {
            // A slot for a client that has gone away is dropped, which locks the state again.
            let _ = waiter.map(|waiter| waiter.send(slot));
        }
        changed
    }

    fn enter(self: &Arc<Self>, owner: &Owner, kind: RunKind) -> WaitingRun {
        let (sender, slot) = oneshot::channel();
        let mut state = self.state();
        let ticket = state.ledger.enter(owner.clone(), kind);
        state.waiting.insert(ticket, sender);
        drop(state);
        self.change(|_| ());
        WaitingRun { slots: Arc::clone(self), ticket, slot }
    }

    /// A slot for `/execute`: at once, or soon if other owners, jobs or batches hold what this owner is owed.
    pub(crate) async fn execute(self: &Arc<Self>, owner: &Owner) -> Result<Slot, Problem> {
        let mut waiting_run = self.enter(owner, RunKind::Execute);
        if let Ok(slot) = waiting_run.slot.try_recv() {
            return Ok(slot);
        }
        if self.state().ledger.is_owed(waiting_run.ticket)
            && let Ok(Ok(slot)) = tokio::time::timeout(PATIENCE, &mut waiting_run.slot).await
        {
            return Ok(slot);
        }
        let detail = if self.state().ledger.is_capped(owner) {
            "at capacity: the concurrent runs of this API key have reached its runs= limit".to_owned()
        } else {
            format!("at capacity: {} (SANDBOX_CAPACITY)", counted(self.capacity, "concurrent run"))
        };
        Err(Problem::new(Code::AtCapacity, detail).retry_after(1))
    }

    /// A slot for a run of a batch, when there is one.
    pub(crate) async fn batch(self: &Arc<Self>, owner: &Owner) -> Option<Slot> {
        let mut waiting_run = self.enter(owner, RunKind::Batch);
        (&mut waiting_run.slot).await.ok()
    }

    /// A slot for a job of one of these owners, the first that may have one. Until this is called again, the share of jobs is
    /// kept for them.
    pub(crate) fn job(self: &Arc<Self>, owners: Vec<Owner>) -> Option<(Owner, Slot)> {
        let owner = self.change(|ledger| ledger.offer_jobs(owners))?;
        let slot = Slot { slots: Arc::clone(self), owner: owner.clone(), kind: RunKind::Job };
        Some((owner, slot))
    }

    /// Whether an owner may start a job as soon as there is a slot for it: its cap does not keep it from that.
    pub(crate) fn may_start_job(&self, owner: &Owner) -> bool {
        self.state().ledger.job_may_start(owner)
    }

    /// Whether no job of any owner could have a slot now.
    pub(crate) fn are_full_for_jobs(&self) -> bool {
        self.state().ledger.is_full_for_jobs()
    }

    /// Waits until a job may find a slot.
    pub(crate) async fn changed(&self) {
        let _ = tokio::time::timeout(GLANCE, self.changed.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slots_are_released_on_drop() {
        let slots = Slots::new(2, 25, HashMap::new());
        let both = (slots.execute(&None).await.expect("free"), slots.execute(&None).await.expect("free"));
        assert!(slots.execute(&None).await.is_err());
        assert_eq!(slots.held(), 2);
        drop(both);
        assert_eq!(slots.held(), 0);
        let (owner, job) = slots.job(vec![None]).expect("free");
        assert!(owner.is_none() && slots.job(vec![None]).is_none(), "one slot is for synchronous runs");
        drop(job);
        assert!(slots.job(vec![None]).is_some());
    }

    #[tokio::test]
    async fn a_client_that_disconnects_gives_up_its_wait() {
        let slots = Slots::new(1, 25, HashMap::new());
        let first = slots.batch(&None).await.expect("free");
        let gone = tokio::time::timeout(Duration::ZERO, slots.batch(&None)).await;
        assert!(gone.is_err() && slots.state().waiting.is_empty());
        drop(first);
        assert_eq!(slots.held(), 0);
        let waiting_run = slots.enter(&None, RunKind::Batch);
        assert_eq!(slots.held(), 1, "it has its slot");
        drop(waiting_run);
        assert_eq!(slots.held(), 0, "and gave it back without having looked at it");
    }

    #[tokio::test]
    async fn a_synchronous_run_gets_the_only_slot_after_the_job() {
        let slots = Slots::new(1, 25, HashMap::new());
        let (_, job) = slots.job(vec![None]).expect("free");
        let mut run = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.execute(&None).await }
        });
        while slots.state().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(slots.job(vec![None]).is_none());
        drop(job);
        assert!(slots.job(vec![None]).is_none(), "it is the turn of the synchronous run");
        assert!((&mut run).await.expect("no panic").is_ok());
        assert!(slots.job(vec![None]).is_some(), "and then the job's");
    }
}
