// Simulation: Conway's Game of Life on an unbounded grid, Langton's ant, a seeded generator.
'use strict';

function step(cells) {
  const neighbours = new Map();
  for (const cell of cells) {
    const [x, y] = cell.split(',').map(Number);
    for (let dx = -1; dx <= 1; dx++) {
      for (let dy = -1; dy <= 1; dy++) {
        if (dx || dy) {
          const key = `${x + dx},${y + dy}`;
          neighbours.set(key, (neighbours.get(key) ?? 0) + 1);
        }
      }
    }
  }
  const next = new Set();
  for (const [cell, count] of neighbours) {
    if (count === 3 || (count === 2 && cells.has(cell))) next.add(cell);
  }
  return next;
}

function parse(...rows) {
  const cells = new Set();
  rows.forEach((row, y) => [...row].forEach((ch, x) => ch === '#' && cells.add(`${x},${y}`)));
  return cells;
}

const run = (cells, steps) => (steps === 0 ? cells : run(step(cells), steps - 1));
const show = (cells) => [...cells].sort().join(' ');

function langtonsAnt(steps) {
  const black = new Set();
  let [x, y, dx, dy] = [0, 0, 0, -1];
  for (let i = 0; i < steps; i++) {
    const key = x * 1000 + y;
    if (black.delete(key)) [dx, dy] = [dy, -dx];
    else {
      black.add(key);
      [dx, dy] = [-dy, dx];
    }
    x += dx;
    y += dy;
  }
  return black.size;
}

function* splitMix64(seed) {
  const mask = (n) => BigInt.asUintN(64, n);
  for (;;) {
    seed = mask(seed + 0x9e3779b97f4a7c15n);
    let z = seed;
    z = mask((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = mask((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    yield z ^ (z >> 31n);
  }
}

console.log('glider:', show(run(parse('.#.', '..#', '###'), 4)));
console.log('blinker:', show(run(parse('###'), 1)), '|', show(run(parse('###'), 2)));
console.log('r-pentomino after 200:', run(parse('.##', '##.', '.#.'), 200).size);
console.log('ant after 11000:', langtonsAnt(11000));
const random = splitMix64(1234567n);
console.log('random:', random.next().value, random.next().value);
