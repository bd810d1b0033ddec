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
//! no more than the operator allows; the one that was used last wins. One thread makes what is missing. A run that finds
//! its shelf empty takes the cell that is just being made, if there is one for it, or has its own made on the spot. (A
//! zygote's child, below, is worth waiting for longer.)
//!
//! Making a cell takes as much of the keeper, the kernel and a CPU as a short run does, and a run that has just taken one
//! needs all three. So what it took is replaced when it has ended or has gone on for a while, unless others need it now.
//!
//! A cell can be more than ready: the child of a zygote can wait in it. Such cells have shelves of their own, and each of
//! these has a thread of its own, which has the zygote. A zygote ends with its shelf, which goes when nobody has used it
//! for a while or when another needs the place. A companion can wait in a cell too, which helps what the run starts. It is
//! as slow to start as what it helps, and large; so there are few, and none before somebody has needed one.

mod makers;
mod shelves;

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandbox_base::limits::{Caps, LimitKind, Limits};
use sandbox_cell::{Cell, CellSpec, Failure, Keeper, Mount, Network};
use serde::{Deserialize, Serialize};

use self::makers::Shared;
use self::shelves::{Made, Shelf, State};
use crate::warmth::{Warmth, WarmthKind};
use crate::zygote::Zygote;

/// How a run got its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// Held as long as the pool should not be refilled.
    pub(crate) refill: RefillGuard,
}

/// Delays refilling the pool while a run needs the CPU, until this is dropped.
#[derive(Debug)]
pub(crate) struct RefillGuard(Option<Arc<Shared>>);

impl RefillGuard {
    /// The longest delay: a run that takes longer does not notice what else is done.
    pub(crate) const LONGEST: Duration = Duration::from_millis(5);
}

impl Drop for RefillGuard {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            let mut state = shared.lock();
            state.busy -= 1;
            state.wake_makers();
        }
    }
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
        let refill = self.delay_refill();
        if let Self::Pooled(pool) = self {
            if let Some(order) = warmth.and_then(|warmth| Order::warm(spec, made, lent, warmth))
                && let Some(cell) = pool.take(&order)
            {
                return Ok(Taken { cell, start: StartKind::Warm, late: lent.to_vec(), refill });
            }
            if let Some(order) = Order::new(spec, &all)
                && let Some(cell) = pool.take(&order)
            {
                return Ok(Taken { cell, start: StartKind::Ready, late: all, refill });
            }
        }
        let mut spec = spec.clone();
        spec.mounts.extend(all);
        Ok(Taken { cell: self.keeper().create(&spec)?, start: StartKind::Cold, late: vec![], refill })
    }

    fn delay_refill(&self) -> RefillGuard {
        let Self::Pooled(pool) = self else { return RefillGuard(None) };
        pool.shared.lock().busy += 1;
        RefillGuard(Some(Arc::clone(&pool.shared)))
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
        if writable || matches!(spec.network, Network::Gateway(_)) || !spec.disabled_layers().is_empty() {
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

    fn has_zygote(&self) -> bool {
        self.warmth.as_ref().is_some_and(|warmth| warmth.kind == WarmthKind::Zygote)
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

/// The least memory of a run that is served by a zygote's child, which has some of its own already.
const LEAST_WARM: u64 = 32 << 20;

/// A run waits for the child of a zygote as long as one comes in this time.
const WORTH_WAITING: Duration = Duration::from_millis(500);

/// The most cells with companions that a shelf holds.
const COMPANIONS: usize = 2;

impl Pool {
    pub(crate) fn new(keeper: Keeper, room: Room) -> std::io::Result<Self> {
        let (state, plain) = (Mutex::default(), Arc::default());
        let pool = Self { shared: Arc::new(Shared { keeper, room, state, plain }), makers: Mutex::default() };
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
        let mut state = self.shared.lock();
        for order in warm.into_iter().chain(Order::new(spec, made)) {
            self.shelve(&mut state, &order);
        }
        state.wake_makers();
    }

    /// A ready cell, if there is one. Either way somebody sees to it that there is one next time.
    fn take(&self, order: &Order) -> Option<Cell> {
        let mut state = self.shared.lock();
        let index = self.shelve(&mut state, order)?;
        let shelf = &mut state.shelves[index];
        // Whoever came first is first.
        let cell = if shelf.waiting.is_empty() { shelf.take() } else { None };
        if cell.is_none() {
            let most = if order.has_companion() { COMPANIONS } else { usize::MAX };
            shelf.target = (shelf.target + 1).min(self.shared.room.cells).min(most);
            // One that is being made is there sooner than one that is not.
            let comes = order.warmth.is_none() && shelf.making > shelf.waiting.len();
            if comes || (order.has_zygote() && shelf.came_at.is_some()) {
                let (sender, receiver) = sync_channel(1);
                shelf.waiting.push_back(sender);
                shelf.used = Instant::now();
                state.wake_makers();
                drop(state);
                return self.wait(order, &receiver);
            }
        }
        state.wake_makers();
        cell
    }

    /// Waits for a cell as long as some come. A child of an interpreter that is there already is sooner ready than an
    /// interpreter, and takes less of what everybody waits for.
    fn wait(&self, order: &Order, receiver: &Receiver<Made>) -> Option<Cell> {
        loop {
            match receiver.recv_timeout(WORTH_WAITING) {
                Ok(made) => return Some(made.cell),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let state = self.shared.lock();
            let shelf = state.find_shelf(order).filter(|_| !state.closed);
            let some_come = shelf.and_then(|shelf| shelf.came_at).is_some_and(|at| at.elapsed() < WORTH_WAITING);
            if !some_come {
                // One may have come just now. Whatever comes later finds nobody here.
                return receiver.try_recv().ok().map(|made| made.cell);
            }
        }
    }

    /// The shelf for an order, if there can be one. A new one should hold one cell, or none before that is missed.
    fn shelve(&self, state: &mut State, order: &Order) -> Option<usize> {
        if state.closed {
            return None;
        }
        if let Some(index) = state.find(order) {
            return Some(index);
        }
        let mut maker = Arc::clone(&self.shared.plain);
        if let Some(warmth) = &order.warmth {
            let zygotes = state.shelves.iter().filter(|shelf| shelf.order.warmth.is_some()).count();
            if zygotes >= self.shared.room.zygotes && !state.give_up_zygote(warmth.owner()) {
                return None;
            }
            maker = Arc::default();
            let (order, warmth, wanted) = (order.clone(), warmth.clone(), Arc::clone(&maker));
            match warmth.kind {
                WarmthKind::Zygote => {
                    self.start_maker("zygote", move |shared| shared.make_warm(&wanted, &order, &warmth))
                }
                WarmthKind::Companion => {
                    self.start_maker("companions", move |shared| shared.make_accompanied(&wanted, &order, &warmth))
                }
            }
            .ok()?;
        }
        state.shelves.push(Shelf::new(order.clone(), usize::from(!order.has_companion()), maker));
        Some(state.shelves.len() - 1)
    }
}

impl Pool {
    /// Gives up everything that is ready; nothing will be from now on.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.plain.notify_all();
        state.shelves.iter().for_each(|shelf| shelf.maker.notify_all());
        drop(state);
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
