//! The shelves: what is ready, how much should be, and when it is a good moment to make more.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use sandbox_cell::Cell;

use super::Order;
use crate::companion::Companion;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) shelves: Vec<Shelf>,
    /// How many runs are under way for which every moment counts.
    pub(super) busy: usize,
    pub(super) closed: bool,
}

#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) order: Order,
    pub(super) ready: Vec<Made>,
    /// How many are being made.
    pub(super) making: usize,
    /// How many it should hold.
    pub(super) target: usize,
    /// The fewest that were left after a run took one, since the last look.
    pub(super) spare: usize,
    /// When the last cell came here, if one did and more can.
    pub(super) came_at: Option<Instant>,
    /// The runs that wait for one, whoever came first in front.
    pub(super) waiting: VecDeque<SyncSender<Made>>,
    pub(super) used: Instant,
    /// Where whoever makes its cells waits until some are wanted.
    pub(super) maker: Arc<Condvar>,
}

/// A cell on a shelf.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) cell: Cell,
    pub(super) companion: Option<Companion>,
}

impl Made {
    fn has_ended(&self) -> bool {
        // A cell that has something to say has come to an end.
        sandbox_base::wait::is_readable(&[&self.cell], Duration::ZERO)
            || self.companion.as_ref().is_some_and(Companion::has_ended)
    }
}

/// How often it is looked whether a shelf holds too many.
pub(super) const LOOK: Duration = Duration::from_secs(10);

/// How long a shelf is kept that nobody uses.
const KEPT: Duration = Duration::from_secs(600);

impl Shelf {
    /// An empty one that should hold so many.
    pub(super) fn new(order: Order, target: usize, maker: Arc<Condvar>) -> Self {
        let (waiting, used) = (VecDeque::new(), Instant::now());
        Self { order, ready: vec![], making: 0, target, spare: usize::MAX, came_at: None, waiting, used, maker }
    }

    /// Gives a cell that was made for it to the first who waits, or puts it here.
    pub(super) fn put(&mut self, mut made: Made) {
        self.came_at = Some(Instant::now());
        while let Some(first) = self.waiting.pop_front() {
            match first.try_send(made) {
                Ok(()) => return,
                // Whoever has given up does not take it.
                Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) => made = refused,
            }
        }
        self.ready.push(made);
    }

    /// No more will come, unless somebody asks for one again. Whoever needs one makes his own, and is told why that
    /// fails.
    pub(super) fn give_up(&mut self) {
        (self.target, self.came_at) = (0, None);
        self.waiting.clear();
    }

    /// Takes a cell off, if there is one that still lives.
    pub(super) fn take(&mut self) -> Option<Cell> {
        self.used = Instant::now();
        let live = loop {
            match self.ready.pop() {
                Some(made) if made.has_ended() => {}
                other => break other,
            }
        };
        self.spare = self.spare.min(self.ready.len());
        live.map(|made| made.cell)
    }

    fn lacks(&self) -> bool {
        self.ready.len() + self.making < self.target
    }

    /// Whether making more can wait until none of the `busy` runs is disturbed by it: it can for the sake
    /// of one, and for more as long as each could come again and find one.
    fn can_wait(&self, busy: usize) -> bool {
        self.waiting.is_empty() && (busy == 1 || (busy > 1 && self.ready.len() >= busy))
    }
}

impl State {
    pub(super) fn find(&self, order: &Order) -> Option<usize> {
        self.shelves.iter().position(|shelf| shelf.order == *order)
    }

    pub(super) fn find_shelf(&self, order: &Order) -> Option<&Shelf> {
        self.find(order).map(|index| &self.shelves[index])
    }

    pub(super) fn held(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.ready.len() + shelf.making).sum()
    }

    fn wants(&self, shelf: &Shelf) -> bool {
        shelf.lacks() && !shelf.can_wait(self.busy)
    }

    /// Of the shelves that lack cells and should not wait, the one that was used last.
    pub(super) fn lacking(&self, mine: impl Fn(&Order) -> bool) -> Option<usize> {
        (0..self.shelves.len())
            .filter(|index| self.wants(&self.shelves[*index]) && mine(&self.shelves[*index].order))
            .max_by_key(|index| self.shelves[*index].used)
    }

    /// Wakes those who have something to make, and nobody else: every one woken takes its moment from a run.
    pub(super) fn wake_makers(&self) {
        self.shelves.iter().filter(|shelf| self.wants(shelf)).for_each(|shelf| shelf.maker.notify_all());
    }

    /// Takes a cell off the shelf that was not used for longest, if that is before `before`.
    pub(super) fn give_up_one(&mut self, before: Instant) -> Option<Made> {
        let shelves = self.shelves.iter_mut().filter(|shelf| !shelf.ready.is_empty() && shelf.used < before);
        let shelf = shelves.min_by_key(|shelf| shelf.used)?;
        shelf.target = shelf.target.saturating_sub(1);
        shelf.ready.pop()
    }

    /// Makes room for a warm shelf of an owner: removes the least recently used one of the owner who has most of them,
    /// unless that was used just now. So no owner can take the place of one who has fewer.
    pub(super) fn give_up_zygote(&mut self, owner: Option<&str>) -> bool {
        let warm: Vec<(usize, Option<&str>)> = (0..self.shelves.len())
            .filter_map(|index| Some((index, self.shelves[index].order.warmth.as_ref()?.owner())))
            .collect();
        let shelves_of =
            |one: Option<&str>| warm.iter().filter(|(_, other)| *other == one).count() + usize::from(one == owner);
        let most = warm.iter().map(|(_, owner)| shelves_of(*owner)).max().unwrap_or_default();
        let oldest = warm
            .iter()
            .filter(|(_, owner)| shelves_of(*owner) == most)
            .map(|(index, _)| *index)
            .min_by_key(|index| self.shelves[*index].used)
            .filter(|index| self.shelves[*index].used.elapsed() > LOOK);
        oldest.map(|index| self.shelves.remove(index)).is_some()
    }

    /// Lowers what was never needed since the last look, and takes away what is too much.
    pub(super) fn look(&mut self) -> Vec<Made> {
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
