//! JavaScript in forks of a warm Node.js: every program does what it does when Node.js is started for it.

use std::time::{Duration, Instant};

use sandbox_testing::PATIENCE;
use serde_json::{Value, json};

use super::Server;

/// What a run of this is on a server without zygotes, and on one with them.
struct Pair {
    cold: Server,
    warm: Server,
}

impl Pair {
    fn start() -> Self {
        Self { cold: Server::start_with(&[], &[("SANDBOX_ZYGOTES", "0")]), warm: Server::start(&[]) }
    }

    fn cold(&self, request: &Value) -> Value {
        let (status, answer) = self.cold.post(request);
        assert_eq!(status, 200, "{request}: {answer:#}");
        assert_ne!(answer["metrics"]["start"], "warm");
        answer
    }

    /// Runs it as often as it takes until an interpreter waited for it.
    fn warm(&self, request: &Value) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let (status, answer) = self.warm.post(request);
            assert_eq!(status, 200, "{request}: {answer:#}");
            if answer["metrics"]["start"] == "warm" {
                return answer;
            }
            assert!(Instant::now() < until, "{request}: no warm start: {}", self.warm.get("/health").1["warm_starts"]);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn both(&self, request: &Value) -> (Value, Value) {
        let mut request = request.clone();
        request["language"] = "javascript".into();
        if request["timeout"].is_null() {
            request["timeout"] = 20.into();
        }
        (self.cold(&request), self.warm(&request))
    }

    /// Runs it both ways and compares all that is the program's doing.
    fn compare(&self, request: &Value) -> Value {
        let (cold, warm) = self.both(request);
        for part in ["verdict", "exit_code", "signal", "stdout", "stderr", "result", "error", "files", "isolation"] {
            assert_eq!(cold[part], warm[part], "{part} of {request}");
        }
        warm
    }

    fn compare_all(&self, programs: &[&str]) {
        for program in programs {
            self.compare(&json!({"code": program}));
        }
    }
}

#[test]
fn warm_javascript_is_started_like_cold() {
    let pair = Pair::start();
    pair.compare(&json!({
        "code": "console.log(process.argv, process.execArgv, process.argv0, process.execPath, process.title, \
         process.cwd())",
        "args": ["a", "b c", "é"]
    }));
    pair.compare(&json!({"code": "console.log(process.env)", "env": {"A": "1", "B": "x=y\nz"}}));
    let files = json!({
        "lib/start.js": "console.log(__filename, __dirname, require.main === module, process.argv, require('./x'));\n\
                         console.log(Object.keys(require.cache)); console.log(new Error('e').stack); no()",
        "lib/x.js": "module.exports = 7"
    });
    pair.compare(&json!({"files": files, "entry": "lib/start.js"}));
    pair.compare_all(&[
        "console.log('hello')",
        "console.log(require.main === module, module.id, __filename, module.paths, module.parent, \
         module.children.length)",
        "const o = {a: [1, 2, {b: 3}]}; o",
        "Promise.resolve(12)",
        "#!/usr/bin/env node\n5",
        "Error.stackTraceLimit = 50; console.log(new Error('deep').stack)",
        "console.log(process.eventNames(), Object.getOwnPropertyNames(globalThis).join(), typeof gc)",
        "console.log(Object.getOwnPropertyNames(process).join(), performance.now.name, process.uptime.name)",
        "console.log(process.report.getReport().header.processId === process.pid, process.ppid)",
        "console.log(require('fs').readFileSync('/proc/self/status', \
         'utf8').match(/^([UG]id|Sig...|Cap...|NoNewPrivs):.*$/mg))",
        "console.log(require('child_process').execSync('ulimit -a; umask; env; ls /proc/self/fd').toString())",
        "console.log(process.uptime() < 5, performance.now() < 5000, \
         Math.abs(performance.timeOrigin + performance.now() - Date.now()) < 100)",
        "const m = process.memoryUsage(); console.log(Object.keys(m), m.rss > 1e6, m.heapUsed > 1e5, \
         require('v8').getHeapStatistics().heap_size_limit)",
    ]);
}

#[test]
fn warm_javascript_ends_like_cold() {
    let pair = Pair::start();
    pair.compare_all(&[
        "process.exit(3)",
        "process.exitCode = 5; console.log('x')",
        "function f() { throw new TypeError('boom') }\nf()",
        "let a = ;",
        "console.log(1);\nreturn 2",
        "console.log('once'); JSON.parse('{')",
        "console.log('once'); new.target; throw new Error('after it')",
        "function target() { return new.target }\ntarget()",
        "const target = await 1; console.log(target)",
        "const a = await 1; a + 1",
        "const fs = require('fs');\nawait null;\n[typeof fs, require.main === module, __filename, this]",
        "console.log(this, process.listenerCount('exit'), process.eventNames());\nconst p = await import('path');\np.sep",
        "await null;\nfunction f() { throw new TypeError('late') }\n\nf()",
        "await new Promise(() => {})",
        "process.exitCode = 4; await new Promise(() => {})",
        "setTimeout(() => process.exit(), 5); await new Promise(() => {})",
        "require('nope')",
        "(async () => { await null; throw new RangeError('in async') })(); 1",
        "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 5000)",
        "process.on('SIGUSR2', () => { console.log('got'); process.exit(9) }); process.kill(process.pid, 'SIGUSR2');\n\
         setTimeout(() => {}, 5000); 0",
        "process.abort()",
        "process.on('uncaughtException', (e, o) => console.log('caught', e.message, o));\n\
         setTimeout(() => console.log('after'), 10); throw new Error('e1')",
        "process.on('exit', c => console.log('exit', c)); process.on('beforeExit', () => console.log('before')); 0",
    ]);
    pair.compare(&json!({"code": "for (;;);", "timeout": 1}));
    let (cold, warm) = pair.both(&json!({"code": "const a = []; for (;;) a.push(new Array(1e5).fill(1.5))"}));
    assert_eq!((&cold["verdict"], &warm["verdict"]), (&"memory_limit".into(), &"memory_limit".into()), "{warm:#}");
    let (cold, warm) = pair.both(&json!({"code": "const a = []; for (;;) a.push(Buffer.alloc(1e7, 1))"}));
    assert_eq!((&cold["verdict"], &warm["verdict"]), (&"memory_limit".into(), &"memory_limit".into()), "{warm:#}");
}

/// The runner lets Node.js end before it has taken itself apart. What programs do in the end is not changed by that.
#[test]
fn javascript_ends_as_without_a_runner() {
    let pair = Pair::start();
    let dir = tempfile::tempdir().unwrap();
    for (name, program) in [
        ("main.js", "process.on('exit', c => { console.log(c, process.exitCode); process.exitCode = 7 })"),
        ("main.js", "process.exitCode = 4; process.on('exit', c => console.log(c))"),
        ("main.js", "console.log('once'); JSON.parse('{')"),
        ("main.js", "console.log('once'); new.target; throw new Error('after it')"),
        ("main.js", "console.log('once'); new Function('(')"),
        ("main.js", "console.log('once', process.getActiveResourcesInfo()); return 2"),
        ("main.js", "process.on('exit', () => { throw new Error('at the end') })"),
        ("main.js", "process.on('exit', () => process.exit(6))"),
        ("main.js", "process.on('uncaughtException', () => console.log('caught')).on('exit', () => { throw 1 })"),
        ("main.js", "let n = 2; process.on('beforeExit', () => { if (n--) setTimeout(() => console.log(n), 1) })"),
        ("main.js", "process.once('beforeExit', () => Promise.resolve().then(() => console.log('later')))"),
        ("main.js", "setTimeout(() => console.log('timer'), 5); process.emit('beforeExit'); console.log('on')"),
        // As a package does that many others need.
        (
            "main.js",
            "const { emit, reallyExit } = process; process.emit = function (name, ...rest) {\n\
             const heard = emit.call(this, name, ...rest); if (name === 'exit') console.log('after', rest[0]); return heard };\n\
             process.reallyExit = function (code) { console.error('really', code); return reallyExit.call(this, code) };\n\
             process.on('exit', () => console.log('exit'))",
        ),
        ("main.mjs", "import 'fs'; console.log('before'); await new Promise(() => {})"),
        ("main.mjs", "import 'fs'; process.on('exit', c => console.log(c)); process.exitCode = 3"),
        (
            "main.js",
            "new (require('worker_threads').Worker)('console.log(1); process.exitCode = 2', {eval: true})\n\
                     .on('exit', c => console.log('worker', c))",
        ),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, program).unwrap();
        let bare = std::process::Command::new("node").arg(&file).output().unwrap();
        let request = json!({"files": {name: program}, "entry": name});
        let (cold, warm) = pair.both(&request);
        for answer in [cold, warm] {
            assert_eq!(answer["stdout"], *String::from_utf8_lossy(&bare.stdout), "{program}: {answer:#}");
            assert_eq!(answer["exit_code"], bare.status.code().unwrap(), "{program}: {answer:#}");
        }
    }
}

#[test]
fn warm_javascript_has_streams_files_and_modules() {
    let pair = Pair::start();
    let input = "abcdef".repeat(20_000);
    let read = "let s = ''; process.stdin.on('data', d => s += d).on('end', () => console.log(s.length)); 0";
    pair.compare(&json!({"code": read, "stdin": input}));
    pair.compare(&json!({"code": "console.log(require('fs').readFileSync(0, 'utf8'))", "stdin": "at once"}));
    let lines = "const rl = require('readline').createInterface({input: process.stdin});\n\
                 (async () => { for await (const l of rl) console.log('>', l) })()";
    pair.compare(&json!({"code": lines, "stdin": "a\nb\n"}));
    let files = json!({
        "main.mjs": "import {y} from './y.mjs'; console.log(y, import.meta.url);\n\
                     console.log((await import('./c.cjs')).default); function f() { throw new Error('late') }\nf()",
        "y.mjs": "export const y = 8",
        "c.cjs": "module.exports = {c: 1}"
    });
    pair.compare(&json!({"files": files, "entry": "main.mjs"}));
    let files =
        json!({"package.json": "{\"type\": \"module\"}", "main.js": "import os from 'os'; console.log(typeof os)"});
    pair.compare(&json!({"files": files}));
    pair.compare_all(&[
        "import fs from 'fs'; console.log(typeof fs.readFileSync, import.meta.url); export const x = 1;",
        "const x = await Promise.resolve(4); console.log(x); await new Promise(r => setTimeout(r, 10)); \
         console.log('end')",
        "import('node:os').then(m => console.log(typeof m.cpus))",
        "const fs = require('fs'); fs.promises.writeFile('a.txt', 'hi').then(() => fs.promises.readFile('a.txt', \
         'utf8'))\
         .then(console.log)",
        "for (let i = 0; i < 5000; i++) console.log('line ' + i + 'x'.repeat(40)); \
         process.stderr.write('e'.repeat(70000));\n\
         process.stdout.write('y'.repeat(200000), () => process.exit(2)); 0",
        "setTimeout(() => { for (let i = 0; i < 300; i++) process.stdout.write('z'.repeat(1000)) }, 5);\n\
         process.on('exit', () => console.log('bye')); 0",
    ]);
}

#[test]
fn warm_javascript_has_time_threads_and_processes() {
    let pair = Pair::start();
    let wasm = "const b = new \
     Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,\
                9,1,7,0,32,0,32,1,106,11]); WebAssembly.instantiate(b).then(r => \
                 console.log(r.instance.exports.add(2, 3)))";
    let child = json!({
        "main.js": "const c = require('child_process').fork('./k.js', ['q']);\n\
                    c.on('message', m => { console.log(m); c.send('bye') }).on('exit', c => console.log('exit', c)); 0",
        "k.js": "process.send([process.argv, process.execArgv]); process.on('message', m => process.exit(6))"
    });
    pair.compare(&json!({"files": child}));
    pair.compare_all(&[
        wasm,
        "setTimeout(() => console.log('t2'), 400); setTimeout(() => console.log('t1'), 200); \
         process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('micro')); 0",
        "const a = Date.now(); setTimeout(() => { const d = Date.now() - a; console.log(d >= 299 && d < 5000) }, \
         300); 0",
        "const cp = require('child_process'); cp.exec('exit 4', e => { console.log(e.code); const c = \
         cp.spawn('cat');\n\
         c.stdout.on('data', d => console.log(String(d))); c.stdin.end('piped') }); 0",
        "const {Worker, isMainThread, parentPort} = require('worker_threads');\n\
         if (isMainThread) { const w = new Worker(__filename, {argv: ['z']}); w.on('message', m => console.log(m));\n\
         w.on('exit', c => console.log('exit', c)); w.postMessage(5) } else { parentPort.once('message', m => {\n\
         parentPort.postMessage([m * 2, process.argv.slice(2), process.env.RESULT]); process.exit(7) }) }",
        "const s = new Int32Array(new SharedArrayBuffer(4)); const t = Date.now();\n\
         console.log(Atomics.wait(s, 0, 0, 200), Date.now() - t >= 199)",
        "let a = []; for (let i = 0; i < 60; i++) { a = []; for (let j = 0; j < 20000; j++) a.push({j, s: 'x' + j}) \
         } a.length",
        "let s = 0; for (let i = 0; i < 3e7; i++) s = (s * 31 + i) | 0; s",
        "const c = require('crypto'); c.pbkdf2('a', 'b', 1000, 16, 'sha1', (e, k) => console.log(k.toString('hex')))",
        "const z = require('zlib'); z.gzip('hello'.repeat(1000), (e, b) => z.gunzip(b, (e, r) => \
         console.log(r.length))); 0",
        "fetch('http://127.0.0.1:9/').catch(e => console.log(e.message))",
        "const {port1, port2} = new MessageChannel(); port2.on('message', m => { console.log(m); port2.close() });\n\
         port1.postMessage(new Map([[1, 2]])); 0",
    ]);
}

#[test]
fn warm_javascript_shares_no_randomness_and_no_descriptors() {
    let pair = Pair::start();
    let random = "const {Worker} = require('worker_threads'); const vm = require('vm'); const c = require('crypto');\n\
                  console.log([Math.random(), vm.runInNewContext('Math.random()'), c.randomBytes(8).toString('hex'),\n\
                  c.randomUUID(), crypto.getRandomValues(new Uint32Array(2)).join()].join('\\n'));\n\
                  for (let i = 0; i < 2; i++) new Worker(`console.log(Math.random())`, {eval: true}); 0";
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let answer = pair.warm(&json!({"language": "javascript", "code": random, "timeout": 20}));
        let lines: Vec<String> = answer["stdout"].as_str().unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 7, "{answer:#}");
        for line in lines {
            assert!(seen.insert(line), "{answer:#}");
        }
    }
    // Nothing that the zygote has open is open in two of its children: pipes and events have numbers, which are given
    // again when they are free. So both have to be there at one time.
    let fds = "const fs = require('fs'); const began = Date.now();\n\
               for (const f of fs.readdirSync('/proc/self/fd').filter(f => f > 2)) { try {\n\
               const id = fs.readFileSync('/proc/self/fdinfo/' + f, 'utf8').match(/eventfd-id:\\s*(\\d+)/);\n\
               console.log(fs.readlinkSync('/proc/self/fd/' + f) + (id ? id[1] : '')) } catch {} }\n\
               setTimeout(() => fs.writeFileSync('time', began + ' ' + Date.now()), 2000)";
    let look = || {
        let answer = pair.warm(&json!({"language": "javascript", "code": fds, "timeout": 20}));
        let open: Vec<String> = answer["stdout"].as_str().unwrap().lines().map(str::to_owned).collect();
        for name in &open {
            let own = ["pipe:", "anon_inode:[eventfd]", "anon_inode:[eventpoll]", "/dev/null", "/proc/"];
            assert!(own.iter().any(|own| name.starts_with(own)), "{answer:#}");
        }
        assert!(open.iter().any(|name| name.starts_with("pipe:")), "{answer:#}");
        let time = answer["files"]["time"]["content"].as_str().unwrap();
        let times: Vec<u64> = time.split(' ').map(|time| time.parse().unwrap()).collect();
        (times[0]..times[1], open)
    };
    let both_at_once = (0..10).find_map(|_| {
        let ((one_time, one), (other_time, other)) = std::thread::scope(|scope| {
            let one = scope.spawn(look);
            (look(), one.join().unwrap())
        });
        let overlap = one_time.start < other_time.end && other_time.start < one_time.end;
        overlap.then_some((one, other))
    });
    let (one, other) = both_at_once.expect("two runs at one time");
    let is_numbered = |name: &&String| name.starts_with("pipe:") || name.starts_with("anon_inode:[eventfd]");
    for name in one.iter().filter(is_numbered) {
        assert!(!other.contains(name), "{name}: {other:?}");
    }
    // What Node.js only looks at when it starts.
    let request = json!({"language": "javascript", "code": "1", "env": {"NODE_OPTIONS": "--no-warnings"}});
    for _ in 0..3 {
        assert_ne!(pair.warm.post(&request).1["metrics"]["start"], "warm");
    }
}
