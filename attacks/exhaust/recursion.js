// tries: recurses until the stack or the heap ends
// seen-in: general
// walls: limits
// limits: memory=128m wall_time=8s
// expect: runtime_error, memory_limit
// alone: yes
const nested = [];
let deep = nested;
const f = (n) => n === 0 ? 0 : 1 + f(n - 1);
try { f(1e7); } catch (error) { console.log(error.name); }
for (let i = 0; i < 3e6; i++) { deep.push([i]); deep = deep[0]; }
console.log(JSON.stringify(nested).length);
process.exit(1);
