//! The deadlines of cells, in order, so that a wake-up of the keeper costs nothing for cells without one.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// When cells need attention, at most once each.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    of_cells: HashMap<u64, Instant>,
    in_order: BTreeSet<(Instant, u64)>,
}

impl Deadlines {
    /// Sets or removes the deadline of a cell.
    pub(super) fn set(&mut self, cell: u64, deadline: Option<Instant>) {
        let previous = match deadline {
            Some(at) => self.of_cells.insert(cell, at),
            None => self.of_cells.remove(&cell),
        };
        if previous == deadline {
            return;
        }
        if let Some(previous) = previous {
            self.in_order.remove(&(previous, cell));
        }
        if let Some(at) = deadline {
            self.in_order.insert((at, cell));
        }
    }

    pub(super) fn nearest(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// The cells whose deadline has passed, the earliest first.
    pub(super) fn due(&self, now: Instant) -> Vec<u64> {
        self.in_order.range(..=(now, u64::MAX)).map(|(_, cell)| *cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_cell_has_at_most_one_deadline() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.nearest(), None);
        deadlines.set(7, Some(at(3)));
        deadlines.set(1, Some(at(2)));
        deadlines.set(9, Some(at(2)));
        assert_eq!((deadlines.nearest(), deadlines.due(at(1))), (Some(at(2)), vec![]));
        assert_eq!(deadlines.due(at(2)), [1, 9]);
        deadlines.set(1, Some(at(4)));
        deadlines.set(9, None);
        deadlines.set(5, None);
        assert_eq!((deadlines.nearest(), deadlines.due(at(4))), (Some(at(3)), vec![7, 1]));
        deadlines.set(7, None);
        deadlines.set(1, None);
        assert_eq!((deadlines.nearest(), deadlines.due(at(9))), (None, vec![]));
        assert!(deadlines.of_cells.is_empty() && deadlines.in_order.is_empty());
    }
}
