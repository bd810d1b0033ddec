// Loaded before the program: leaves the value of its last expression and the reason of its failure in $RESULT. A program
// that awaits at its top level runs as the body of an async function. One that only a module can be (import, export) runs
// as it is and has no such value. Where Node.js does not notice by itself that it is one, it is started again and told.
'use strict';
const fs = require('fs');
const { Script, constants } = require('vm');
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
// The file of a program that awaits something at its top level.
let pending;
Object.defineProperty(process, 'emit', {
  configurable: true,
  writable: true,
  value: function (...words) {
    const heard = emit.apply(this, words);
    const isEnd = words[0] === 'beforeExit' && typeof words[1] === 'number' && !heard && !process._exiting;
    if (isEnd && pending) {
      fs.writeSync(2, `Warning: Detected unsettled top-level await at ${pending}\n`);
      process.exitCode ??= 13;
    }
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
  const keep = (value) => {
    if (value !== undefined) leave('value', require('util').inspect(value, { depth: 6, maxArrayLength: 1000 }));
  };
  const take = (value) => {
    if (value !== null && typeof value === 'object' && typeof value.then === 'function') value.then(keep);
    else keep(value);
  };
  const body = problem && /\bawait\b/.test(source) ? asBody(source, filename) : undefined;
  if (body) {
    const own = compile.call(this, 'return [require, __filename, __dirname]', filename, ...rest);
    const [require, ...names] = own;
    const self = COMMON.test(source) ? this.exports : undefined;
    pending = filename;
    body.call(self, this.exports, require, this, ...names, take).then(() => { pending = undefined; });
    return undefined;
  }
  if (problem) {
    const isModule = /import statement|import call|'export'|await is only valid|import\.meta/.test(problem.message);
    if (isModule && !noticesModules && !process.execArgv.includes(AS_MODULES)) return startAgain();
    return compile.call(this, content, filename, ...rest);
  }
  take(value);
  return undefined;
};

function parses(text) {
  try {
    new Script(text);
  } catch {
    return false;
  }
  return true;
}

// What only CommonJS has.
const COMMON = /\b(?:require|module|exports|__filename|__dirname)\b/;

// The program as a function that may await, if it can be one. It is strict, as a module is, unless it is CommonJS.
function asBody(source, filename) {
  let take = '$take';
  while (source.includes(take)) take += '$';
  const strict = COMMON.test(source) ? '' : "'use strict';";
  // On a line of its own, so that the program keeps its lines.
  const head = `(async function (exports, require, module, __filename, __dirname, ${take}) {${strict}`;
  const body = (text) => `${head}${text}\n})`;
  const text = `\n${source}`;
  if (!constants || !parses(body(text))) return undefined;
  const importModuleDynamically = constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  if (source.includes('import')) {
    // The first import warns that this is new, which is not the program's concern.
    const { emitWarning } = process;
    process.emitWarning = () => {};
    new Script("import('fs')", { importModuleDynamically }).runInThisContext();
    process.emitWarning = emitWarning;
  }
  const script = new Script(body(withValue(text, take, body)), { filename, lineOffset: -1, importModuleDynamically });
  return script.runInThisContext();
}

const DECLARATION = /^(?:function|class|async\s+function|let|const|var|if|for|while|do|switch|try|throw|return)\b|^[{@]/;
const CONTINUATION = /^[([`+\-*/.,<>=&|^%?:]|^(?:in|instanceof)\b/;

// The same, with the value of the last expression given to a function, if it is clear where that expression begins.
function withValue(source, take, body) {
  let text = source;
  for (let length, tries = 0; length !== text.length && tries < 20; tries++) {
    length = text.length;
    text = text.trimEnd().replace(/;$/, '');
    const comment = text.indexOf('//', text.lastIndexOf('\n') + 1);
    if (comment !== -1 && parses(body(text.slice(0, comment)))) text = text.slice(0, comment);
  }
  // Comments, such as the one with a source map.
  const rest = source.slice(text.length).replace(/^[\s;]+/, '');
  // Each place where a statement may begin, the last one first.
  for (let at = text.length, tries = 0; at > 0 && tries < 100; at--, tries++) {
    at = Math.max(text.lastIndexOf('\n', at - 1), text.lastIndexOf(';', at - 1)) + 1;
    const before = text.slice(0, at);
    const last = text.slice(at);
    const begin = last.replace(/^(?:\s+|\/\/.*\n|\/\*[^]*?\*\/)+/, '');
    if (!begin || DECLARATION.test(begin)) continue;
    // A line that may go on is a statement only after a semicolon.
    const line = before.trimEnd();
    const ends = !line || (line.endsWith(';') && !line.slice(line.lastIndexOf('\n') + 1).includes('//'));
    if (CONTINUATION.test(begin) && !ends) continue;
    if (!parses(`(async () => (\n${last}\n))`) || !parses(body(before))) continue;
    // In the line before, so that the expression keeps its place in its own.
    const places = before.endsWith('\n') ? [`${before.slice(0, -1)};${take}(\n`, `${before};${take}(`] : [`${before}${take}(`];
    const found = places.map((place) => `${place}${last}\n)\n${rest}`).find((made) => parses(body(made)));
    if (found) return found;
  }
  return source;
}

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
