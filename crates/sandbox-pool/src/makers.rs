//! The threads that fill the shelves.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox_cell::{Cell, Failure, Keeper};

use crate::companion::CompanionProcess;
use crate::order::CellOrder;
use crate::prestart::Prestart;
use crate::self_test;
use crate::shelves::{LOOK, ShelfCell, ShelfId, Shelves};
use crate::warm_starts::WarmStarts;
use crate::zygote::Zygote;

/// What the pool and its threads share.
#[derive(Debug)]
pub(crate) struct PoolShared {
    pub(crate) keeper: Keeper,
    pub(crate) shelves: Mutex<CellShelves>,
    pub(crate) warm_starts: WarmStarts,
    /// Wakes the maker of plain cells.
    pub(crate) plain: Arc<Condvar>,
}

/// The shelves of this pool. A condition variable wakes the maker of a shelf.
pub(crate) type CellShelves = Shelves<CellOrder, ReadyCell, Arc<Condvar>>;

/// A cell on a shelf, with the companion that waits in it.
#[derive(Debug)]
pub(crate) struct ReadyCell {
    pub(crate) cell: Cell,
    companion: Option<CompanionProcess>,
}

impl ShelfCell for ReadyCell {
    fn has_ended(&self) -> bool {
        // A ready cell is silent until it ends.
        sandbox_base::wait::is_readable(&[&self.cell], Duration::ZERO)
            || self.companion.as_ref().is_some_and(CompanionProcess::has_ended)
    }
}

/// How long no run must have asked for a companion before another is started.
const QUIET: Duration = Duration::from_millis(300);

impl PoolShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, CellShelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes plain cells until the pool is closed, and removes surplus cells of all shelves.
    pub(crate) fn make_plain(&self) {
        let mut next_look = Instant::now() + LOOK;
        loop {
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                let surplus = self.lock().look(Instant::now());
                drop(surplus);
            }
            let mine = |_, order: &CellOrder| order.prestart.is_none();
            let Some(orders) = self.wait_for_orders(&self.plain, next_look, mine) else { return };
            let cells: Vec<_> = orders.iter().map(|(_, order)| self.keeper.create(&order.spec)).collect();
            for ((id, _), cell) in orders.into_iter().zip(cells) {
                let ready = |mut cell: Cell| cell.ready().map(|_| ReadyCell { cell, companion: None });
                self.finish(id, cell.and_then(ready));
            }
        }
    }

    /// Makes cells with forked interpreters in them until their shelf is removed.
    pub(crate) fn make_warm(&self, wanted: &Condvar, id: ShelfId, order: &CellOrder, prestart: &Prestart) {
        let mut zygote = self.start_zygote(order, prestart);
        let mut served = false;
        // A zygote that fails to start would fail again: its runs start without one.
        while let Some(warm) = &zygote {
            let soon = Instant::now() + LOOK;
            let Some(orders) = self.wait_for_orders(wanted, soon, |other, _| other == id) else { return };
            if !self.lock().has(id) {
                return;
            }
            if warm.has_ended() {
                self.lock().return_orders(id, orders.len());
                // So would one that ends before its first child.
                if !std::mem::take(&mut served) {
                    break;
                }
                zygote = self.start_zygote(order, prestart);
                continue;
            }
            let made: Vec<_> = orders.iter().map(|(_, order)| warm.make(&self.keeper, &order.spec)).collect();
            let entered = |mut cell: Cell| warm.enter(&mut cell).map(|()| cell);
            let made: Vec<_> = made.into_iter().map(|cell| cell.and_then(entered)).collect();
            let waits = |mut cell: Cell| Zygote::wait(&mut cell).map(|()| ReadyCell { cell, companion: None });
            for cell in made {
                let cell = cell.and_then(waits);
                served |= cell.is_ok();
                self.finish(id, cell);
            }
        }
        self.lock().fail(id);
    }

    /// Starts a zygote. The first of a language is tested before a run gets one of its children.
    fn start_zygote(&self, order: &CellOrder, prestart: &Prestart) -> Option<Zygote> {
        let language = prestart.language.as_deref().unwrap_or_default();
        let zygote = Zygote::start(&self.keeper, &order.spec, prestart)
            .map_err(|failure| self.warm_starts.fail(language, failure.to_string()))
            .ok()?;
        if !self.warm_starts.work(language) {
            let tested = prestart.self_test.as_ref();
            let works = tested.map_or(Ok(()), |test| self_test::compare(&self.keeper, &zygote, &order.spec, test));
            match works {
                Ok(()) => self.warm_starts.accept(language),
                // A server that ends takes the cells of the test away.
                Err(_) if self.lock().is_closed() => {}
                Err(reason) => self.warm_starts.refuse(language, reason),
            }
        }
        Some(zygote).filter(|_| self.warm_starts.allow(prestart))
    }

    /// Makes cells with companions in them until their shelf is removed. One after the other, and not while requests come
    /// close together: a companion takes a CPU for a while, which a run that has to do without needs more.
    pub(crate) fn make_accompanied(&self, wanted: &Condvar, id: ShelfId, prestart: &Prestart) {
        let is_kept = || self.lock().has(id);
        let mut works = true;
        // A companion that fails to get ready would fail again.
        while works && is_kept() {
            let soon = Instant::now() + LOOK;
            let Some(orders) = self.wait_for_orders(wanted, soon, |other, _| other == id) else { return };
            for (id, order) in orders {
                while self.lock().used(id).is_some_and(|used| used.elapsed() < QUIET) {
                    std::thread::sleep(QUIET / 4);
                }
                let made = CompanionProcess::start(&self.keeper, &order.spec, &prestart.command, is_kept);
                works &= made.is_ok();
                self.finish(id, made.map(|(cell, companion)| ReadyCell { cell, companion: Some(companion) }));
            }
        }
    }

    /// Waits until some of these cells are wanted, at most until `until`. None when the pool is closed.
    fn wait_for_orders(
        &self,
        wanted: &Condvar,
        until: Instant,
        mine: impl Fn(ShelfId, &CellOrder) -> bool,
    ) -> Option<Vec<(ShelfId, CellOrder)>> {
        let mut shelves = self.lock();
        loop {
            if shelves.is_closed() {
                return None;
            }
            let orders = shelves.next_orders(&mine);
            let left = until.saturating_duration_since(Instant::now());
            if !orders.is_empty() || left.is_zero() {
                return Some(orders);
            }
            shelves = match wanted.wait_timeout(shelves, left) {
                Ok((shelves, _)) => shelves,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn finish(&self, id: ShelfId, made: Result<ReadyCell, Failure>) {
        self.lock().finish(id, made.ok(), Instant::now());
    }
}
