// Graph search: Dijkstra with BinaryHeap and Reverse, breadth-first maze search, path rebuilding.
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

const EDGES: [(u32, u32, u32); 9] =
    [(1, 2, 7), (1, 3, 9), (1, 6, 14), (2, 3, 10), (2, 4, 15), (3, 4, 11), (3, 6, 2), (4, 5, 6), (5, 6, 9)];

const MAZE: &str = "\
S.#.....
..#.###.
#.#...#.
#.###.#.
#.....#E";

fn dijkstra(start: u32) -> BTreeMap<u32, (u32, Option<u32>)> {
    let mut settled = BTreeMap::new();
    let mut queue = BinaryHeap::from([Reverse((0, start, None))]);
    while let Some(Reverse((cost, node, via))) = queue.pop() {
        if settled.contains_key(&node) {
            continue;
        }
        settled.insert(node, (cost, via));
        for &(a, b, weight) in &EDGES {
            if a == node {
                queue.push(Reverse((cost + weight, b, Some(node))));
            } else if b == node {
                queue.push(Reverse((cost + weight, a, Some(node))));
            }
        }
    }
    settled
}

fn maze_steps(maze: &str) -> Option<usize> {
    let cells: HashMap<(i32, i32), char> =
        maze.lines().zip(0..).flat_map(|(row, r)| row.chars().zip(0..).map(move |(ch, c)| ((r, c), ch))).collect();
    let start = cells.iter().find(|(_, &ch)| ch == 'S').map(|(&at, _)| at)?;
    let mut steps = HashMap::from([(start, 0)]);
    let mut queue = VecDeque::from([start]);
    while let Some((r, c)) = queue.pop_front() {
        let so_far = steps[&(r, c)];
        if cells[&(r, c)] == 'E' {
            return Some(so_far);
        }
        for next in [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)] {
            let open = cells.get(&next).is_some_and(|&ch| ch != '#');
            if open && !steps.contains_key(&next) {
                steps.insert(next, so_far + 1);
                queue.push_back(next);
            }
        }
    }
    None
}

fn main() {
    let settled = dijkstra(1);
    for (node, (cost, via)) in &settled {
        println!("{node}: {cost:>2} via {via:?}");
    }
    let mut path: Vec<u32> = std::iter::successors(Some(5), |node| settled[node].1).collect();
    path.reverse();
    println!("path to 5: {path:?}");
    println!("maze steps: {:?}", maze_steps(MAZE));
    println!("no way: {:?}", maze_steps("S#E"));
}
