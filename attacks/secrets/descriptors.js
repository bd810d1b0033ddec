// tries: reads from every open descriptor of the interpreter
// seen-in: go-judge 0.9.5 to 1.1.4
// walls: keeper
const fs = require('fs');
for (const name of fs.readdirSync('/proc/self/fd')) {
  let target = '';
  try { target = fs.readlinkSync(`/proc/self/fd/${name}`); } catch { continue; }
  console.log(name, target);
  // Node.js itself has pipes, event descriptors and its own files.
  if (target.startsWith('/') && !/^\/(dev\/null|proc\/|usr\/|opt\/|build\/)/.test(target) &&
    !target.startsWith(process.cwd() + '/')) {
    console.log('leads outside', target);
    process.exit(99);
  }
  if (target.startsWith('socket:') && Number(name) < 3) process.exit(99);
}
console.log('attempted');
