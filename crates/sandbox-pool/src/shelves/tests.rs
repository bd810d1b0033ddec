//! Unit tests of the shelves, and a model test that drives them through random sequences of events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;

use proptest::prelude::*;

use super::*;

/// The order of a cell in these tests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FakeOrder {
    name: &'static str,
    is_warm: bool,
    owner: Option<&'static str>,
}

impl FakeOrder {
    fn plain(name: &'static str) -> Self {
        Self { name, is_warm: false, owner: None }
    }

    pub(crate) fn zygote(name: &'static str) -> Self {
        Self { is_warm: true, ..Self::plain(name) }
    }

    fn of(self, owner: &'static str) -> Self {
        Self { owner: Some(owner), ..self }
    }
}

impl ShelfOrder for FakeOrder {
    fn is_warm(&self) -> bool {
        self.is_warm
    }

    fn owner(&self) -> Option<&str> {
        self.owner
    }
}

/// A cell that can end, and whose copies of `ended` are counted to find leaks.
#[derive(Debug)]
pub(crate) struct FakeCell {
    number: u64,
    ended: Arc<AtomicBool>,
}

impl FakeCell {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, ended: Arc::default() }
    }
}

impl ShelfCell for FakeCell {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

type FakeShelves = Shelves<FakeOrder, FakeCell, ()>;

pub(crate) fn fake_shelves(cells: usize, zygotes: usize) -> FakeShelves {
    Shelves::new(PoolLimits { cells, zygotes })
}

fn ask(shelves: &mut FakeShelves, order: &FakeOrder, now: Instant) -> Demand<FakeCell> {
    shelves.demand(order, now, |_| Some(()))
}

/// Makes everything that is wanted.
fn fill(shelves: &mut FakeShelves, now: Instant) -> usize {
    let mut made = 0;
    loop {
        let orders = shelves.next_orders(|_, _| true);
        if orders.is_empty() {
            return made;
        }
        for (id, _) in orders {
            shelves.finish(id, Some(FakeCell::new(made as u64)), now);
            made += 1;
        }
    }
}

#[test]
fn a_shelf_learns_from_misses_how_many_cells_to_hold() {
    let (mut shelves, order, now) = (fake_shelves(8, 0), FakeOrder::plain("a"), Instant::now());
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Miss));
    assert_eq!(fill(&mut shelves, now), 2, "one for a new shelf, and one for the miss");
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Cell(_)));
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Cell(_)));
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Miss));
    assert_eq!(fill(&mut shelves, now), 3);
}

#[test]
fn an_idle_shelf_shrinks_and_is_removed() {
    let (mut shelves, order, now) = (fake_shelves(8, 0), FakeOrder::plain("a"), Instant::now());
    for _ in 0..3 {
        let _ = ask(&mut shelves, &order, now);
    }
    assert_eq!(fill(&mut shelves, now), 4);
    assert_eq!(shelves.look(now + 2 * LOOK).len(), 2);
    assert_eq!(shelves.look(now + 3 * LOOK).len(), 1);
    assert_eq!((shelves.look(now + 4 * LOOK).len(), shelves.ready()), (0, 1));
    shelves.look(now + KEPT);
    assert_eq!(shelves.held(), 0);
}

/// A shelf whose cells arrive, with so many runs that miss one and go away.
fn busy_shelf(shelves: &mut FakeShelves, order: &FakeOrder, misses: usize, now: Instant) -> ShelfId {
    shelves.expect(order, now, |_| Some(()));
    let (id, _) = shelves.next_orders(|_, other| other == order).remove(0);
    shelves.finish(id, Some(FakeCell::new(99)), now);
    assert!(matches!(ask(shelves, order, now), Demand::Cell(_)));
    for _ in 0..misses {
        let Demand::Wait(waiter) = ask(shelves, order, now) else { panic!("one will come") };
        shelves.withdraw(&waiter);
    }
    id
}

#[test]
fn children_that_wait_take_half_of_the_available_memory_at_most() {
    let (mut shelves, order, now) = (fake_shelves(8, 1), FakeOrder::zygote("java"), Instant::now());
    let id = busy_shelf(&mut shelves, &order, 7, now);
    shelves.note_cell_memory(id, 100);
    shelves.note_available_memory(Some(700));
    assert_eq!(fill(&mut shelves, now), 3, "8 are wanted, and 350 bytes may be used");
    shelves.note_available_memory(Some(700));
    assert_eq!(fill(&mut shelves, now), 2, "those that wait are not available any more");
    shelves.note_available_memory(None);
    assert_eq!(fill(&mut shelves, now), 3, "nothing is known");
}

#[test]
fn the_first_child_of_a_shelf_is_made_with_any_memory() {
    let (mut shelves, order, now) = (fake_shelves(8, 1), FakeOrder::zygote("java"), Instant::now());
    let id = busy_shelf(&mut shelves, &order, 3, now);
    shelves.note_cell_memory(id, 100);
    shelves.note_available_memory(Some(0));
    for _ in 0..3 {
        assert_eq!(fill(&mut shelves, now), 1);
        assert!(matches!(ask(&mut shelves, &order, now), Demand::Cell(_)));
    }
}

#[test]
fn children_are_given_up_when_memory_gets_short() {
    let (mut shelves, java, now) = (fake_shelves(8, 2), FakeOrder::zygote("java"), Instant::now());
    let python = FakeOrder::zygote("python");
    for (order, bytes) in [(&java, 100), (&python, 10)] {
        let id = busy_shelf(&mut shelves, order, 3, now);
        shelves.note_cell_memory(id, bytes);
    }
    assert_eq!(fill(&mut shelves, now), 8);
    shelves.note_available_memory(Some(0));
    assert_eq!(shelves.look(now).len(), 3, "at most 220 of 440 bytes are left, and the larger ones yield");
    assert_eq!((shelves.held_memory(), fill(&mut shelves, now)), (140, 0));
    shelves.note_available_memory(Some(0));
    assert_eq!(shelves.look(now).len(), 3, "one of each stays");
    assert_eq!(shelves.held_memory(), 110);
}

#[test]
fn cells_that_have_ended_are_not_handed_out() {
    let (mut shelves, order, now) = (fake_shelves(8, 0), FakeOrder::plain("a"), Instant::now());
    shelves.expect(&order, now, |_| Some(()));
    let (id, _) = shelves.next_orders(|_, _| true).remove(0);
    let cell = FakeCell::new(0);
    cell.ended.store(true, Ordering::Relaxed);
    shelves.finish(id, Some(cell), now);
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Miss));
}

#[test]
fn a_run_takes_the_cell_that_is_being_made_for_its_shelf() {
    let (mut shelves, order, now) = (fake_shelves(8, 0), FakeOrder::plain("a"), Instant::now());
    shelves.expect(&order, now, |_| Some(()));
    let (id, _) = shelves.next_orders(|_, _| true).remove(0);
    let Demand::Wait(waiter) = ask(&mut shelves, &order, now) else { panic!("one is on its way") };
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Miss), "that one is spoken for");
    shelves.finish(id, Some(FakeCell::new(7)), now);
    assert_eq!(waiter.receiver.try_recv().expect("handed over").number, 7);
}

#[test]
fn a_cancelled_run_returns_a_cell_that_it_was_just_handed() {
    let (mut shelves, order, now) = (fake_shelves(8, 0), FakeOrder::plain("a"), Instant::now());
    shelves.expect(&order, now, |_| Some(()));
    let (id, _) = shelves.next_orders(|_, _| true).remove(0);
    let Demand::Wait(waiter) = ask(&mut shelves, &order, now) else { panic!("one is on its way") };
    shelves.finish(id, Some(FakeCell::new(7)), now);
    shelves.withdraw(&waiter);
    let Demand::Cell(cell) = ask(&mut shelves, &order, now) else { panic!("it is back") };
    assert_eq!(cell.number, 7);
}

#[test]
fn a_failing_zygote_falls_back_to_cold_starts() {
    let (mut shelves, order, now) = (fake_shelves(8, 1), FakeOrder::zygote("python"), Instant::now());
    shelves.expect(&order, now, |_| Some(()));
    assert_eq!(fill(&mut shelves, now), 1);
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Cell(_)));
    let Demand::Wait(waiter) = ask(&mut shelves, &order, now) else { panic!("children arrive") };
    let id = waiter.shelf;
    shelves.fail(id);
    assert!(matches!(waiter.receiver.try_recv(), Err(TryRecvError::Disconnected)));
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Miss));
}

#[test]
fn the_first_runs_of_a_zygote_do_not_wait_until_it_is_warm() {
    let (mut shelves, order, now) = (fake_shelves(8, 1), FakeOrder::zygote("java"), Instant::now());
    for _ in 0..3 {
        assert!(matches!(ask(&mut shelves, &order, now), Demand::Miss));
    }
    assert_eq!(fill(&mut shelves, now), 1, "runs that miss one do not tell how many come at once");
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Cell(_)));
    assert!(matches!(ask(&mut shelves, &order, now), Demand::Wait(_)));
    assert_eq!(fill(&mut shelves, now), 2, "the run that waits shows that two are needed");
}

#[test]
fn requests_without_a_pause_are_served_by_children_that_follow_each_other() {
    let (mut shelves, order, mut now) = (fake_shelves(8, 1), FakeOrder::zygote("java"), Instant::now());
    shelves.expect(&order, now, |_| Some(()));
    assert_eq!(fill(&mut shelves, now), 1);
    for _ in 0..20 {
        now += Duration::from_millis(20);
        assert!(matches!(ask(&mut shelves, &order, now), Demand::Cell(_)));
        assert_eq!(fill(&mut shelves, now), 1, "replaced at once");
    }
}

#[test]
fn no_owner_displaces_the_zygote_of_an_owner_with_fewer() {
    let (mut shelves, now) = (fake_shelves(8, 2), Instant::now());
    let later = now + 2 * LOOK;
    let orders = [FakeOrder::zygote("1").of("a"), FakeOrder::zygote("2").of("b"), FakeOrder::zygote("3").of("a")];
    for order in &orders[..2] {
        shelves.expect(order, now, |_| Some(()));
    }
    shelves.expect(&orders[2], now, |_| Some(()));
    assert_eq!(shelves.all.len(), 2, "both were used just now");
    shelves.expect(&orders[2], later, |_| Some(()));
    let names: BTreeSet<_> = shelves.all.iter().map(|shelf| shelf.order.name).collect();
    assert_eq!(names, BTreeSet::from(["2", "3"]));
}

#[test]
fn refilling_waits_for_a_single_busy_run() {
    let (mut shelves, order, now) = (fake_shelves(8, 0), FakeOrder::plain("a"), Instant::now());
    shelves.expect(&order, now, |_| Some(()));
    shelves.run_begins();
    assert_eq!((shelves.wanted_makers().count(), fill(&mut shelves, now)), (0, 0));
    shelves.run_begins();
    assert_eq!(shelves.wanted_makers().count(), 1, "two runs, and no cell is left");
    shelves.run_settles();
    shelves.run_settles();
    assert_eq!(fill(&mut shelves, now), 1);
}

#[test]
fn a_new_shelf_does_not_take_the_cells_of_its_predecessor() {
    let (mut shelves, now) = (fake_shelves(8, 1), Instant::now());
    let (first, second) = (FakeOrder::zygote("1"), FakeOrder::zygote("2"));
    shelves.expect(&first, now, |_| Some(()));
    let (old, _) = shelves.next_orders(|_, _| true).remove(0);
    shelves.expect(&second, now + 2 * LOOK, |_| Some(()));
    shelves.expect(&first, now + 4 * LOOK, |_| Some(()));
    assert_eq!((shelves.has(old), shelves.held()), (false, 1), "what is still being made counts");
    shelves.finish(old, Some(FakeCell::new(0)), now);
    assert_eq!((shelves.ready(), shelves.held()), (0, 0));
}

/// Something that happens to a pool. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum PoolEvent {
    Demand(usize),
    Expect(usize),
    Order,
    Made(usize),
    NotMade(usize),
    Returned(usize),
    Ended(usize),
    Receive(usize),
    Cancel(usize),
    Leave(usize),
    Fail(usize),
    RunBegins,
    RunSettles,
    Wait(u64),
    Look,
    CellMemory(usize, u64),
    AvailableMemory(u64),
    Close,
}

fn events() -> impl Strategy<Value = Vec<PoolEvent>> {
    let any = || 0..64_usize;
    let event = prop_oneof![
        8 => any().prop_map(PoolEvent::Demand),
        1 => any().prop_map(PoolEvent::Expect),
        6 => Just(PoolEvent::Order),
        6 => any().prop_map(PoolEvent::Made),
        1 => any().prop_map(PoolEvent::NotMade),
        1 => any().prop_map(PoolEvent::Returned),
        1 => any().prop_map(PoolEvent::Ended),
        3 => any().prop_map(PoolEvent::Receive),
        2 => any().prop_map(PoolEvent::Cancel),
        1 => any().prop_map(PoolEvent::Leave),
        1 => any().prop_map(PoolEvent::Fail),
        2 => Just(PoolEvent::RunBegins),
        2 => Just(PoolEvent::RunSettles),
        3 => prop_oneof![1..400_u64, 1..30_000_u64, 1..700_000_u64].prop_map(PoolEvent::Wait),
        1 => Just(PoolEvent::Look),
        1 => (any(), 0..100_u64).prop_map(|(which, bytes)| PoolEvent::CellMemory(which, bytes)),
        1 => (0..500_u64).prop_map(PoolEvent::AvailableMemory),
    ];
    (proptest::collection::vec(event, 1..120), any()).prop_map(|(mut events, close)| {
        if close % 4 == 0 {
            let at = close % events.len();
            events.insert(at, PoolEvent::Close);
        }
        events
    })
}

/// A run that waits, and the cell that the model says it was handed.
struct WaitingRun {
    waiter: CellWaiter<FakeCell>,
    handed: Option<u64>,
}

/// The shelves, and what a simple model knows about them.
struct PoolModel {
    shelves: FakeShelves,
    limits: PoolLimits,
    orders: Vec<FakeOrder>,
    now: Instant,
    busy: usize,
    /// Cells that were ordered and are not made yet.
    making: Vec<ShelfId>,
    runs: Vec<WaitingRun>,
    /// The runs that wait at a shelf by their numbers, the first in front.
    queues: BTreeMap<u64, VecDeque<u64>>,
    /// Every cell that was ever made.
    made: Vec<Arc<AtomicBool>>,
    /// The cells that runs have.
    taken: BTreeMap<u64, FakeCell>,
    closed: bool,
}

impl PoolModel {
    fn new(limits: PoolLimits) -> Self {
        let orders = vec![
            FakeOrder::plain("plain"),
            FakeOrder::plain("disk"),
            FakeOrder::zygote("python").of("a"),
            FakeOrder::zygote("numpy").of("b"),
            FakeOrder::zygote("javascript"),
            FakeOrder::zygote("java"),
        ];
        Self {
            shelves: Shelves::new(limits),
            limits,
            orders,
            now: Instant::now(),
            busy: 0,
            making: vec![],
            runs: vec![],
            queues: BTreeMap::new(),
            made: vec![],
            taken: BTreeMap::new(),
            closed: false,
        }
    }

    fn apply(&mut self, event: &PoolEvent) {
        match *event {
            PoolEvent::Demand(which) => self.demand(which),
            PoolEvent::Expect(which) => {
                let order = self.orders[which % self.orders.len()].clone();
                self.shelves.expect(&order, self.now, |_| Some(()));
            }
            PoolEvent::Order => self.order(),
            PoolEvent::Made(which) => self.finish(which, true),
            PoolEvent::NotMade(which) => self.finish(which, false),
            PoolEvent::Returned(which) => {
                if let Some(id) = pick(&mut self.making, which) {
                    self.shelves.return_orders(id, 1);
                }
            }
            PoolEvent::Ended(which) => {
                if !self.made.is_empty() {
                    self.made[which % self.made.len()].store(true, Ordering::Relaxed);
                }
            }
            PoolEvent::Receive(which) => self.receive(which),
            PoolEvent::Cancel(which) => self.cancel(which),
            PoolEvent::Leave(which) => self.leave(which),
            PoolEvent::Fail(which) => {
                if let Some(id) = self.making.get(which % self.making.len().max(1)).copied() {
                    self.shelves.fail(id);
                    self.expect_sent_away(id);
                }
            }
            PoolEvent::RunBegins => {
                self.busy += 1;
                self.shelves.run_begins();
            }
            PoolEvent::RunSettles => {
                if self.busy > 0 {
                    self.busy -= 1;
                    self.shelves.run_settles();
                }
            }
            PoolEvent::Wait(milliseconds) => self.now += Duration::from_millis(milliseconds),
            PoolEvent::Look => {
                drop(self.shelves.look(self.now));
                let shelves = &self.shelves;
                let can_yield = |shelf: &Shelf<_, _, _>| shelf.cell_memory > 0 && shelf.ready.len() > 1;
                let is_short = shelves.memory.is_some_and(|most| shelves.held_memory() > most);
                assert!(!is_short || !shelves.all.iter().any(can_yield), "cells that do not fit are kept");
            }
            PoolEvent::CellMemory(which, bytes) => {
                if let Some(id) = self.shelves.all.get(which % self.shelves.all.len().max(1)).map(|shelf| shelf.id) {
                    self.shelves.note_cell_memory(id, bytes);
                }
            }
            PoolEvent::AvailableMemory(bytes) => self.shelves.note_available_memory(Some(bytes)),
            PoolEvent::Close => {
                self.shelves.close();
                self.closed = true;
            }
        }
        self.check();
    }

    fn order(&mut self) {
        let ordered = self.shelves.next_orders(|_, _| true);
        // The last one had to fit, unless it is the first of its shelf.
        let last = ordered.last().and_then(|(id, _)| self.shelves.all.iter().find(|shelf| shelf.id == *id));
        if let (Some(shelf), Some(most)) = (last, self.shelves.memory)
            && shelf.cell_memory > 0
            && shelf.ready.len() + shelf.making > 1
        {
            assert!(self.shelves.held_memory() <= most, "more is made than fits");
        }
        self.making.extend(ordered.into_iter().map(|(id, _)| id));
    }

    fn demand(&mut self, which: usize) {
        let order = self.orders[which % self.orders.len()].clone();
        match self.shelves.demand(&order, self.now, |_| Some(())) {
            Demand::Cell(cell) => {
                assert!(!self.closed, "a closed pool hands nothing out");
                assert!(!cell.has_ended(), "a dead cell was handed out");
                self.take(cell);
            }
            Demand::Wait(waiter) => {
                assert!(!self.closed, "runs do not wait for a closed pool");
                self.queues.entry(waiter.shelf.0).or_default().push_back(waiter.number);
                self.runs.push(WaitingRun { waiter, handed: None });
            }
            Demand::Miss => {}
        }
    }

    fn take(&mut self, cell: FakeCell) {
        assert!(self.taken.insert(cell.number, cell).is_none(), "a cell was handed out twice");
    }

    fn finish(&mut self, which: usize, works: bool) {
        let Some(id) = pick(&mut self.making, which) else { return };
        let number = self.made.len() as u64;
        let made = works.then(|| FakeCell::new(number));
        self.made.extend(made.iter().map(|cell| Arc::clone(&cell.ended)));
        let kept = self.shelves.has(id);
        self.shelves.finish(id, made, self.now);
        if works && kept {
            self.expect_handed(id, number);
        } else {
            self.expect_sent_away(id);
        }
    }

    /// The run that has waited longest at a shelf has this cell, if any waits.
    fn expect_handed(&mut self, id: ShelfId, cell: u64) {
        let Some(first) = self.queues.get_mut(&id.0).and_then(VecDeque::pop_front) else { return };
        let run = self.runs.iter_mut().find(|run| run.waiter.number == first).expect("it waits");
        assert_eq!(run.handed.replace(cell), None);
    }

    /// No run waits at this shelf any more, and none that did is left in doubt.
    fn expect_sent_away(&mut self, id: ShelfId) {
        for number in self.queues.remove(&id.0).unwrap_or_default() {
            let index = self.runs.iter().position(|run| run.waiter.number == number).expect("it waits");
            let run = self.runs.remove(index);
            assert_eq!(run.waiter.receiver.try_recv().map(|cell| cell.number), Err(TryRecvError::Disconnected));
        }
    }

    fn receive(&mut self, which: usize) {
        if self.runs.is_empty() {
            return;
        }
        let index = which % self.runs.len();
        match (self.runs[index].waiter.receiver.try_recv(), self.runs[index].handed) {
            (Ok(cell), Some(number)) => {
                assert_eq!(cell.number, number, "cells are handed out in the order in which runs came");
                self.runs.remove(index);
                self.take(cell);
            }
            (Err(TryRecvError::Empty), None) => {}
            (received, expected) => panic!("{received:?} instead of {expected:?}"),
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(run) = pick(&mut self.runs, which) else { return };
        self.forget(run.waiter.number);
        let kept = self.shelves.has(run.waiter.shelf);
        self.shelves.withdraw(&run.waiter);
        if let (Some(cell), true) = (run.handed, kept) {
            self.expect_handed(run.waiter.shelf, cell);
        }
    }

    fn leave(&mut self, which: usize) {
        let Some(run) = pick(&mut self.runs, which) else { return };
        self.forget(run.waiter.number);
        let cell = self.shelves.leave(&run.waiter);
        assert_eq!(cell.as_ref().map(|cell| cell.number), run.handed);
        if let Some(cell) = cell {
            self.take(cell);
        }
    }

    fn forget(&mut self, number: u64) {
        self.queues.values_mut().for_each(|queue| queue.retain(|other| *other != number));
    }

    /// What holds at any time.
    fn check(&mut self) {
        let gone: Vec<_> = self.queues.keys().copied().map(ShelfId).filter(|id| !self.shelves.has(*id)).collect();
        for id in gone {
            self.expect_sent_away(id);
        }
        let (ready, held) = (self.shelves.ready(), self.shelves.held());
        assert!(held <= self.limits.cells, "{held} cells are held");
        assert_eq!(held, ready + self.making.len(), "every cell is accounted for");
        let handed = self.runs.iter().filter(|run| run.handed.is_some()).count();
        let live = self.made.iter().filter(|cell| Arc::strong_count(cell) > 1).count();
        assert_eq!(live, ready + handed + self.taken.len(), "no cell is lost or leaked");
        let warm = self.shelves.all.iter().filter(|shelf| shelf.order.is_warm()).count();
        assert!(warm <= self.limits.zygotes, "{warm} zygotes");
        for shelf in &self.shelves.all {
            assert!(shelf.waiting.is_empty() || shelf.ready.is_empty(), "a run waits although a cell is ready");
            let queue = self.queues.get(&shelf.id.0).cloned().unwrap_or_default();
            let waiting: VecDeque<_> = shelf.waiting.iter().map(|(number, _)| *number).collect();
            assert_eq!(waiting, queue, "runs wait in the order in which they came");
        }
        assert!(!self.closed || ready == 0, "nothing is ready after closing");
    }

    /// Closes the pool, ends what is under way, and finds nothing left.
    fn end(mut self) {
        self.apply(&PoolEvent::Close);
        while !self.making.is_empty() {
            self.apply(&PoolEvent::Made(0));
        }
        assert_eq!(self.shelves.held(), 0);
        self.taken.clear();
        self.runs.clear();
        assert!(self.made.iter().all(|cell| Arc::strong_count(cell) == 1), "a cell outlived the pool");
        self.apply(&PoolEvent::Demand(0));
        self.apply(&PoolEvent::Order);
        assert_eq!((self.shelves.held(), self.runs.len(), self.taken.len()), (0, 0, 0));
    }
}

fn pick<T>(list: &mut Vec<T>, which: usize) -> Option<T> {
    if list.is_empty() { None } else { Some(list.remove(which % list.len())) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn shelves_agree_with_the_model(events in events(), cells in 1..6_usize, zygotes in 0..3_usize) {
        let mut model = PoolModel::new(PoolLimits { cells, zygotes });
        for event in &events {
            model.apply(event);
        }
        model.end();
    }
}
