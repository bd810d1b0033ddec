//! Where runs get their cells from: made on the spot, or from a pool of cells that were made before.
//!
//! # Theory of operation
//!
//! Cells are single-use, and making one takes longer than anything else on a run's way. So the pool makes them ahead.
//! What a cell is made for is its *order*: mounts, network, size of its disk. What can still be changed when a run takes
//! it is not part of the order: the other limits, and what is shown at its slots (a compiled program, packages).
//!
//! Each order that was asked for has a shelf. A shelf learns from demand how many cells it should hold: every time a run
//! finds it empty it holds one more, and when some were never needed for a while it holds fewer. All shelves together hold
//! no more than the operator allows; the one that was used last wins. One thread makes what is missing. Nobody waits for
//! it: a run that finds its shelf empty has its cell made on the spot.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox_cell::limits::{Caps, LimitKind, Limits};
use sandbox_cell::{Cell, CellSpec, Failure, Keeper, LayerSet, Mount, Network};
use serde::Serialize;

/// How a run got its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StartKind {
    /// It was made for the run.
    #[default]
    Cold,
    /// It was ready.
    Ready,
}

impl StartKind {
    /// Its name in results and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Ready => "ready",
        }
    }
}

/// A source of cells.
#[derive(Debug)]
pub(crate) enum Cells {
    /// Each is made when it is asked for.
    OnTheSpot(Keeper),
    /// Some are ready.
    Pooled(Pool),
}

/// A cell for a run.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) cell: Cell,
    pub(crate) start: StartKind,
}

impl Cells {
    pub(crate) fn keeper(&self) -> &Keeper {
        match self {
            Self::OnTheSpot(keeper) => keeper,
            Self::Pooled(pool) => &pool.shared.keeper,
        }
    }

    /// A cell like `spec` in which `shown` can be seen. One that was ready shows it, and has its limits, only once they are
    /// given with the command.
    pub(crate) fn take(&self, spec: &CellSpec, shown: &[Mount]) -> Result<Taken, Failure> {
        if let Self::Pooled(pool) = self
            && let Some(order) = order(spec, shown)
            && let Some(cell) = pool.shared.take(&order)
        {
            return Ok(Taken { cell, start: StartKind::Ready });
        }
        let mut spec = spec.clone();
        spec.mounts.extend(shown.iter().cloned());
        Ok(Taken { cell: self.keeper().create(&spec)?, start: StartKind::Cold })
    }

    /// How many cells are ready; none where there is no pool.
    pub(crate) fn ready(&self) -> Option<usize> {
        match self {
            Self::OnTheSpot(_) => None,
            Self::Pooled(pool) => Some(pool.shared.lock().shelves.iter().map(|shelf| shelf.ready.len()).sum()),
        }
    }
}

/// What a ready cell has to be like to serve for `spec`, if it can. Cells that give somebody's own directories away, or
/// have somebody's own way out, are not kept ready.
fn order(spec: &CellSpec, shown: &[Mount]) -> Option<CellSpec> {
    let writable = spec.mounts.iter().chain(shown).any(|mount| mount.writable);
    if writable || matches!(spec.network, Network::Gateway(_)) || spec.omit != LayerSet::default() {
        return None;
    }
    let mut limits = Limits::default();
    for kind in [LimitKind::Disk, LimitKind::Inodes] {
        limits.set(kind, spec.limits.get(kind)?, &Caps::default()).ok()?;
    }
    let slots = shown.iter().map(|mount| mount.target.clone()).collect();
    Some(CellSpec { limits, slots, ..spec.clone() })
}

/// Ready cells, and the thread that makes them.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    maker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    keeper: Keeper,
    /// The most cells that are ready at one time.
    most: usize,
    state: Mutex<State>,
    /// Something is missing, or all is over.
    wanted: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shelves: Vec<Shelf>,
    closed: bool,
}

#[derive(Debug)]
struct Shelf {
    order: CellSpec,
    ready: Vec<Cell>,
    /// How many are being made.
    making: usize,
    /// How many it should hold.
    target: usize,
    /// The fewest that were left after a run took one, since the last look.
    spare: usize,
    used: Instant,
}

/// How often it is looked whether a shelf holds too many.
const LOOK: Duration = Duration::from_secs(10);

/// How long a shelf is kept that nobody uses.
const KEPT: Duration = Duration::from_secs(600);

/// How many cells are made at one time: while one locks itself, the keeper can begin the next.
const AT_ONCE: usize = 2;

impl Pool {
    /// A pool that holds at most this many cells.
    pub(crate) fn new(keeper: Keeper, most: usize) -> std::io::Result<Self> {
        let (state, wanted) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { keeper, most, state, wanted });
        let own = Arc::clone(&shared);
        let maker = std::thread::Builder::new().name("ready-cells".to_owned()).spawn(move || own.make_forever())?;
        Ok(Self { shared, maker: Some(maker) })
    }

    /// Has a cell made ready before anybody asks for one.
    pub(crate) fn expect(&self, spec: &CellSpec, shown: &[Mount]) {
        if let Some(order) = order(spec, shown) {
            let mut state = self.shared.lock();
            state.shelf(&order);
            self.shared.wanted.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wanted.notify_all();
        if let Some(maker) = self.maker.take() {
            let _ = maker.join();
        }
        self.shared.lock().shelves.clear();
    }
}

impl State {
    /// The shelf for an order; a new one should hold one cell.
    fn shelf(&mut self, order: &CellSpec) -> &mut Shelf {
        let index = self.shelves.iter().position(|shelf| shelf.order == *order).unwrap_or_else(|| {
            let (order, used) = (order.clone(), Instant::now());
            self.shelves.push(Shelf { order, ready: vec![], making: 0, target: 1, spare: usize::MAX, used });
            self.shelves.len() - 1
        });
        &mut self.shelves[index]
    }

    fn held(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.ready.len() + shelf.making).sum()
    }

    /// The shelf that lacks cells and was used last.
    fn lacking(&mut self) -> Option<&mut Shelf> {
        let lacking = self.shelves.iter_mut().filter(|shelf| shelf.ready.len() + shelf.making < shelf.target);
        lacking.max_by_key(|shelf| shelf.used)
    }

    /// Takes a cell off the shelf that was not used for longest, if that is before `before`.
    fn give_up_one(&mut self, before: Instant) -> Option<Cell> {
        let shelves = self.shelves.iter_mut().filter(|shelf| !shelf.ready.is_empty() && shelf.used < before);
        let shelf = shelves.min_by_key(|shelf| shelf.used)?;
        shelf.target = shelf.target.saturating_sub(1);
        shelf.ready.pop()
    }

    /// Lowers what was never needed since the last look, and takes away what is too much.
    fn look(&mut self) -> Vec<Cell> {
        let mut surplus = vec![];
        for shelf in &mut self.shelves {
            let spare = std::mem::replace(&mut shelf.spare, usize::MAX);
            let idle = shelf.used.elapsed() > LOOK;
            if idle && shelf.target > 1 {
                shelf.target /= 2;
            } else if spare != usize::MAX {
                shelf.target = shelf.target.saturating_sub(spare / 2).max(1);
            }
            surplus.extend(shelf.ready.drain(shelf.target.min(shelf.ready.len())..));
        }
        self.shelves.retain(|shelf| shelf.used.elapsed() < KEPT || shelf.making > 0);
        surplus
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A ready cell, if there is one. Either way somebody sees to it that there is one next time.
    fn take(&self, order: &CellSpec) -> Option<Cell> {
        let mut state = self.lock();
        let most = self.most;
        let shelf = state.shelf(order);
        shelf.used = Instant::now();
        let cell = loop {
            match shelf.ready.pop() {
                // One that has something to say has come to an end.
                Some(cell) if has_ended(&cell) => {}
                other => break other,
            }
        };
        if cell.is_none() {
            shelf.target = (shelf.target + 1).min(most);
        }
        shelf.spare = shelf.spare.min(shelf.ready.len());
        drop(state);
        self.wanted.notify_one();
        cell
    }

    /// Makes what is missing until all is over.
    fn make_forever(&self) {
        let mut next_look = Instant::now() + LOOK;
        loop {
            let orders = {
                let mut state = self.lock();
                loop {
                    if state.closed {
                        return;
                    }
                    if Instant::now() >= next_look {
                        next_look = Instant::now() + LOOK;
                        let surplus = state.look();
                        drop(state);
                        drop(surplus);
                        state = self.lock();
                    }
                    let orders = self.next(&mut state);
                    if !orders.is_empty() {
                        break orders;
                    }
                    let wait = next_look.saturating_duration_since(Instant::now());
                    state = self
                        .wanted
                        .wait_timeout(state, wait)
                        .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
                }
            };
            self.make(&orders);
        }
    }

    /// What to make next, and notes that it is being made.
    fn next(&self, state: &mut State) -> Vec<CellSpec> {
        let mut orders = vec![];
        while orders.len() < AT_ONCE {
            let full = state.held() >= self.most;
            let Some(shelf) = state.lacking() else { break };
            let (used, order) = (shelf.used, shelf.order.clone());
            if full && state.give_up_one(used).is_none() {
                break;
            }
            state.shelf(&order).making += 1;
            orders.push(order);
        }
        orders
    }

    fn make(&self, orders: &[CellSpec]) {
        let cells: Vec<_> = orders.iter().map(|order| self.keeper.create(order)).collect();
        for (order, cell) in orders.iter().zip(cells) {
            let cell = cell.and_then(|mut cell| cell.ready().map(|_| cell));
            let mut state = self.lock();
            let shelf = state.shelf(order);
            shelf.making = shelf.making.saturating_sub(1);
            match cell {
                Ok(cell) => shelf.ready.push(cell),
                // Whoever needs one makes his own, and is told why that fails.
                Err(_) => shelf.target = 0,
            }
        }
    }
}

fn has_ended(cell: &Cell) -> bool {
    let mut fds = [PollFd::new(cell, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
