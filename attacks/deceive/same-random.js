// tries: predicts the random numbers of a later run
// seen-in: zeroboot
// walls: kernel
// differs: yes
const { randomBytes, randomUUID } = require('crypto');
for (const value of [Math.random(), randomBytes(8).toString('hex'), randomUUID()]) console.log(value);
console.log('attempted');
