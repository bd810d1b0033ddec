// Event loop order: synchronous code, nextTick, microtasks, timers, immediates (CommonJS).
'use strict';
const fs = require('node:fs');
const { EventEmitter, once } = require('node:events');

const order = [];
const note = (label) => order.push(label);

function schedule() {
  setTimeout(() => note('timeout'), 0);
  setImmediate(() => note('immediate'));
  Promise.resolve().then(() => note('promise 1')).then(() => note('promise 2'));
  queueMicrotask(() => note('microtask'));
  process.nextTick(() => note('nextTick'));
  (async () => {
    note('async start');
    await null;
    note('async resumed');
  })();
  note('synchronous end');
}

async function emitter() {
  const events = new EventEmitter();
  const log = [];
  events.on('data', (value) => log.push(`first ${value}`));
  events.prependListener('data', (value) => log.push(`before ${value}`));
  events.once('data', (value) => log.push(`only ${value}`));
  setTimeout(() => events.emit('done', 'finished'), 1);
  events.emit('data', 1);
  events.emit('data', 2);
  const [message] = await once(events, 'done');
  console.log(log.join(', '));
  console.log(message, events.listenerCount('data'));
}

// From an I/O callback, immediates always run before timers.
fs.stat('.', () => {
  schedule();
  setTimeout(async () => {
    order.forEach((label, index) => console.log(`${index + 1}. ${label}`));
    await emitter();
  }, 20);
});

process.on('exit', (code) => console.log('exit', code));
