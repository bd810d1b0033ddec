// BigInt and number theory: factorials, modular powers, primality, exact rational arithmetic.
class Rational {
  readonly numerator: bigint;
  readonly denominator: bigint;

  constructor(numerator: bigint, denominator = 1n) {
    if (denominator === 0n) throw new RangeError("zero denominator");
    const divisor = gcd(numerator, denominator) * (denominator < 0n ? -1n : 1n);
    this.numerator = numerator / divisor;
    this.denominator = denominator / divisor;
  }

  add(other: Rational): Rational {
    return new Rational(this.numerator * other.denominator + other.numerator * this.denominator, this.denominator * other.denominator);
  }

  multiply(other: Rational): Rational {
    return new Rational(this.numerator * other.numerator, this.denominator * other.denominator);
  }

  toString(): string {
    return this.denominator === 1n ? `${this.numerator}` : `${this.numerator}/${this.denominator}`;
  }
}

function gcd(a: bigint, b: bigint): bigint {
  while (b !== 0n) [a, b] = [b, a % b];
  return a < 0n ? -a : a;
}

function powMod(base: bigint, exponent: bigint, modulus: bigint): bigint {
  let result = 1n;
  for (base %= modulus; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}

function isProbablePrime(n: bigint): boolean {
  const bases = [2n, 3n, 5n, 7n, 11n, 13n, 17n, 19n, 23n, 29n, 31n, 37n];
  if (n < 2n || bases.some((p) => n % p === 0n)) return bases.includes(n);
  let d = n - 1n;
  let twos = 0;
  for (; d % 2n === 0n; twos++) d /= 2n;
  return bases.every((base) => {
    let x = powMod(base, d, n);
    if (x === 1n) return true;
    for (let i = 0; i < twos; i++, x = (x * x) % n) if (x === n - 1n) return true;
    return false;
  });
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const product = (numbers: readonly number[]): bigint => numbers.reduce((all, n) => all * BigInt(n), 1n);
const digitSum = (n: bigint): number => [...`${n}`].reduce((sum, digit) => sum + Number(digit), 0);

console.log("digit sums:", digitSum(product(range(1, 100))), digitSum(2n ** 1000n));
console.log("choose:", `${product(range(51, 100)) / product(range(1, 50))}`);
console.log("RSA:", `${powMod(65n, 17n, 3233n)} ${powMod(2790n, 2753n, 3233n)}`);
console.log("prime exponents:", range(2, 130).filter((p) => isProbablePrime((1n << BigInt(p)) - 1n)).join(" "));
console.log("primes below 10000:", range(1, 9999).filter((n) => isProbablePrime(BigInt(n))).length);
const harmonic = range(1, 10).reduce((sum, n) => sum.add(new Rational(1n, BigInt(n))), new Rational(0n));
console.log("H(10):", harmonic.toString(), harmonic.multiply(new Rational(-2520n, 7381n)).toString());
try {
  new Rational(1n, 0n);
} catch (error) {
  console.log((error as Error).message);
}
