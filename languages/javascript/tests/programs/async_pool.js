// Promises in an ES module: a concurrency limit, combinators, abort signals, top-level await.
import { setTimeout as sleep } from 'node:timers/promises';

async function mapLimited(items, limit, task) {
  const results = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await task(items[index], index);
    }
  };
  await Promise.all(Array.from({ length: limit }, worker));
  return results;
}

let running = 0;
let peak = 0;
const squares = await mapLimited([5, 3, 8, 1, 9, 2], 2, async (n) => {
  peak = Math.max(peak, ++running);
  await sleep(n);
  running--;
  return n * n;
});
console.log('squares:', squares.join(' '));
console.log('peak:', peak, 'still running:', running);

const settled = await Promise.allSettled([
  Promise.resolve(1),
  Promise.reject(new RangeError('too far')),
  sleep(1, 'slept'),
]);
console.log(settled.map((s) => s.value ?? `${s.reason.name}: ${s.reason.message}`));

console.log('race:', await Promise.race([sleep(50, 'slow'), sleep(1, 'fast')]));
console.log('any:', await Promise.any([Promise.reject(new Error('no')), sleep(2, 'yes')]));
try {
  await Promise.any([Promise.reject(new Error('a')), Promise.reject(new Error('b'))]);
} catch (error) {
  console.log(error.constructor.name, error.errors.map((e) => e.message));
}

const controller = new AbortController();
const pending = sleep(60_000, 'never', { signal: controller.signal });
controller.abort();
console.log('aborted:', await pending.catch((error) => error.name));

async function* countdown(from) {
  for (let n = from; n > 0; n--) {
    await sleep(1);
    yield n;
  }
}
const seen = [];
for await (const n of countdown(3)) seen.push(n);
console.log('countdown:', seen);
