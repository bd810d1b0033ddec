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
//!
//! A cell can be more than ready: the child of a zygote can wait in it. Such cells have shelves of their own, and each of
//! these has a thread of its own, which has the zygote. A zygote ends with its shelf, which goes when nobody has used it
//! for a while or when another needs the place. A companion can wait in a cell too, which helps what the run starts. It is
//! as slow to start as what it helps, and large; so there are few, and none before somebody has needed one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandbox_cell::limits::{Caps, LimitKind, Limits};
use sandbox_cell::{Cell, CellSpec, Failure, Keeper, LayerSet, Mount, Network};
use serde::Serialize;

use crate::companion::{Companion, is_readable};
use crate::warmth::{Warmth, WarmthKind};
use crate::zygote::Zygote;

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
    /// It was ready, and an interpreter or a compiler waited in it.
    Warm,
}

impl StartKind {
    /// Its name in results and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Ready => "ready",
            Self::Warm => "warm",
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
    /// What has still to be shown in it when the command starts.
    pub(crate) late: Vec<Mount>,
}

impl Cells {
    pub(crate) fn keeper(&self) -> &Keeper {
        match self {
            Self::OnTheSpot(keeper) => keeper,
            Self::Pooled(pool) => &pool.shared.keeper,
        }
    }

    /// A cell like `spec` in which `made` and `lent` can be seen, with what should wait in it if that can be: what was
    /// made for many runs, and what a request shows of the host. One that was ready has its limits only once they are given with the
    /// command.
    pub(crate) fn take(
        &self,
        spec: &CellSpec,
        made: &[Mount],
        lent: &[Mount],
        warmth: Option<&Warmth>,
    ) -> Result<Taken, Failure> {
        let all = [made, lent].concat();
        if let Self::Pooled(pool) = self {
            if let Some(order) = warmth.and_then(|warmth| Order::warm(spec, made, lent, warmth))
                && let Some(cell) = pool.take(&order)
            {
                return Ok(Taken { cell, start: StartKind::Warm, late: lent.to_vec() });
            }
            if let Some(order) = Order::new(spec, &all)
                && let Some(cell) = pool.take(&order)
            {
                return Ok(Taken { cell, start: StartKind::Ready, late: all });
            }
        }
        let mut spec = spec.clone();
        spec.mounts.extend(all);
        Ok(Taken { cell: self.keeper().create(&spec)?, start: StartKind::Cold, late: vec![] })
    }

    /// How many cells are ready; none where there is no pool.
    pub(crate) fn ready(&self) -> Option<usize> {
        match self {
            Self::OnTheSpot(_) => None,
            Self::Pooled(pool) => Some(pool.shared.lock().shelves.iter().map(|shelf| shelf.ready.len()).sum()),
        }
    }
}

/// What a ready cell has to be like.
#[derive(Debug, Clone, PartialEq)]
struct Order {
    spec: CellSpec,
    /// What waits in it.
    warmth: Option<Warmth>,
}

impl Order {
    /// What serves for `spec`, if anything can. Cells that give somebody's own directories away, or have somebody's own way
    /// out, are not kept ready.
    fn new(spec: &CellSpec, shown: &[Mount]) -> Option<Self> {
        let writable = spec.mounts.iter().chain(shown).any(|mount| mount.writable);
        if writable || matches!(spec.network, Network::Gateway(_)) || spec.omit != LayerSet::default() {
            return None;
        }
        let mut limits = Limits::default();
        for kind in [LimitKind::Disk, LimitKind::Inodes] {
            limits.set(kind, spec.limits.get(kind)?, &Caps::default()).ok()?;
        }
        let slots = shown.iter().map(|mount| mount.target.clone()).collect();
        Some(Self { spec: CellSpec { limits, slots, ..spec.clone() }, warmth: None })
    }

    /// The same with something that waits in it. A zygote is worth its memory only where many runs are alike, so its cells
    /// have the usual disk and no network. A companion lives under the limits of what it helps, which are the operator's.
    fn warm(spec: &CellSpec, made: &[Mount], lent: &[Mount], warmth: &Warmth) -> Option<Self> {
        let mut order = Self::new(spec, lent)?;
        match warmth.kind {
            WarmthKind::Zygote if order.spec.limits != Limits::default() || !Zygote::POSSIBLE => return None,
            // Its limit could not be lowered below what waits in it.
            WarmthKind::Zygote if spec.limits.memory() < LEAST_WARM => return None,
            WarmthKind::Zygote => {}
            WarmthKind::Companion => order.spec.limits = spec.limits.clone(),
        }
        if order.spec.network != Network::None {
            return None;
        }
        order.spec.mounts.extend(made.iter().cloned());
        Some(Self { warmth: Some(warmth.clone()), ..order })
    }

    fn has_companion(&self) -> bool {
        self.warmth.as_ref().is_some_and(|warmth| warmth.kind == WarmthKind::Companion)
    }
}

/// Ready cells, and the threads that make them.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    makers: Mutex<Vec<JoinHandle<()>>>,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The most cells that are ready at one time.
    pub(crate) cells: usize,
    /// The most shelves of cells in which something waits.
    pub(crate) zygotes: usize,
}

#[derive(Debug)]
struct Shared {
    keeper: Keeper,
    room: Room,
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
    order: Order,
    ready: Vec<Made>,
    /// How many are being made.
    making: usize,
    /// How many it should hold.
    target: usize,
    /// The fewest that were left after a run took one, since the last look.
    spare: usize,
    used: Instant,
}

/// A cell on a shelf.
#[derive(Debug)]
struct Made {
    cell: Cell,
    companion: Option<Companion>,
}

impl Made {
    fn has_ended(&self) -> bool {
        // A cell that has something to say has come to an end.
        is_readable(&self.cell, Duration::ZERO) || self.companion.as_ref().is_some_and(Companion::has_ended)
    }
}

/// The least memory of a run that is served by a zygote's child, which has some of its own already.
const LEAST_WARM: u64 = 32 << 20;

/// How often it is looked whether a shelf holds too many.
const LOOK: Duration = Duration::from_secs(10);

/// How long a shelf is kept that nobody uses.
const KEPT: Duration = Duration::from_secs(600);

/// How many cells are made at one time: while one locks itself, the keeper can begin the next.
const AT_ONCE: usize = 2;

/// How long nobody must have asked for a companion before another is made.
const QUIET: Duration = Duration::from_millis(300);

/// The most cells with companions that a shelf holds.
const COMPANIONS: usize = 2;

impl Pool {
    pub(crate) fn new(keeper: Keeper, room: Room) -> std::io::Result<Self> {
        let (state, wanted) = (Mutex::default(), Condvar::new());
        let pool = Self { shared: Arc::new(Shared { keeper, room, state, wanted }), makers: Mutex::default() };
        pool.start_maker("ready-cells", Shared::make_plain)?;
        Ok(pool)
    }

    fn start_maker(&self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let maker = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))?;
        let mut makers = self.makers.lock().unwrap_or_else(PoisonError::into_inner);
        makers.retain(|maker| !maker.is_finished());
        makers.push(maker);
        Ok(())
    }

    /// Has a cell made ready before anybody asks for one.
    pub(crate) fn expect(&self, spec: &CellSpec, made: &[Mount], warmth: Option<&Warmth>) {
        let warm = warmth.and_then(|warmth| Order::warm(spec, made, &[], warmth));
        for order in warm.into_iter().chain(Order::new(spec, made)) {
            self.shelve(&mut self.shared.lock(), &order);
        }
        self.shared.wanted.notify_all();
    }

    /// A ready cell, if there is one. Either way somebody sees to it that there is one next time.
    fn take(&self, order: &Order) -> Option<Cell> {
        let mut state = self.shared.lock();
        let index = self.shelve(&mut state, order)?;
        let shelf = &mut state.shelves[index];
        shelf.used = Instant::now();
        let cell = loop {
            match shelf.ready.pop() {
                Some(made) if made.has_ended() => {}
                other => break other.map(|made| made.cell),
            }
        };
        if cell.is_none() {
            let most = if order.has_companion() { COMPANIONS } else { usize::MAX };
            shelf.target = (shelf.target + 1).min(self.shared.room.cells).min(most);
        }
        shelf.spare = shelf.spare.min(shelf.ready.len());
        drop(state);
        self.shared.wanted.notify_all();
        cell
    }

    /// The shelf for an order, if there can be one. A new one should hold one cell, or none before that is missed.
    fn shelve(&self, state: &mut State, order: &Order) -> Option<usize> {
        if state.closed {
            return None;
        }
        if let Some(index) = state.find(order) {
            return Some(index);
        }
        if let Some(warmth) = &order.warmth {
            let zygotes = state.shelves.iter().filter(|shelf| shelf.order.warmth.is_some()).count();
            if zygotes >= self.shared.room.zygotes && !state.give_up_zygote() {
                return None;
            }
            let (order, warmth) = (order.clone(), warmth.clone());
            match warmth.kind {
                WarmthKind::Zygote => self.start_maker("zygote", move |shared| shared.make_warm(&order, &warmth)),
                WarmthKind::Companion => {
                    self.start_maker("companions", move |shared| shared.make_accompanied(&order, &warmth))
                }
            }
            .ok()?;
        }
        let (target, used) = (usize::from(!order.has_companion()), Instant::now());
        let order = order.clone();
        state.shelves.push(Shelf { order, ready: vec![], making: 0, target, spare: usize::MAX, used });
        Some(state.shelves.len() - 1)
    }
}

impl Pool {
    /// Gives up everything that is ready; nothing will be from now on.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wanted.notify_all();
        let makers = std::mem::take(&mut *self.makers.lock().unwrap_or_else(PoisonError::into_inner));
        for maker in makers {
            let _ = maker.join();
        }
        self.shared.lock().shelves.clear();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn find(&self, order: &Order) -> Option<usize> {
        self.shelves.iter().position(|shelf| shelf.order == *order)
    }

    fn find_shelf(&self, order: &Order) -> Option<&Shelf> {
        self.find(order).map(|index| &self.shelves[index])
    }

    fn held(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.ready.len() + shelf.making).sum()
    }

    /// Of the shelves that lack cells, the one that was used last.
    fn lacking(&self, mine: impl Fn(&Order) -> bool) -> Option<usize> {
        let lacks = |shelf: &Shelf| shelf.ready.len() + shelf.making < shelf.target && mine(&shelf.order);
        (0..self.shelves.len())
            .filter(|index| lacks(&self.shelves[*index]))
            .max_by_key(|index| self.shelves[*index].used)
    }

    /// Takes a cell off the shelf that was not used for longest, if that is before `before`.
    fn give_up_one(&mut self, before: Instant) -> Option<Made> {
        let shelves = self.shelves.iter_mut().filter(|shelf| !shelf.ready.is_empty() && shelf.used < before);
        let shelf = shelves.min_by_key(|shelf| shelf.used)?;
        shelf.target = shelf.target.saturating_sub(1);
        shelf.ready.pop()
    }

    /// Removes the warm shelf that was not used for longest, unless it was just now.
    fn give_up_zygote(&mut self) -> bool {
        let zygotes = (0..self.shelves.len()).filter(|index| self.shelves[*index].order.warmth.is_some());
        let oldest = zygotes.min_by_key(|index| self.shelves[*index].used);
        let oldest = oldest.filter(|index| self.shelves[*index].used.elapsed() > LOOK);
        oldest.map(|index| self.shelves.remove(index)).is_some()
    }

    /// Lowers what was never needed since the last look, and takes away what is too much.
    fn look(&mut self) -> Vec<Made> {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes plain cells until all is over, and looks after all shelves.
    fn make_plain(&self) {
        let mut next_look = Instant::now() + LOOK;
        loop {
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                let surplus = self.lock().look();
                drop(surplus);
            }
            let Some(orders) = self.wait_for_orders(next_look, |order| order.warmth.is_none()) else { return };
            let cells: Vec<_> = orders.iter().map(|order| self.keeper.create(&order.spec)).collect();
            for (order, cell) in orders.iter().zip(cells) {
                let ready = |mut cell: Cell| cell.ready().map(|_| Made { cell, companion: None });
                self.put(order, cell.and_then(ready));
            }
        }
    }

    /// Makes cells with interpreters in them until their shelf is gone.
    fn make_warm(&self, order: &Order, warmth: &Warmth) {
        let mut zygote = Zygote::start(&self.keeper, &order.spec, warmth);
        // One that does not get warm will not another time either; its runs start as they would without it.
        while let Ok(warm) = &zygote {
            let soon = Instant::now() + LOOK;
            let Some(orders) = self.wait_for_orders(soon, |other| other == order) else { return };
            if self.lock().find(order).is_none() {
                return;
            }
            if warm.has_ended() {
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
    }

    /// Makes cells with companions in them until their shelf is gone. One after the other, and not while others are busy
    /// with what they took: each takes a CPU for a while, which a run that has to do without would need more.
    fn make_accompanied(&self, order: &Order, warmth: &Warmth) {
        let wanted = || {
            let state = self.lock();
            !state.closed && state.find(order).is_some()
        };
        let mut works = true;
        // One that does not get ready will not another time either.
        while works && wanted() {
            let soon = Instant::now() + LOOK;
            let Some(orders) = self.wait_for_orders(soon, |other| other == order) else { return };
            for order in &orders {
                while wanted() && self.lock().find_shelf(order).is_some_and(|shelf| shelf.used.elapsed() < QUIET) {
                    std::thread::sleep(QUIET / 4);
                }
                let made = Companion::start(&self.keeper, &order.spec, &warmth.command, wanted);
                works &= made.is_ok();
                self.put(order, made.map(|(cell, companion)| Made { cell, companion: Some(companion) }));
            }
        }
    }

    /// Waits until some cells of these are wanted, but not longer than until `until`. None when all is over.
    fn wait_for_orders(&self, until: Instant, mine: impl Fn(&Order) -> bool) -> Option<Vec<Order>> {
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
            state = match self.wanted.wait_timeout(state, left) {
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
            Ok(made) => shelf.ready.push(made),
            // Whoever needs one makes his own, and is told why that fails. The next who finds none asks for one again.
            Err(_) => shelf.target = 0,
        }
    }
}
