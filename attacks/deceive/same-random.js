// tries: predicts what a later run will take for random
// seen-in: zeroboot
// walls: kernel
// differs: yes
console.log(Math.random(), require('crypto').randomBytes(8).toString('hex'), require('crypto').randomUUID());
console.log('attempted');
