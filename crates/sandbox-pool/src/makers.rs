//! The threads that fill the shelves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox_cell::{Cell, Failure, Keeper};

use crate::memory;
use crate::order::CellOrder;
use crate::prestart::Prestart;
use crate::self_test::{self, SelfTestError};
use crate::shelves::{LOOK, ShelfCell, ShelfId, Shelves};
use crate::warm_status::WarmStarts;
use crate::zygote::Zygote;

/// The state that the pool and its threads share.
#[derive(Debug)]
pub(crate) struct PoolShared {
    pub(crate) keeper: Keeper,
    pub(crate) shelves: Mutex<CellShelves>,
    pub(crate) warm_starts: WarmStarts,
    /// Wakes the maker of plain cells.
    pub(crate) plain: Arc<Condvar>,
    pub(crate) counts: PoolCounts,
}

/// The counters of a pool.
#[derive(Debug, Default)]
pub(crate) struct PoolCounts {
    pub(crate) misses: AtomicU64,
    pub(crate) lost_zygotes: AtomicU64,
    pub(crate) panics: AtomicU64,
}

/// Whether cells of an order have nothing that waits in them.
pub(crate) fn is_plain(_: ShelfId, order: &CellOrder) -> bool {
    order.prestart.is_none()
}

/// The shelves of this pool. A condition variable wakes the maker of a shelf.
pub(crate) type CellShelves = Shelves<CellOrder, Cell, Arc<Condvar>>;

impl ShelfCell for Cell {
    fn has_ended(&self) -> bool {
        // A ready cell is silent until it ends.
        sandbox_base::wait::is_readable(&[self], Duration::ZERO)
    }
}

/// The interval at which cells are checked for having ended.
const CHECK: Duration = Duration::from_millis(500);

/// The interval at which the maker of a warm shelf checks whether the shelf was removed.
const NOTICE: Duration = Duration::from_secs(2);

/// How long after a zygote that failed the next one is started, and the longest of these pauses, which get longer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// How long a keeper that is ending takes at most to be seen as ended.
const END: Duration = Duration::from_millis(500);

impl PoolShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, CellShelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes plain cells until the pool is closed, and removes surplus cells of all shelves.
    pub(crate) fn make_plain(&self) {
        let mut next_look = Instant::now();
        loop {
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                let available = memory::available();
                let mut shelves = self.lock();
                shelves.note_available_memory(available);
                let surplus = shelves.look(Instant::now());
                drop(shelves);
                drop(surplus);
            }
            let ended = self.lock().remove_ended();
            if !ended.is_empty() {
                drop(ended);
                crate::wake_makers(&self.lock());
            }
            let Some(orders) = self.wait_for_orders(&self.plain, Instant::now() + CHECK, None) else { return };
            let cells: Vec<_> = orders.iter().map(|(_, order)| self.keeper.create(&order.spec)).collect();
            for ((id, _), cell) in orders.into_iter().zip(cells) {
                let ready = |mut cell: Cell| cell.ready().map(|_| cell);
                self.finish(id, cell.and_then(ready));
            }
        }
    }

    /// Makes cells with forked interpreters in them until their shelf is removed. While there is no zygote, runs start
    /// without one. One that fails to start, or ends before its first child, may do so again, so the next is started later.
    pub(crate) fn make_warm(&self, wanted: &Condvar, id: ShelfId, order: &CellOrder, prestart: &Prestart) {
        let mut pause = FIRST_PAUSE;
        loop {
            let zygote = self.start_zygote(order, prestart);
            if zygote.is_some_and(|zygote| self.serve_children(wanted, id, prestart, &zygote)) {
                pause = FIRST_PAUSE;
                continue;
            }
            self.lock().fail(id);
            if !self.warm_starts.allow(prestart) || !self.wait_while_kept(wanted, Instant::now() + pause, id) {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes cells with children of a zygote in them until it ends or their shelf is removed. Returns whether it had any.
    fn serve_children(&self, wanted: &Condvar, id: ShelfId, prestart: &Prestart, zygote: &Zygote) -> bool {
        let mut served = false;
        loop {
            let soon = Instant::now() + NOTICE;
            let Some(orders) = self.wait_for_orders(wanted, soon, Some(id)) else { return false };
            if zygote.has_ended() {
                self.lock().return_orders(id, orders.len());
                self.counts.lost_zygotes.fetch_add(1, Ordering::Relaxed);
                self.warm_starts.lose(&prestart.language);
                return served;
            }
            let made: Vec<_> = orders.iter().map(|(_, order)| zygote.make(&self.keeper, &order.spec)).collect();
            let entered = |mut cell: Cell| zygote.enter(&mut cell).map(|()| cell);
            let made: Vec<_> = made.into_iter().map(|cell| cell.and_then(entered)).collect();
            let waits = |mut cell: Cell| Zygote::wait(&mut cell).map(|()| cell);
            for cell in made {
                let mut cell = cell.and_then(waits);
                // All children of a zygote take about as much.
                if let (false, Ok(cell)) = (served, &mut cell)
                    && let Ok(usage) = cell.metrics()
                {
                    self.lock().note_cell_memory(id, usage.memory_peak);
                }
                served |= cell.is_ok();
                self.finish(id, cell);
            }
        }
    }

    /// Starts a zygote. The first of a language is tested before a run gets one of its children.
    fn start_zygote(&self, order: &CellOrder, prestart: &Prestart) -> Option<Zygote> {
        let language = &prestart.language;
        let notice = self.keeper.end_notice().ok()?;
        // What fails because the keeper ends says nothing about the language.
        let is_over = || self.lock().is_closed() || sandbox_base::wait::is_readable(&[&notice], END);
        let zygote = match Zygote::start(&self.keeper, &order.spec, prestart) {
            Ok(zygote) => zygote,
            Err(failure) => {
                if !is_over() {
                    self.warm_starts.fail(language, failure.to_string());
                }
                return None;
            }
        };
        if !self.warm_starts.work(language) {
            let tested = prestart.self_test.as_ref();
            let works = tested.map_or(Ok(()), |test| self_test::compare(&self.keeper, &zygote, &order.spec, test));
            match works {
                Ok(()) => self.warm_starts.accept(language),
                Err(_) if is_over() => return None,
                Err(SelfTestError::Differs(difference)) => self.warm_starts.refuse(language, difference),
                Err(SelfTestError::Failed(failure)) => {
                    self.warm_starts.fail(language, format!("the self-test failed: {failure}"));
                    return None;
                }
            }
        }
        Some(zygote).filter(|_| self.warm_starts.allow(prestart))
    }

    /// Does a maker's work until it is over. If it panics, its runs get cells that are made on the spot until it begins again.
    pub(crate) fn survive_panics(&self, mine: impl Fn(ShelfId, &CellOrder) -> bool, work: impl Fn(&Self)) {
        /// How long the next attempt waits: what panics at once must not take a CPU.
        const PAUSE: Duration = Duration::from_secs(1);
        while std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self))).is_err() {
            self.counts.panics.fetch_add(1, Ordering::Relaxed);
            self.lock().forget_making(&mine);
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until cells of a shelf are wanted, or plain ones, at most until `until`. None when the shelf was removed or the
    /// pool is closed.
    fn wait_for_orders(
        &self,
        wanted: &Condvar,
        until: Instant,
        shelf: Option<ShelfId>,
    ) -> Option<Vec<(ShelfId, CellOrder)>> {
        let mine = |other, order: &CellOrder| shelf.map_or_else(|| is_plain(other, order), |id| other == id);
        let mut shelves = self.lock();
        loop {
            if shelves.is_closed() || shelf.is_some_and(|id| !shelves.has(id)) {
                return None;
            }
            let orders = shelves.next_orders(mine);
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

    /// Waits until `until`. Returns whether the shelf is still there.
    fn wait_while_kept(&self, wanted: &Condvar, until: Instant, shelf: ShelfId) -> bool {
        let mut shelves = self.lock();
        loop {
            let is_kept = !shelves.is_closed() && shelves.has(shelf);
            let left = until.saturating_duration_since(Instant::now());
            if !is_kept || left.is_zero() {
                return is_kept;
            }
            shelves = match wanted.wait_timeout(shelves, left.min(NOTICE)) {
                Ok((shelves, _)) => shelves,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn finish(&self, id: ShelfId, made: Result<Cell, Failure>) {
        self.lock().finish(id, made.ok(), Instant::now());
    }
}
