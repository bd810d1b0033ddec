//! How a run waits for a cell, and stops waiting when its caller goes away.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::shelves::{CellWaiter, ShelfCell, ShelfOrder, Shelves};

/// The interval at which a waiting run checks whether its caller has gone away.
const NOTICE: Duration = Duration::from_millis(20);

/// The caller went away.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

/// Waits for a cell as long as some arrive. A child of a running interpreter is ready sooner than another interpreter
/// would be, and takes less CPU time.
pub(crate) fn wait_for_cell<Order: ShelfOrder, Made: ShelfCell, Handle>(
    shelves: &Mutex<Shelves<Order, Made, Handle>>,
    waiter: &CellWaiter<Made>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<Made>, Cancelled> {
    let began = Instant::now();
    loop {
        match waiter.receiver.recv_timeout(NOTICE) {
            Ok(made) => return Ok(Some(made)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let gone = cancelled();
        let mut shelves = shelves.lock().unwrap_or_else(PoisonError::into_inner);
        if gone {
            shelves.withdraw(waiter);
            return Err(Cancelled);
        }
        if !shelves.is_worth_waiting(waiter, began.elapsed(), Instant::now()) {
            return Ok(shelves.leave(waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::shelves::tests::{FakeCell, FakeOrder, fake_shelves};
    use crate::shelves::{AT_ONCE, Demand, WORTH_WAITING};

    type FakeShelves = Shelves<FakeOrder, FakeCell, ()>;

    /// Shelves with a warm order whose only cell was taken, and a run that waits for the next one.
    fn waiting() -> (Mutex<FakeShelves>, CellWaiter<FakeCell>) {
        waiting_since(Instant::now())
    }

    /// The same, with a cell that was made at this time.
    fn waiting_since(now: Instant) -> (Mutex<FakeShelves>, CellWaiter<FakeCell>) {
        let (mut shelves, order) = (fake_shelves(4, 1), FakeOrder::zygote("python"));
        shelves.expect(&order, now, |_| Some(()));
        let orders = shelves.next_orders(|_, _| true);
        assert!((1..=AT_ONCE).contains(&orders.len()));
        for (id, _) in orders {
            shelves.finish(id, Some(FakeCell::new(0)), now);
        }
        assert!(matches!(shelves.demand(&order, now, |_| Some(())), Demand::Cell(_)));
        let Demand::Wait(waiter) = shelves.demand(&order, now, |_| Some(())) else { panic!("a zygote is worth it") };
        (Mutex::new(shelves), waiter)
    }

    #[test]
    fn a_waiting_run_notices_cancellation() {
        const { assert!(NOTICE.as_millis() < 50, "callers rely on it") };
        // With a cell from the future, the run would wait for an hour, however slow this host is.
        let ((shelves, waiter), checks) = (waiting_since(Instant::now() + Duration::from_secs(3600)), Cell::new(0));
        let gone = || {
            checks.set(checks.get() + 1);
            checks.get() == 3
        };
        assert_eq!(wait_for_cell(&shelves, &waiter, &gone).map(|made| made.is_some()), Err(Cancelled));
    }

    #[test]
    fn a_run_stops_waiting_when_no_cells_arrive() {
        let (shelves, waiter) = waiting();
        let began = Instant::now();
        assert!(wait_for_cell(&shelves, &waiter, &|| false).is_ok_and(|made| made.is_none()));
        assert!(began.elapsed() >= WORTH_WAITING);
    }

    #[test]
    fn a_waiting_run_ends_when_the_pool_is_closed() {
        let (shelves, waiter) = waiting();
        shelves.lock().expect("not poisoned").close();
        assert!(wait_for_cell(&shelves, &waiter, &|| false).is_ok_and(|made| made.is_none()));
    }
}
