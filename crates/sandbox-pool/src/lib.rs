//! Where runs get their cells from: made on the spot, or from a pool of cells that were made before.
//!
//! # Theory of operation
//!
//! Cells are single-use, and making one takes longer than anything else on a run's way. So the pool makes them ahead.
//! What a cell is made for is its *order* (`order.rs`): mounts, network, size of its disk. What can still be changed when a
//! run takes it is not part of the order: the other limits, and what is shown at its slots (a compiled program, packages).
//!
//! Each order has a shelf (`shelves.rs`). A shelf learns from demand how many cells it should hold: every time a run
//! finds it empty it holds one more, and when some were never needed for a while it holds fewer. All shelves together hold
//! no more than the operator allows; the least recently used one yields. What waits in cells takes no more than half of
//! the memory that is available (`memory.rs`), except for one cell on each shelf. One thread makes what is missing (`makers.rs`). A
//! run that finds its shelf empty takes the cell that is just being made, if there is one for it, or has its own made on
//! the spot. (A zygote's child, below, is worth waiting for longer.) A run whose caller goes away stops waiting.
//!
//! Making a cell takes as much of the keeper, the kernel and a CPU as a short run does, and a run that has just taken one
//! needs all three. So the pool replaces it when the run has ended or has lasted for a while, unless other runs need it
//! now ([`RefillGuard`]).
//!
//! A cell can be more than ready: the child of a zygote can wait in it (`prestart.rs`). Such cells have shelves of their
//! own, and each of these has a thread that has the zygote. The first zygote of a language has to pass a test
//! (`self_test.rs`) before runs get its children; if programs behave differently in them, the language starts cold
//! (`warm_status.rs`). A zygote that fails in another way is started again after a pause. A zygote ends with its shelf,
//! which is removed when it was not used for a while or when another needs the place. A compiler can be a zygote too. It is
//! slow to warm up and large, so it is not started before a run has missed it.

mod makers;
mod memory;
mod order;
mod prestart;
mod self_test;
mod shelves;
mod wait;
mod warm_status;
mod zygote;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandbox_cell::{Cell, CellSpec, Failure, Keeper, Mount};
use serde::{Deserialize, Serialize};

use self::makers::{CellShelves, PoolCounts, PoolShared, is_plain};
use self::order::CellOrder;
pub use self::prestart::Prestart;
use self::shelves::{Demand, ShelfId, Shelves};
use self::wait::{Cancelled, wait_for_cell};
pub use self::warm_status::WarmStart;
use self::warm_status::WarmStarts;
use self::zygote::Zygote;

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

/// The counts of a pool since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatistics {
    /// Runs that found no ready cell, although cells are kept ready.
    pub misses: u64,
    /// Zygotes that ended and were replaced.
    pub lost_zygotes: u64,
    /// Threads that panicked and were started again.
    pub panics: u64,
}

/// The limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// The most cells that are ready or being made at one time; 0 has each made on the spot.
    pub cells: usize,
    /// The most shelves of cells with prestarted processes.
    pub zygotes: usize,
}

/// The cell that a run needs.
#[derive(Debug, Clone, Copy)]
pub struct WantedCell<'a> {
    /// Its specification.
    pub spec: &'a CellSpec,
    /// Mounts of what was made for many runs. A prestarted process sees them too.
    pub artifact_mounts: &'a [Mount],
    /// What could wait in it.
    pub prestart: Option<&'a Prestart>,
}

/// A cell for a run.
#[derive(Debug)]
pub struct TakenCell {
    /// The cell. One that was ready gets its limits with the command.
    pub cell: Cell,
    /// How it was made.
    pub start: StartKind,
    /// The mounts that have to be attached when the command starts.
    pub late_mounts: Vec<Mount>,
    /// Held as long as the pool should not be refilled.
    pub refill: RefillGuard,
}

/// Why a run got no cell.
#[derive(Debug)]
pub enum TakeError {
    /// The caller went away while the run waited.
    Cancelled,
    /// The cell could not be made.
    Failed(Failure),
}

impl From<Cancelled> for TakeError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Delays refilling the pool while a run needs the CPU, until this is dropped.
#[derive(Debug)]
pub struct RefillGuard(Option<Arc<PoolShared>>);

impl RefillGuard {
    /// The longest delay: a run that takes longer is not disturbed by what else is done.
    pub const LONGEST: Duration = Duration::from_millis(5);

    fn new(shared: Option<&Arc<PoolShared>>) -> Self {
        if let Some(shared) = shared {
            shared.lock().run_begins();
        }
        Self(shared.cloned())
    }
}

impl Drop for RefillGuard {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            let mut shelves = shared.lock();
            shelves.run_settles();
            wake_makers(shelves);
        }
    }
}

/// A source of cells: ready ones, and the threads that make them.
#[derive(Debug)]
pub struct Pool {
    keeper: Keeper,
    /// None if every cell is made on the spot.
    shared: Option<Arc<PoolShared>>,
    makers: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// A pool of this keeper's cells. Starts a thread, unless it is to keep nothing.
    pub fn new(keeper: Keeper, limits: PoolLimits) -> std::io::Result<Self> {
        let mut pool = Self { keeper, shared: None, makers: Mutex::default() };
        if limits.cells > 0 {
            let (keeper, shelves) = (pool.keeper.clone(), Mutex::new(Shelves::new(limits)));
            let warm_starts = WarmStarts::default();
            let counts = PoolCounts::default();
            let shared = Arc::new(PoolShared { keeper, shelves, warm_starts, plain: Arc::default(), counts });
            pool.start_maker(&shared, "ready-cells", is_plain, PoolShared::make_plain)?;
            pool.shared = Some(shared);
        }
        Ok(pool)
    }

    /// A cell for a run. It gives up waiting for one when `cancelled` says that its caller is gone.
    pub fn take(&self, wanted: &WantedCell<'_>, cancelled: &dyn Fn() -> bool) -> Result<TakenCell, TakeError> {
        let WantedCell { spec, artifact_mounts, prestart } = *wanted;
        let refill = RefillGuard::new(self.shared.as_ref());
        if let Some(shared) = &self.shared {
            let prestart = prestart.filter(|prestart| shared.warm_starts.allow(prestart));
            if let Some(order) = prestart.and_then(|prestart| CellOrder::warm(spec, artifact_mounts, prestart))
                && let Some(cell) = self.take_ready(shared, &order, cancelled)?
            {
                return Ok(TakenCell { cell, start: StartKind::Warm, late_mounts: vec![], refill });
            }
            if let Some(order) = CellOrder::plain(spec, artifact_mounts)
                && let Some(cell) = self.take_ready(shared, &order, cancelled)?
            {
                return Ok(TakenCell { cell, start: StartKind::Ready, late_mounts: artifact_mounts.to_vec(), refill });
            }
            shared.counts.misses.fetch_add(1, Ordering::Relaxed);
        }
        let mut spec = spec.clone();
        spec.mounts.extend(artifact_mounts.iter().cloned());
        let cell = self.keeper.create(&spec).map_err(TakeError::Failed)?;
        Ok(TakenCell { cell, start: StartKind::Cold, late_mounts: vec![], refill })
    }

    /// Makes such a cell ready before a run needs one.
    pub fn expect(&self, wanted: &WantedCell<'_>) {
        let Some(shared) = &self.shared else { return };
        let WantedCell { spec, artifact_mounts, prestart } = *wanted;
        let warm = prestart.and_then(|prestart| CellOrder::warm(spec, artifact_mounts, prestart));
        let plain = CellOrder::plain(spec, artifact_mounts);
        let mut shelves = shared.lock();
        for order in warm.into_iter().chain(plain) {
            shelves.expect(&order, Instant::now(), |id| self.start_maker_of(shared, id, &order));
        }
        wake_makers(shelves);
    }

    /// Whether programs of a language start warm, as far as that depends on zygotes.
    #[must_use]
    pub fn warm_start(&self, language: &str) -> WarmStart {
        match &self.shared {
            _ if !Zygote::POSSIBLE => WarmStart::Off("there are no zygotes for this architecture".to_owned()),
            Some(shared) if shared.lock().limits().zygotes > 0 => shared.warm_starts.of(language),
            _ => WarmStart::Disabled,
        }
    }

    /// How many cells are ready; none if none are kept.
    #[must_use]
    pub fn ready_cells(&self) -> Option<usize> {
        self.shared.as_ref().map(|shared| shared.lock().ready())
    }

    /// What the pool has counted since the start.
    #[must_use]
    pub fn statistics(&self) -> PoolStatistics {
        let counts = self.shared.as_ref().map(|shared| &shared.counts);
        let read = |count: fn(&PoolCounts) -> &AtomicU64| counts.map_or(0, |all| count(all).load(Ordering::Relaxed));
        PoolStatistics {
            misses: read(|counts| &counts.misses),
            lost_zygotes: read(|counts| &counts.lost_zygotes),
            panics: read(|counts| &counts.panics),
        }
    }

    /// Begins anew with a keeper that has replaced one that ended: all cells and zygotes are gone, and such ones are made
    /// again.
    pub fn begin_anew(&self) {
        let Some(shared) = &self.shared else { return };
        shared.warm_starts.begin_anew();
        let mut shelves = shared.lock();
        let (orders, cells, makers) = shelves.empty();
        for order in &orders {
            shelves.expect(order, Instant::now(), |id| self.start_maker_of(shared, id, order));
        }
        wake_makers(shelves);
        for maker in makers {
            maker.notify_all();
        }
        drop(cells);
    }

    /// Deletes everything that is ready. From now on every cell is made on the spot.
    pub fn close(&self) {
        let Some(shared) = &self.shared else { return };
        let makers = shared.lock().close();
        shared.plain.notify_all();
        for maker in makers {
            maker.notify_all();
        }
        let makers = std::mem::take(&mut *self.makers.lock().unwrap_or_else(PoisonError::into_inner));
        for maker in makers {
            let _ = maker.join();
        }
    }

    /// A ready cell, if there is one or one is worth waiting for. Either way one is made for the next run.
    fn take_ready(
        &self,
        shared: &Arc<PoolShared>,
        order: &CellOrder,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Cell>, Cancelled> {
        let mut shelves = shared.lock();
        let demand = shelves.demand(order, Instant::now(), |id| self.start_maker_of(shared, id, order));
        wake_makers(shelves);
        let ready = match demand {
            Demand::Cell(ready) => Some(ready),
            Demand::Wait(waiter) => wait_for_cell(&shared.shelves, &waiter, cancelled)?,
            Demand::Miss => None,
        };
        Ok(ready)
    }

    /// Starts the thread that makes the cells of a new shelf; plain ones share a thread.
    fn start_maker_of(&self, shared: &Arc<PoolShared>, id: ShelfId, order: &CellOrder) -> Option<Arc<Condvar>> {
        let Some(prestart) = order.prestart.clone() else { return Some(Arc::clone(&shared.plain)) };
        let maker = Arc::<Condvar>::default();
        let (order, wanted) = (order.clone(), Arc::clone(&maker));
        let mine = move |other, _: &CellOrder| other == id;
        let started =
            self.start_maker(shared, "zygote", mine, move |shared| shared.make_warm(&wanted, id, &order, &prestart));
        started.ok().map(|()| maker)
    }

    fn start_maker(
        &self,
        shared: &Arc<PoolShared>,
        name: &str,
        mine: impl Fn(ShelfId, &CellOrder) -> bool + Send + 'static,
        work: impl Fn(&PoolShared) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(shared);
        let maker = std::thread::Builder::new().name(name.to_owned());
        let maker = maker.spawn(move || shared.survive_panics(mine, work))?;
        let mut makers = self.makers.lock().unwrap_or_else(PoisonError::into_inner);
        makers.retain(|maker| !maker.is_finished());
        makers.push(maker);
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

/// Wakes the threads that have something to make. They find the lock free.
fn wake_makers(shelves: MutexGuard<'_, CellShelves>) {
    let wanted: Vec<_> = shelves.wanted_makers().cloned().collect();
    drop(shelves);
    for maker in wanted {
        maker.notify_all();
    }
}

/// An operation that the kernel refused.
fn failure(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(what, sandbox_base::reason(error))
}
