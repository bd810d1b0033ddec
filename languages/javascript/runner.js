// Loaded before the program: leaves the value of its last expression and the reason of its failure in $RESULT. A program
// that only a module can be (import, top-level await) runs as it is and has no such value. Where Node.js does not notice
// by itself that it is one, it is started again and told.
'use strict';
const fs = require('fs');
const { Script } = require('vm');
const Module = require('module');

const result = process.env.RESULT;
delete process.env.RESULT;

const AS_MODULES = '--experimental-default-type=module';
const [major, minor] = process.versions.node.split('.').map(Number);
const noticesModules = major > 22 || (major === 22 && minor >= 7) || (major === 20 && minor >= 19);

function leave(name, text) {
  try {
    fs.writeFileSync(`${result}/${name}`, text.slice(0, 65536));
  } catch {
    // Not the fault of the program, which must not notice.
  }
}

// Listing interfaces takes a netlink socket, which no cell has. A program that asks learns of none instead of failing.
const os = require('os');
const { networkInterfaces } = os;
os.networkInterfaces = function () {
  try {
    return networkInterfaces();
  } catch {
    return {};
  }
};
Module.syncBuiltinESMExports();

process.on('uncaughtExceptionMonitor', (error) => {
  const isError = error !== null && typeof error === 'object' && 'message' in error;
  const text = isError ? `${error.name}: ${error.message}` : `Uncaught ${require('util').inspect(error)}`;
  leave('error', text.split('\n')[0]);
});

// At its end Node.js takes its heap apart, which takes longer than many programs do. When nothing is left to be done and
// no listener was called for that, the process ends as it would, but at once, as after process.exit().
const { emit } = process;
Object.defineProperty(process, 'emit', {
  configurable: true,
  writable: true,
  value: function (...words) {
    const heard = emit.apply(this, words);
    const isEnd = words[0] === 'beforeExit' && typeof words[1] === 'number' && !heard && !process._exiting;
    if (isEnd && process.listenerCount('uncaughtException') === 0 && require('worker_threads').isMainThread) {
      process._exiting = true;
      process.emit('exit', process.exitCode || 0);
      process.reallyExit(process.exitCode || 0);
    }
    return heard;
  },
});
for (const what of ['name', 'length']) Object.defineProperty(process.emit, what, { value: emit[what] });

const compile = Module.prototype._compile;
Module.prototype._compile = function (content, filename, ...rest) {
  // Only the first one is the program.
  Module.prototype._compile = compile;
  const source = content.startsWith('#!') ? `//${content.slice(2)}` : content;
  const evaluated = JSON.stringify(`${source}\n//# sourceURL=${filename}`);
  // A program that is not a script is found out when its evaluation fails: then nothing of it has run. Only `new.target`
  // is allowed in an evaluation and not in a script.
  let problem = source.includes('target') ? whyNoScript(source, filename) : undefined;
  let value;
  let hasRun = false;
  attempt: if (!problem) {
    // Not `catch`, which would make this the place where the program's errors come from.
    try {
      value = compile.call(this, `return eval(${evaluated})`, filename, ...rest);
      hasRun = true;
    } finally {
      if (!hasRun) problem = whyNoScript(source, filename);
      if (problem) break attempt;
    }
  }
  if (problem) {
    const isModule = /import statement|import call|'export'|await is only valid|import\.meta/.test(problem.message);
    if (isModule && !noticesModules && !process.execArgv.includes(AS_MODULES)) return startAgain();
    return compile.call(this, content, filename, ...rest);
  }
  const keep = (value) => {
    if (value !== undefined) leave('value', require('util').inspect(value, { depth: 6, maxArrayLength: 1000 }));
  };
  if (value !== null && typeof value === 'object' && typeof value.then === 'function') value.then(keep);
  else keep(value);
  return undefined;
};

function whyNoScript(source, filename) {
  try {
    new Script(source, { filename });
  } catch (error) {
    return error;
  }
  return undefined;
}

function startAgain() {
  const words = [...process.execArgv, AS_MODULES, ...process.argv.slice(1)];
  const env = { ...process.env, RESULT: result };
  const { status, signal } = require('child_process').spawnSync(process.execPath, words, { stdio: 'inherit', env });
  if (signal) process.kill(process.pid, signal);
  process.exit(status);
}
