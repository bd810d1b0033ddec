// Graph algorithms: a binary heap, Dijkstra, union-find spanning tree.
'use strict';

class Heap {
  #items = [];
  #before;

  constructor(before) {
    this.#before = before;
  }

  get size() {
    return this.#items.length;
  }

  push(item) {
    const items = this.#items;
    let at = items.push(item) - 1;
    for (let up = (at - 1) >> 1; at > 0 && this.#before(items[at], items[up]); at = up, up = (at - 1) >> 1) {
      [items[at], items[up]] = [items[up], items[at]];
    }
  }

  pop() {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    if (items.length) {
      items[0] = last;
      for (let at = 0; ; ) {
        let least = at;
        for (const child of [2 * at + 1, 2 * at + 2]) {
          if (child < items.length && this.#before(items[child], items[least])) least = child;
        }
        if (least === at) break;
        [items[at], items[least]] = [items[least], items[at]];
        at = least;
      }
    }
    return top;
  }
}

const EDGES = [[1, 2, 7], [1, 3, 9], [1, 6, 14], [2, 3, 10], [2, 4, 15], [3, 4, 11], [3, 6, 2], [4, 5, 6], [5, 6, 9]];

function dijkstra(edges, start) {
  const distance = new Map();
  const heap = new Heap((a, b) => a.cost < b.cost);
  heap.push({ node: start, cost: 0 });
  while (heap.size) {
    const { node, cost } = heap.pop();
    if (distance.has(node)) continue;
    distance.set(node, cost);
    for (const [a, b, weight] of edges) {
      if (a === node || b === node) heap.push({ node: a === node ? b : a, cost: cost + weight });
    }
  }
  return distance;
}

function spanningTree(edges) {
  const parent = new Map();
  const find = (x) => (parent.has(x) ? find(parent.get(x)) : x);
  return [...edges].sort((a, b) => a[2] - b[2]).filter(([a, b]) => {
    const [rootA, rootB] = [find(a), find(b)];
    if (rootA !== rootB) parent.set(rootA, rootB);
    return rootA !== rootB;
  });
}

const heap = new Heap((a, b) => a < b);
[5, 3, 8, 1, 9, 2, 7].forEach((n) => heap.push(n));
console.log('sorted:', Array.from({ length: 7 }, () => heap.pop()).join(' '));
console.log('distances:', [...dijkstra(EDGES, 1)].sort(([a], [b]) => a - b).map(([n, d]) => `${n}:${d}`).join(' '));
const tree = spanningTree(EDGES);
console.log('tree:', tree.map(([a, b]) => `${a}-${b}`).join(' '), 'weight', tree.reduce((sum, e) => sum + e[2], 0));
