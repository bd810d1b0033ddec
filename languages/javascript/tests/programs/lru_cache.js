// Classes: private fields, iterators, inheritance, getters, closures, proxies and symbols.
'use strict';

class LruCache {
  #entries = new Map();
  #capacity;
  static created = 0;

  constructor(capacity) {
    this.#capacity = capacity;
    LruCache.created++;
  }

  get(key) {
    if (!this.#entries.has(key)) return undefined;
    const value = this.#entries.get(key);
    this.#entries.delete(key);
    this.#entries.set(key, value);
    return value;
  }

  set(key, value) {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size > this.#capacity) this.#entries.delete(this.#entries.keys().next().value);
    return this;
  }

  get size() {
    return this.#entries.size;
  }

  *[Symbol.iterator]() {
    yield* this.#entries;
  }
}

class CountingCache extends LruCache {
  hits = 0;

  get(key) {
    const value = super.get(key);
    if (value !== undefined) this.hits++;
    return value;
  }
}

function memoize(fn, cache) {
  return (n) => cache.get(n) ?? cache.set(n, fn(n)).get(n);
}

const cache = new CountingCache(3);
cache.set('a', 1).set('b', 2).set('c', 3);
cache.get('a');
cache.set('d', 4);
console.log('kept:', [...cache].map(([key, value]) => `${key}=${value}`).join(' '));
console.log('size:', cache.size, 'hits:', cache.hits, 'b:', cache.get('b'));

let calls = 0;
const fibonacci = memoize((n) => {
  calls++;
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}, new LruCache(100));
console.log('fib(50):', fibonacci(50), 'in', calls, 'calls');
console.log('caches created:', LruCache.created, cache instanceof LruCache);

const strict = new Proxy({ colour: 'blue' }, {
  get(target, key) {
    if (!(key in target)) throw new ReferenceError(`no property ${String(key)}`);
    return target[key];
  },
});
try {
  console.log(strict.colour, strict.color);
} catch (error) {
  console.log(error.message);
}
