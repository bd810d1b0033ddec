// Simulation with its own generator: PCG32, a shuffled deck, pi by sampling, Game of Life.
use std::collections::{BTreeMap, BTreeSet};

struct Pcg32 {
    state: u64,
    increment: u64,
}

impl Pcg32 {
    fn new(seed: u64, sequence: u64) -> Self {
        let mut pcg = Pcg32 { state: 0, increment: sequence << 1 | 1 };
        pcg.next();
        pcg.state = pcg.state.wrapping_add(seed);
        pcg.next();
        pcg
    }

    fn next(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.increment);
        let folded = (((old >> 18) ^ old) >> 27) as u32;
        folded.rotate_right((old >> 59) as u32)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (u64::from(self.next()) * u64::from(bound) >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        f64::from(self.next()) / 4_294_967_296.0
    }
}

fn shuffle<T>(items: &mut [T], random: &mut Pcg32) {
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i as u32 + 1) as usize);
    }
}

type Cells = BTreeSet<(i32, i32)>;

fn generation(cells: &Cells) -> Cells {
    let mut neighbours = BTreeMap::new();
    for &(x, y) in cells {
        for (dx, dy) in [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)] {
            *neighbours.entry((x + dx, y + dy)).or_insert(0) += 1;
        }
    }
    let alive = |(cell, count): (_, i32)| (count == 3 || count == 2 && cells.contains(&cell)).then_some(cell);
    neighbours.into_iter().filter_map(alive).collect()
}

fn main() {
    let mut random = Pcg32::new(42, 54);
    let first: Vec<String> = (0..6).map(|_| format!("{:08x}", random.next())).collect();
    println!("{}", first.join(" "));

    let mut deck: Vec<u32> = (0..52).collect();
    shuffle(&mut deck, &mut random);
    let moved = deck.iter().zip(0..).filter(|(&card, at)| card != *at).count();
    deck.sort_unstable();
    println!("moved most: {}, complete: {}", moved > 40, deck.into_iter().eq(0..52));

    let inside = (0..100_000).filter(|_| random.unit().hypot(random.unit()) < 1.0).count();
    println!("pi within 0.02: {}", (4.0 * inside as f64 / 100_000.0 - std::f64::consts::PI).abs() < 0.02);

    let mut cells = Cells::from([(1, 0), (2, 0), (0, 1), (1, 1), (1, 2)]);
    for _ in 0..200 {
        cells = generation(&cells);
    }
    println!("r-pentomino after 200: {}", cells.len());
}
