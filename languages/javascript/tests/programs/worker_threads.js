// Worker threads: prime counting in parts, a shared counter with Atomics, message passing (CommonJS).
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

function countPrimes(from, to) {
  let count = 0;
  for (let n = Math.max(from, 2); n < to; n++) {
    let prime = true;
    for (let d = 2; d * d <= n && prime; d++) prime = n % d !== 0;
    if (prime) count++;
  }
  return count;
}

function runWorker(data) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: data });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

async function main() {
  const shared = new Int32Array(new SharedArrayBuffer(8));
  const parts = [[0, 5000], [5000, 10000]];
  const counts = await Promise.all(parts.map(([from, to]) => runWorker({ from, to, shared })));
  console.log('counts:', counts);
  console.log('primes below 10000:', counts.reduce((a, b) => a + b));
  console.log('increments:', Atomics.load(shared, 0));

  const failure = await runWorker({ fail: true }).catch((error) => error);
  console.log(`worker failed: ${failure.name}: ${failure.message}`);
}

function work({ from, to, shared, fail }) {
  if (fail) throw new TypeError('asked to fail');
  for (let i = 0; i < 10000; i++) Atomics.add(shared, 0, 1);
  parentPort.postMessage(countPrimes(from, to));
}

if (isMainThread) main();
else work(workerData);
