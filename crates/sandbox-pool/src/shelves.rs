//! The shelves: which cells are ready, how many should be, and which runs wait for one. Decisions only: this module has
//! no threads, no clock and no keeper, so that a model test can drive it through any sequence of events.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::PoolLimits;

/// How many cells are made at one time: while one locks itself, the keeper can begin the next.
pub(crate) const AT_ONCE: usize = 2;

/// The interval at which shelves are checked for surplus cells.
pub(crate) const LOOK: Duration = Duration::from_secs(10);

/// A run waits for a cell as long as one arrives within this time.
pub(crate) const WORTH_WAITING: Duration = Duration::from_millis(500);

/// The time for which an unused shelf is kept.
const KEPT: Duration = Duration::from_secs(600);

/// The order that the cells of a shelf are made for.
pub(crate) trait ShelfOrder: Clone + PartialEq {
    /// Whether the child of a zygote waits in them.
    fn is_warm(&self) -> bool;
    /// The owner of what waits in them, unless it serves all owners.
    fn owner(&self) -> Option<&str>;
}

/// A cell on a shelf.
pub(crate) trait ShelfCell {
    /// Whether it, or what waits in it, has ended.
    fn has_ended(&self) -> bool;
}

/// Names a shelf. A shelf that is made again for the same order has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShelfId(u64);

/// All shelves. `Handle` is whatever wakes the maker of a shelf's cells.
#[derive(Debug)]
pub(crate) struct Shelves<Order, Made, Handle> {
    limits: PoolLimits,
    all: Vec<Shelf<Order, Made, Handle>>,
    /// How many cells are being made for shelves that were removed meanwhile.
    stray: usize,
    /// How many runs have just begun and need the CPU.
    busy: usize,
    /// How many bytes all cells may take together, beyond the first of each shelf; unlimited if that is unknown.
    memory: Option<u64>,
    closed: bool,
    next_number: u64,
}

#[derive(Debug)]
struct Shelf<Order, Made, Handle> {
    id: ShelfId,
    order: Order,
    ready: Vec<Made>,
    /// How many are being made.
    making: usize,
    /// How many it should hold.
    target: usize,
    /// How many bytes a cell takes while it waits; 0 if that is unknown.
    cell_memory: u64,
    /// The fewest that were left after a run took one, since the last look.
    spare: usize,
    /// When the last cell arrived, unless making cells has failed since.
    came_at: Option<Instant>,
    /// The runs that wait for a cell, in the order in which they came.
    waiting: VecDeque<(u64, SyncSender<Made>)>,
    used: Instant,
    maker: Handle,
}

/// The answer to a run that asks for a cell.
#[derive(Debug)]
pub(crate) enum Demand<Made> {
    /// A cell that was ready.
    Cell(Made),
    /// One is on its way.
    Wait(CellWaiter<Made>),
    /// None is ready, and none is worth waiting for.
    Miss,
}

/// A run's place in the queue of a shelf.
#[derive(Debug)]
pub(crate) struct CellWaiter<Made> {
    shelf: ShelfId,
    number: u64,
    /// Where the cell arrives. It is disconnected when none will.
    pub(crate) receiver: Receiver<Made>,
}

impl<Order: ShelfOrder, Made: ShelfCell, Handle> Shelf<Order, Made, Handle> {
    /// Hands a cell to the run that has waited longest, or keeps it.
    fn put(&mut self, mut made: Made) {
        while let Some((_, first)) = self.waiting.pop_front() {
            match first.try_send(made) {
                Ok(()) => return,
                // This run is gone.
                Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) => made = refused,
            }
        }
        self.ready.push(made);
    }

    /// Expects no more cells until a run asks for one again. Runs that wait start without one.
    fn give_up(&mut self) {
        (self.target, self.came_at) = (0, None);
        self.waiting.clear();
    }

    /// Takes a cell that still lives, if there is one.
    fn take(&mut self, now: Instant) -> Option<Made> {
        self.used = now;
        let live = loop {
            match self.ready.pop() {
                Some(made) if made.has_ended() => {}
                other => break other,
            }
        };
        self.spare = self.spare.min(self.ready.len());
        live
    }

    /// How many bytes its cells take.
    fn memory(&self) -> u64 {
        u64::try_from(self.ready.len() + self.making).unwrap_or(u64::MAX).saturating_mul(self.cell_memory)
    }

    fn lacks(&self) -> bool {
        self.ready.len() + self.making < self.target
    }

    /// Whether making more can be deferred while `busy` runs need the CPU: for the sake of a single one it can, for more
    /// only while each of them could come again and find a cell.
    fn can_wait(&self, busy: usize) -> bool {
        self.waiting.is_empty() && (busy == 1 || (busy > 1 && self.ready.len() >= busy))
    }
}

impl<Order: ShelfOrder, Made: ShelfCell, Handle> Shelves<Order, Made, Handle> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self { limits, all: vec![], stray: 0, busy: 0, memory: None, closed: false, next_number: 0 }
    }

    pub(crate) fn limits(&self) -> PoolLimits {
        self.limits
    }

    /// Has a cell made before a run asks for one. `start` starts the maker of a new shelf.
    pub(crate) fn expect(&mut self, order: &Order, now: Instant, start: impl FnOnce(ShelfId) -> Option<Handle>) {
        self.find_or_add(order, now, start);
    }

    /// A run asks for a cell. If it gets none, the shelf holds one more from now on.
    pub(crate) fn demand(
        &mut self,
        order: &Order,
        now: Instant,
        start: impl FnOnce(ShelfId) -> Option<Handle>,
    ) -> Demand<Made> {
        let Some(index) = self.find_or_add(order, now, start) else { return Demand::Miss };
        let shelf = &mut self.all[index];
        // A run that came earlier is served earlier.
        if shelf.waiting.is_empty()
            && let Some(made) = shelf.take(now)
        {
            return Demand::Cell(made);
        }
        // While none comes, runs that miss one, one after another, do not mean that many are needed at once.
        let more = if order.is_warm() && shelf.came_at.is_none() { 1 } else { shelf.target + 1 };
        shelf.target = more.min(self.limits.cells);
        // A cell that is being made is ready sooner than one that is not.
        let comes = !order.is_warm() && shelf.making > shelf.waiting.len();
        if !comes && (!order.is_warm() || shelf.came_at.is_none()) {
            return Demand::Miss;
        }
        let (sender, receiver) = sync_channel(1);
        let number = self.next_number;
        self.next_number += 1;
        shelf.waiting.push_back((number, sender));
        shelf.used = now;
        Demand::Wait(CellWaiter { shelf: shelf.id, number, receiver })
    }

    /// Whether a run that has waited for so long should continue: at first, and as long as other cells arrive.
    pub(crate) fn is_worth_waiting(&self, waiter: &CellWaiter<Made>, waited: Duration, now: Instant) -> bool {
        let shelf = self.all.iter().find(|shelf| shelf.id == waiter.shelf);
        let arrives = |at: Instant| now.saturating_duration_since(at) < WORTH_WAITING;
        shelf.is_some_and(|shelf| waited < WORTH_WAITING || shelf.came_at.is_some_and(arrives))
    }

    /// A run stops waiting. A cell that it was handed at the last moment is returned.
    pub(crate) fn leave(&mut self, waiter: &CellWaiter<Made>) -> Option<Made> {
        if let Some(shelf) = self.all.iter_mut().find(|shelf| shelf.id == waiter.shelf) {
            shelf.waiting.retain(|(number, _)| *number != waiter.number);
        }
        waiter.receiver.try_recv().ok()
    }

    /// A run was cancelled while it waited. A cell that it was handed at the last moment serves another run, if there is
    /// room for it.
    pub(crate) fn withdraw(&mut self, waiter: &CellWaiter<Made>) {
        let handed = self.leave(waiter);
        let has_room = self.held() < self.limits.cells;
        let shelf = self.all.iter_mut().find(|shelf| shelf.id == waiter.shelf);
        if let (Some(made), Some(shelf)) = (handed, shelf)
            && (has_room || !shelf.waiting.is_empty())
        {
            shelf.put(made);
        }
    }

    /// What to make next, of the shelves that are `mine`. Each of these must be reported to [`Self::finish`] or
    /// [`Self::return_orders`].
    pub(crate) fn next_orders(&mut self, mine: impl Fn(ShelfId, &Order) -> bool) -> Vec<(ShelfId, Order)> {
        let mut orders = vec![];
        while orders.len() < AT_ONCE && !self.closed {
            let Some(index) = self.lacking(&mine) else { break };
            let used = self.all[index].used;
            if self.held() >= self.limits.cells && !self.evict_cell(used) {
                break;
            }
            // Evicting does not move shelves.
            let shelf = &mut self.all[index];
            shelf.making += 1;
            orders.push((shelf.id, shelf.order.clone()));
        }
        orders
    }

    /// A cell of a shelf was made, or could not be.
    pub(crate) fn finish(&mut self, id: ShelfId, made: Option<Made>, now: Instant) {
        self.return_orders(id, 1);
        let Some(shelf) = self.all.iter_mut().find(|shelf| shelf.id == id) else { return };
        match made {
            Some(made) => {
                shelf.came_at = Some(now);
                shelf.put(made);
            }
            None => shelf.give_up(),
        }
    }

    /// So many cells of a shelf are not made after all, and may be ordered again.
    pub(crate) fn return_orders(&mut self, id: ShelfId, count: usize) {
        match self.all.iter_mut().find(|shelf| shelf.id == id) {
            Some(shelf) => shelf.making = shelf.making.saturating_sub(count),
            None => self.stray = self.stray.saturating_sub(count),
        }
    }

    /// The maker of a shelf has failed for good: its runs start without a cell of the shelf.
    pub(crate) fn fail(&mut self, id: ShelfId) {
        if let Some(shelf) = self.all.iter_mut().find(|shelf| shelf.id == id) {
            shelf.give_up();
        }
    }

    /// Notes how many bytes each cell of a shelf takes while it waits.
    pub(crate) fn note_cell_memory(&mut self, id: ShelfId, bytes: u64) {
        if let Some(shelf) = self.all.iter_mut().find(|shelf| shelf.id == id) {
            shelf.cell_memory = bytes;
        }
    }

    /// Notes how many bytes are available on the host. Half of that is for runs; the other half may be used by cells that
    /// wait, in addition to the memory that they use already.
    pub(crate) fn note_available_memory(&mut self, bytes: Option<u64>) {
        self.memory = bytes.map(|bytes| self.held_memory().saturating_add(bytes) / 2);
    }

    /// How many bytes the cells that are ready or being made take, as far as is known.
    fn held_memory(&self) -> u64 {
        self.all.iter().map(Shelf::memory).fold(0, u64::saturating_add)
    }

    /// Whether another cell of a shelf fits into memory. The first one of a shelf always does: it replaces a start that
    /// takes as much.
    fn fits(&self, shelf: &Shelf<Order, Made, Handle>) -> bool {
        let is_first = shelf.ready.len() + shelf.making == 0;
        let fits = |most: u64| self.held_memory().saturating_add(shelf.cell_memory) <= most;
        is_first || shelf.cell_memory == 0 || self.memory.is_none_or(fits)
    }

    /// Whether a shelf still exists.
    pub(crate) fn has(&self, id: ShelfId) -> bool {
        self.all.iter().any(|shelf| shelf.id == id)
    }

    /// How many cells are ready.
    pub(crate) fn ready(&self) -> usize {
        self.all.iter().map(|shelf| shelf.ready.len()).sum()
    }

    /// How many cells are ready or being made.
    pub(crate) fn held(&self) -> usize {
        self.stray + self.all.iter().map(|shelf| shelf.ready.len() + shelf.making).sum::<usize>()
    }

    /// A run has begun, and needs the CPU more than the pool does.
    pub(crate) fn run_begins(&mut self) {
        self.busy += 1;
    }

    /// It does no longer.
    pub(crate) fn run_settles(&mut self) {
        self.busy = self.busy.saturating_sub(1);
    }

    /// The makers that have something to make, and no others: every one that is woken takes CPU time from a run.
    pub(crate) fn wanted_makers(&self) -> impl Iterator<Item = &Handle> {
        self.all.iter().filter(|shelf| self.wants(shelf)).map(|shelf| &shelf.maker)
    }

    /// Lowers the targets of shelves that held more than was needed since the last look, or more than fits into memory, and
    /// returns the surplus.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<Made> {
        let mut surplus = vec![];
        for shelf in &mut self.all {
            let spare = std::mem::replace(&mut shelf.spare, usize::MAX);
            let idle = now.saturating_duration_since(shelf.used) > LOOK;
            if idle && shelf.target > 1 {
                shelf.target /= 2;
            } else if spare != usize::MAX {
                shelf.target = shelf.target.saturating_sub(spare / 2).max(1);
            }
            surplus.extend(shelf.ready.drain(shelf.target.min(shelf.ready.len())..));
        }
        self.all.retain(|shelf| now.saturating_duration_since(shelf.used) < KEPT || shelf.making > 0);
        while self.memory.is_some_and(|most| self.held_memory() > most) {
            let larger = self.all.iter_mut().filter(|shelf| shelf.cell_memory > 0 && shelf.ready.len() > 1);
            let Some(shelf) = larger.max_by_key(|shelf| shelf.memory()) else { break };
            surplus.extend(shelf.ready.pop());
            shelf.target = shelf.target.min(shelf.ready.len() + shelf.making);
        }
        surplus
    }

    /// Removes cells that have ended, so that others are made in their place. Returns them.
    pub(crate) fn remove_ended(&mut self) -> Vec<Made> {
        self.all.iter_mut().flat_map(|shelf| shelf.ready.extract_if(.., |made| made.has_ended())).collect()
    }

    /// Begins anew after the end of the keeper: removes all shelves, and sends away the runs that wait. Returns the orders of
    /// the shelves, the cells that were ready, and the makers, which have to be woken.
    pub(crate) fn empty(&mut self) -> (Vec<Order>, Vec<Made>, Vec<Handle>) {
        self.stray += self.all.iter().map(|shelf| shelf.making).sum::<usize>();
        let (mut orders, mut cells, mut makers) = (vec![], vec![], vec![]);
        for shelf in self.all.drain(..) {
            orders.push(shelf.order);
            cells.extend(shelf.ready);
            makers.push(shelf.maker);
        }
        (orders, cells, makers)
    }

    /// The maker of these shelves has panicked: none of their cells is being made any more.
    pub(crate) fn forget_making(&mut self, mine: impl Fn(ShelfId, &Order) -> bool) {
        for shelf in self.all.iter_mut().filter(|shelf| mine(shelf.id, &shelf.order)) {
            shelf.making = 0;
            shelf.waiting.clear();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Removes everything, for good. Runs that wait are sent away. Returns the makers, which have to be woken.
    pub(crate) fn close(&mut self) -> Vec<Handle> {
        self.closed = true;
        self.stray += self.all.iter().map(|shelf| shelf.making).sum::<usize>();
        self.all.drain(..).map(|shelf| shelf.maker).collect()
    }

    /// The shelf for an order, if there can be one. A new one should hold one cell.
    fn find_or_add(
        &mut self,
        order: &Order,
        now: Instant,
        start: impl FnOnce(ShelfId) -> Option<Handle>,
    ) -> Option<usize> {
        if self.closed {
            return None;
        }
        if let Some(index) = self.all.iter().position(|shelf| shelf.order == *order) {
            return Some(index);
        }
        if order.is_warm() {
            let warm = self.all.iter().filter(|shelf| shelf.order.is_warm()).count();
            if warm >= self.limits.zygotes && !self.evict_warm_shelf(order.owner(), now) {
                return None;
            }
        }
        let id = ShelfId(self.next_number);
        self.next_number += 1;
        let target = 1;
        let (order, maker) = (order.clone(), start(id)?);
        let (ready, waiting, came_at) = (vec![], VecDeque::new(), None);
        self.all.push(Shelf {
            id,
            order,
            ready,
            making: 0,
            target,
            cell_memory: 0,
            spare: usize::MAX,
            came_at,
            waiting,
            used: now,
            maker,
        });
        Some(self.all.len() - 1)
    }

    fn wants(&self, shelf: &Shelf<Order, Made, Handle>) -> bool {
        shelf.lacks() && !shelf.can_wait(self.busy) && self.fits(shelf)
    }

    /// Of the shelves that lack cells and should not wait, the one that was used last.
    fn lacking(&self, mine: impl Fn(ShelfId, &Order) -> bool) -> Option<usize> {
        let candidates = self.all.iter().enumerate();
        candidates
            .filter(|(_, shelf)| self.wants(shelf) && mine(shelf.id, &shelf.order))
            .max_by_key(|(_, shelf)| shelf.used)
            .map(|(index, _)| index)
    }

    /// Drops a cell of the least recently used shelf, if that was used before `before`.
    fn evict_cell(&mut self, before: Instant) -> bool {
        let shelves = self.all.iter_mut().filter(|shelf| !shelf.ready.is_empty() && shelf.used < before);
        let Some(shelf) = shelves.min_by_key(|shelf| shelf.used) else { return false };
        shelf.target = shelf.target.saturating_sub(1);
        shelf.ready.pop().is_some()
    }

    /// Makes room for a warm shelf of an owner: removes the least recently used one of the owner with the most of them,
    /// unless that was used just now. So no owner can displace one that has fewer.
    fn evict_warm_shelf(&mut self, owner: Option<&str>, now: Instant) -> bool {
        let warm = || self.all.iter().filter(|shelf| shelf.order.is_warm());
        let shelves_of =
            |one: Option<&str>| warm().filter(|shelf| shelf.order.owner() == one).count() + usize::from(one == owner);
        let most = warm().map(|shelf| shelves_of(shelf.order.owner())).max().unwrap_or_default();
        let oldest = warm()
            .filter(|shelf| shelves_of(shelf.order.owner()) == most)
            .min_by_key(|shelf| shelf.used)
            .filter(|shelf| now.saturating_duration_since(shelf.used) > LOOK)
            .map(|shelf| (shelf.id, shelf.making));
        let Some((id, making)) = oldest else { return false };
        self.stray += making;
        self.all.retain(|shelf| shelf.id != id);
        true
    }
}

#[cfg(test)]
pub(crate) mod tests;
