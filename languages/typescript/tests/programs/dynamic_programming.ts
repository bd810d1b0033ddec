// Algorithms: memoisation with a generic helper, edit distance, knapsack, queens, Sudoku.
function memoize<A extends unknown[], R>(compute: (...args: A) => R): (...args: A) => R {
  const known = new Map<string, R>();
  return (...args) => {
    const key = JSON.stringify(args);
    const value = known.get(key) ?? compute(...args);
    known.set(key, value);
    return value;
  };
}

const editDistance = (a: string, b: string): number => {
  const distance = memoize((i: number, j: number): number => {
    if (i === 0 || j === 0) return i + j;
    const substituted = distance(i - 1, j - 1) + Number(a[i - 1] !== b[j - 1]);
    return Math.min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, substituted);
  });
  return distance(a.length, b.length);
};

interface Item {
  readonly name: string;
  readonly weight: number;
  readonly value: number;
}

function knapsack(items: readonly Item[], capacity: number): { value: number; chosen: string[] } {
  const best = Array.from({ length: capacity + 1 }, () => ({ value: 0, chosen: [] as string[] }));
  for (const { name, weight, value } of items) {
    for (let room = capacity; room >= weight; room--) {
      const without = best[room - weight];
      if (without.value + value > best[room].value) best[room] = { value: without.value + value, chosen: [...without.chosen, name] };
    }
  }
  return best[capacity];
}

function waysToPay(coins: readonly number[], total: number): number {
  const ways = new Array<number>(total + 1).fill(0);
  ways[0] = 1;
  for (const coin of coins) for (let sum = coin; sum <= total; sum++) ways[sum] += ways[sum - coin];
  return ways[total];
}

function queens(size: number, placed: readonly number[] = []): number {
  if (placed.length === size) return 1;
  const safe = (column: number): boolean => placed.every((other, row) => other !== column && Math.abs(other - column) !== placed.length - row);
  return [...Array(size).keys()].filter(safe).reduce((count, column) => count + queens(size, [...placed, column]), 0);
}

function solve(grid: string): string | null {
  const at = grid.indexOf(".");
  if (at < 0) return grid;
  const [row, column] = [Math.floor(at / 9), at % 9];
  const used = new Set<string>();
  for (let i = 0; i < 9; i++) {
    const boxed = (row - (row % 3) + Math.floor(i / 3)) * 9 + column - (column % 3) + (i % 3);
    for (const cell of [row * 9 + i, i * 9 + column, boxed]) used.add(grid[cell]);
  }
  for (const digit of "123456789") {
    const solved = used.has(digit) ? null : solve(grid.slice(0, at) + digit + grid.slice(at + 1));
    if (solved) return solved;
  }
  return null;
}

const fibonacci: (n: number) => bigint = memoize((n: number): bigint => (n < 2 ? BigInt(n) : fibonacci(n - 1) + fibonacci(n - 2)));
console.log("fib(90):", String(fibonacci(90)));
console.log("edits:", editDistance("kitten", "sitting"), editDistance("intention", "execution"));
const items: Item[] = [[1, 1], [3, 4], [4, 5], [5, 7]].map(([weight, value], i) => ({ name: "abcd"[i], weight, value }));
console.log("knapsack:", JSON.stringify(knapsack(items, 7)));
console.log("change:", waysToPay([1, 2, 5, 10, 20, 50, 100, 200], 200), "queens:", queens(6), queens(8));
console.log(solve("53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79")?.match(/.{27}/g)?.join("\n"));
