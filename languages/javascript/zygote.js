// Warms Node.js up and becomes a zygote: what follows the call of the library happens in children only, each in a cell
// of its own. It is loaded in the runner's place and under its name. A child is told what it would else have been
// started with, and goes on as though it had been: this module becomes the runner, and Node.js begins with the program.
'use strict';
const fs = require('fs');
const Module = require('module');
const path = require('path');
const vm = require('vm');

const [, first, text, library] = process.argv;
const environment = Object.entries(process.env).filter(([name]) => name !== 'LD_PRELOAD');
const runner = vm.compileFunction(text, ['exports', 'require', 'module', '__filename', '__dirname'], {
  filename: __filename,
});
// What many programs need. Nothing here may start threads, open a standard stream or use random numbers. Packages are
// left to the programs: what those do when they are loaded depends on variables and streams, which are not here yet.
const modules = ['assert', 'async_hooks', 'buffer', 'child_process', 'crypto', 'dns', 'events', 'fs/promises', 'http',
  'https', 'net', 'os', 'perf_hooks', 'readline', 'stream', 'stream/promises', 'string_decoder', 'timers',
  'timers/promises', 'tty', 'url', 'util', 'v8', 'worker_threads', 'zlib'];
for (const name of modules) require(name);
const net = require('net');
const { performance } = require('perf_hooks');
const v8 = require('v8');
const { Socket } = net;
const addon = { exports: {} };
process.dlopen(addon, library);

// The engine compiles what is called, when it is called, and better when it is called often. So what every program
// causes is caused before: a program runs through the runner, and writes to a stream of the kind that programs have.
function rehearse() {
  const file = path.join(__dirname, 'rehearsal.js');
  fs.writeFileSync(file, 'const a = [1, "x", { b: 2 }]; a.map((x) => String(x)); a');
  process.env.RESULT = __dirname;
  runner.call(module.exports, exports, require, module, __filename, __dirname);
  Module.runMain(file);
  for (const made of [file, path.join(__dirname, 'value')]) fs.unlinkSync(made);
  process.removeAllListeners('uncaughtExceptionMonitor');
  delete process.emit;
  delete process.mainModule;
  delete require.cache[file];
  for (const key of Object.keys(Module._pathCache)) if (key.includes(file)) delete Module._pathCache[key];

  const ends = new Int32Array(2);
  addon.exports.pipe(ends);
  const [input, output] = ends;
  const stream = new Socket({ fd: output, readable: false, writable: true });
  // What Node.js adds to a standard stream.
  stream._type = 'pipe';
  stream.fd = output;
  stream._isStdio = true;
  stream.destroySoon = stream.destroy;
  const { _destroy } = stream;
  stream._destroy = function (...words) { return _destroy.apply(this, words); };
  const console = new (require('console').Console)({ stdout: stream, stderr: stream });
  console.log('text', 1, 1.5, true, null, undefined, [1, 'x', { b: 2 }], { a: { b: [] } }, new Map([[1, 2]]));
  console.error('%s %d', 'text', 1, new Error('text'));
  stream.destroy();
  // A standard stream is made when it is first used. Here that fails halfway, so that each child makes its own.
  net.Socket = function () { throw stream; };
  for (const [fd, name] of [[1, '_stdout'], [2, '_stderr']]) {
    const exchanged = Int32Array.of(fd, input);
    addon.exports.exchange(exchanged);
    try {
      globalThis.console[name];
    } catch {
      // As intended. Had it not failed, the self-test would find no output.
    }
    addon.exports.exchange(exchanged);
  }
  net.Socket = Socket;
  fs.closeSync(input);

  setTimeout(() => {}, 1);
  clearTimeout(setTimeout(() => {}, 1));
  process.chdir(process.cwd());
  fs.readlinkSync('/proc/self');
  performance.now();
  process.exitCode;
  // What Node.js itself runs before a program.
  /^/.exec('');
  process._tickCallback();
  // What this leaves in the event loop (a timer that is due, streams to close) is done here, not in every child.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
  addon.exports.turn();
  process._tickCallback();
}
// The engine learns from the first call on, not only from later ones.
v8.setFlagsFromString('--no-lazy-feedback-allocation');
for (let times = 0; times < 20; times++) rehearse();
v8.setFlagsFromString('--lazy-feedback-allocation');
if (fs.existsSync(path.join(path.dirname(library), 'large-pages'))) addon.exports.useLargePages();

const replace = (object, name, make) => {
  const own = Object.getOwnPropertyDescriptor(object, name);
  const key = own.get ? 'get' : 'value';
  const made = make(own[key]);
  for (const what of ['name', 'length']) Object.defineProperty(made, what, { value: own[key][what] });
  Object.defineProperty(object, name, { ...own, [key]: made });
};
// When time began for the program.
let begin = 0;
const prototype = Object.getPrototypeOf(performance);
replace(prototype, 'now', (now) => function () { return now.call(this) - begin; });
replace(prototype, 'timeOrigin', (origin) => function () { return origin.call(this) + begin; });
replace(process, 'uptime', (uptime) => () => uptime() - begin / 1000);
performance.now();

function setVariables(wanted) {
  for (const name of Object.keys(process.env)) if (!wanted.has(name)) delete process.env[name];
  for (const [name, value] of wanted) if (process.env[name] !== value) process.env[name] = value;
}

// Takes over what the program would else have been started with.
function start(words, variables) {
  // It is the runner's, which has it.
  variables.delete('RESULT');
  setVariables(variables);
  const options = words.indexOf(__filename) + 1;
  const program = path.resolve(words[options]);
  process.execArgv.splice(0, Infinity, ...words.slice(1, options));
  process.argv.splice(1, Infinity, program, ...words.slice(options + 1));
  if (program === first) return;
  // Node.js has made up its mind about the program, but asks for the function that runs it.
  const own = Object.getOwnPropertyDescriptor(Module, 'runMain');
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', own);
      return own.value.bind(Module, program);
    },
  });
}

function setId(id) {
  Object.defineProperty(process, 'pid', { value: id });
}

// Most runs have the environment of this process and a program by the usual name, without arguments. All that depends on
// that is done here, the runner's own work too. A child whose run differs does it again.
const heap = process.execArgv.find((word) => word.startsWith('--max-old-space-size='));
const usualWords = [process.execPath, heap, '--require', __filename, path.basename(first)];
const pairs = environment.map((pair) => pair.join('='));
const cwd = process.cwd();
const usual = [cwd, usualWords.length, ...usualWords, pairs.length, ...pairs, ''].join('\0');
const usualId = 3;
process.env.RESULT = new Map(environment).get('RESULT');
runner.call(module.exports, exports, require, module, __filename, __dirname);
setId(usualId);
start(usualWords, new Map(environment));

// What the rehearsal runs, a child of which no run knows: it finds out which pages programs change.
fs.writeFileSync(first, `require('fs').unlinkSync(__filename); console.log('text', [1, 'x'].map(String)); [1, { a: 2 }]`);
const numbers = new Int32Array(new ArrayBuffer(4));
const place = addon.exports.serve();
if (place === undefined) process.reallyExit(0);
numbers[0] = place;
const command = place < 0 ? usual : addon.exports.wait(numbers);
if (command === usual) {
  process.chdir(cwd);
} else {
  const parts = command.split('\0').values();
  const next = () => parts.next().value;
  const list = () => Array.from({ length: Number(next()) }, next);
  process.chdir(next());
  const words = list();
  start(words, new Map(list().map((pair) => {
    const at = pair.indexOf('=');
    return [pair.slice(0, at), pair.slice(at + 1)];
  })));
}
if (place >= 0 && numbers[0] !== usualId) setId(numbers[0]);
begin = performance.now();
