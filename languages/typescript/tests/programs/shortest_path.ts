// Graph search: a typed binary heap, generic Dijkstra over any node type, path rebuilding.
class Heap<T> {
  private readonly items: T[] = [];

  constructor(private readonly before: (a: T, b: T) => boolean) {}

  get size(): number {
    return this.items.length;
  }

  push(item: T): void {
    let at = this.items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.before(this.items[at], this.items[parent])) break;
      this.swap(at, parent);
      at = parent;
    }
  }

  pop(): T | undefined {
    if (this.items.length === 0) return undefined;
    this.swap(0, this.items.length - 1);
    const top = this.items.pop();
    for (let at = 0; ; ) {
      let least = at;
      for (const child of [2 * at + 1, 2 * at + 2]) {
        if (child < this.items.length && this.before(this.items[child], this.items[least])) least = child;
      }
      if (least === at) return top;
      this.swap(at, least);
      at = least;
    }
  }

  private swap(a: number, b: number): void {
    [this.items[a], this.items[b]] = [this.items[b], this.items[a]];
  }
}

type Neighbours<N> = (node: N) => Iterable<readonly [node: N, cost: number]>;

function shortest<N>(start: N, isGoal: (node: N) => boolean, neighbours: Neighbours<N>): { cost: number; path: N[] } | null {
  type Step = { node: N; cost: number; from: Step | null };
  const heap = new Heap<Step>((a, b) => a.cost < b.cost);
  const settled = new Set<N>();
  heap.push({ node: start, cost: 0, from: null });
  for (let step = heap.pop(); step; step = heap.pop()) {
    if (isGoal(step.node)) {
      const path: N[] = [];
      for (let at: Step | null = step; at; at = at.from) path.unshift(at.node);
      return { cost: step.cost, path };
    }
    if (settled.has(step.node)) continue;
    settled.add(step.node);
    for (const [node, cost] of neighbours(step.node)) heap.push({ node, cost: step.cost + cost, from: step });
  }
  return null;
}

const edges: [number, number, number][] = [[1, 2, 7], [1, 3, 9], [1, 6, 14], [2, 3, 10], [2, 4, 15], [3, 4, 11], [3, 6, 2], [4, 5, 6], [5, 6, 9]];
const graph = new Map<number, [number, number][]>();
for (const [a, b, cost] of edges) {
  graph.set(a, [...(graph.get(a) ?? []), [b, cost]]);
  graph.set(b, [...(graph.get(b) ?? []), [a, cost]]);
}
console.log(JSON.stringify(shortest(1, (node) => node === 5, (node) => graph.get(node) ?? [])));
console.log(shortest(1, (node) => node === 99, (node) => graph.get(node) ?? []));

const maze = ["S.#.....", "..#.###.", "#.#...#.", "#.###.#.", "#.....#E"];
const width = maze[0].length;
const isOpen = (at: number, to: number): boolean => (maze[Math.floor(to / width)]?.[to % width] ?? "#") !== "#" && Math.abs((to % width) - (at % width)) <= 1;
const steps = shortest(0, (at) => maze[Math.floor(at / width)][at % width] === "E", (at) =>
  [at + 1, at - 1, at + width, at - width].filter((to) => to >= 0 && isOpen(at, to)).map((to) => [to, 1] as const));
console.log("maze steps:", steps?.cost);
