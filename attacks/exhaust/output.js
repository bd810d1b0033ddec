// tries: floods both output streams
// seen-in: Piston issue 629
// walls: limits
// limits: output=64k wall_time=5s
// expect: output_limit
// alone: yes
const fs = require('fs');
const block = Buffer.alloc(65536, 'x');
for (let i = 0; i < 3000; i++) { try { fs.writeSync(1, block); fs.writeSync(2, block); } catch { } }
