// tries: changes a world-writable file of the host
// seen-in: CVE-2024-28189 Judge0
// walls: mount
const fs = require('fs');
const file = process.env.WRITABLE;
for (const attempt of [() => fs.writeFileSync(file, 'changed'), () => fs.chmodSync(file, 0o777), () => fs.linkSync(file, file + '2'),
  () => fs.truncateSync(file), () => fs.renameSync(file, file + '3'), () => fs.unlinkSync(file)]) {
  try { attempt(); } catch { }
}
console.log('attempted');
