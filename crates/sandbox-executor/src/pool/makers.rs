//! The threads that fill the shelves.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox_cell::{Cell, Failure, Keeper};

use super::shelves::{LOOK, Made, State};
use super::{Order, Room};
use crate::companion::Companion;
use crate::warmth::Warmth;
use crate::zygote::Zygote;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keeper: Keeper,
    pub(super) room: Room,
    pub(super) state: Mutex<State>,
    /// Where the maker of plain cells waits until some are wanted, or all is over.
    pub(super) plain: Arc<Condvar>,
}

/// How many cells are made at one time: while one locks itself, the keeper can begin the next.
const AT_ONCE: usize = 2;

/// How long nobody must have asked for a companion before another is made.
const QUIET: Duration = Duration::from_millis(300);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes plain cells until all is over, and looks after all shelves.
    pub(super) fn make_plain(&self) {
        let mut next_look = Instant::now() + LOOK;
        loop {
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                let surplus = self.lock().look();
                drop(surplus);
            }
            let Some(orders) = self.wait_for_orders(&self.plain, next_look, |order| order.warmth.is_none()) else {
                return;
            };
            let cells: Vec<_> = orders.iter().map(|order| self.keeper.create(&order.spec)).collect();
            for (order, cell) in orders.iter().zip(cells) {
                let ready = |mut cell: Cell| cell.ready().map(|_| Made { cell, companion: None });
                self.put(order, cell.and_then(ready));
            }
        }
    }

    /// Makes cells with interpreters in them until their shelf is gone.
    pub(super) fn make_warm(&self, wanted: &Condvar, order: &Order, warmth: &Warmth) {
        let mut zygote = Zygote::start(&self.keeper, &order.spec, warmth);
        // One that does not get warm will not another time either; its runs start as they would without it.
        while let Ok(warm) = &zygote {
            let soon = Instant::now() + LOOK;
            let Some(orders) = self.wait_for_orders(wanted, soon, |other| other == order) else { return };
            let ended = warm.has_ended();
            let mut state = self.lock();
            let Some(index) = state.find(order) else { return };
            if ended {
                state.shelves[index].making = 0;
            }
            drop(state);
            if ended {
                zygote = Zygote::start(&self.keeper, &order.spec, warmth);
                continue;
            }
            let made: Vec<_> = orders.iter().map(|order| warm.make(&self.keeper, &order.spec)).collect();
            let entered = |mut cell: Cell| warm.enter(&mut cell).map(|()| cell);
            let made: Vec<_> = made.into_iter().map(|cell| cell.and_then(entered)).collect();
            let waits = |mut cell: Cell| Zygote::wait(&mut cell).map(|()| Made { cell, companion: None });
            for cell in made {
                self.put(order, cell.and_then(waits));
            }
        }
        let mut state = self.lock();
        if let Some(index) = state.find(order) {
            state.shelves[index].give_up();
        }
    }

    /// Makes cells with companions in them until their shelf is gone. One after the other, and not while others are busy
    /// with what they took: each takes a CPU for a while, which a run that has to do without would need more.
    pub(super) fn make_accompanied(&self, wanted: &Condvar, order: &Order, warmth: &Warmth) {
        let is_kept = || {
            let state = self.lock();
            !state.closed && state.find(order).is_some()
        };
        let mut works = true;
        // One that does not get ready will not another time either.
        while works && is_kept() {
            let soon = Instant::now() + LOOK;
            let Some(orders) = self.wait_for_orders(wanted, soon, |other| other == order) else { return };
            for order in &orders {
                while is_kept() && self.lock().find_shelf(order).is_some_and(|shelf| shelf.used.elapsed() < QUIET) {
                    std::thread::sleep(QUIET / 4);
                }
                let made = Companion::start(&self.keeper, &order.spec, &warmth.command, is_kept);
                works &= made.is_ok();
                self.put(order, made.map(|(cell, companion)| Made { cell, companion: Some(companion) }));
            }
        }
    }

    /// Waits until some cells of these are wanted, but not longer than until `until`. None when all is over.
    fn wait_for_orders(&self, wanted: &Condvar, until: Instant, mine: impl Fn(&Order) -> bool) -> Option<Vec<Order>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let orders = self.next(&mut state, &mine);
            let left = until.saturating_duration_since(Instant::now());
            if !orders.is_empty() || left.is_zero() {
                return Some(orders);
            }
            state = match wanted.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// What to make next, and notes that it is being made.
    fn next(&self, state: &mut State, mine: impl Fn(&Order) -> bool) -> Vec<Order> {
        let mut orders = vec![];
        while orders.len() < AT_ONCE {
            let Some(index) = state.lacking(&mine) else { break };
            let used = state.shelves[index].used;
            if state.held() >= self.room.cells && state.give_up_one(used).is_none() {
                break;
            }
            state.shelves[index].making += 1;
            orders.push(state.shelves[index].order.clone());
        }
        orders
    }

    fn put(&self, order: &Order, made: Result<Made, Failure>) {
        let mut state = self.lock();
        let Some(index) = state.find(order) else { return };
        let shelf = &mut state.shelves[index];
        shelf.making = shelf.making.saturating_sub(1);
        match made {
            Ok(made) => shelf.put(made),
            Err(_) => shelf.give_up(),
        }
    }
}
