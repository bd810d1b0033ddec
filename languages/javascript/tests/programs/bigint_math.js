// BigInt arithmetic: factorials, Fibonacci, modular powers, primality, base conversion.
'use strict';

const factorial = (n) => (n <= 1n ? 1n : n * factorial(n - 1n));

function fibonacci(n) {
  let [a, b] = [0n, 1n];
  for (let i = 0; i < n; i++) [a, b] = [b, a + b];
  return a;
}

function powMod(base, exponent, modulus) {
  let result = 1n;
  for (base %= modulus; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}

// The Lucas-Lehmer test for the Mersenne number 2^p - 1.
function isMersennePrime(p) {
  if (p === 2) return true;
  const m = (1n << BigInt(p)) - 1n;
  let s = 4n;
  for (let i = 0; i < p - 2; i++) s = (s * s - 2n) % m;
  return s === 0n;
}

function sqrt(n) {
  let x = 1n << BigInt(n.toString(2).length / 2 + 1 | 0);
  for (;;) {
    const y = (x + n / x) >> 1n;
    if (y >= x) return x;
    x = y;
  }
}

const digitSum = (n) => [...n.toString()].reduce((sum, digit) => sum + Number(digit), 0);
const odd = Array.from({ length: 65 }, (_, i) => 2 * i + 1).filter((p) => p > 1);

console.log('digit sum of 100!:', digitSum(factorial(100n)));
console.log('digit sum of 2^1000:', digitSum(2n ** 1000n));
console.log('fib(90):', fibonacci(90));
console.log('RSA:', powMod(65n, 17n, 3233n), powMod(2790n, 2753n, 3233n));
console.log('Mersenne exponents:', [2, ...odd.filter(isMersennePrime)].join(' '));
console.log('sqrt(2e40):', sqrt(2n * 10n ** 40n).toString());
console.log('hex:', (2n ** 64n - 1n).toString(16), BigInt('0xff') + 1n);
console.log('wrapped:', BigInt.asIntN(64, 2n ** 63n), BigInt.asUintN(8, -1n));
console.log('mixed:', 2n > 1, 2n == 2, typeof 1n, -7n / 2n, -7n % 2n);
try {
  console.log(1n + 1);
} catch (error) {
  console.log(error.name);
}
