// Numeric code: a generic fixed-size matrix, matrix powers, typed arrays, PCG random numbers, hashing.
interface Ring<T> {
  readonly zero: T;
  readonly one: T;
  add(a: T, b: T): T;
  multiply(a: T, b: T): T;
}

const integers: Ring<bigint> = { zero: 0n, one: 1n, add: (a, b) => a + b, multiply: (a, b) => a * b };
const modulo = (m: number): Ring<number> => ({ zero: 0, one: 1, add: (a, b) => (a + b) % m, multiply: (a, b) => (a * b) % m });
const booleans: Ring<boolean> = { zero: false, one: true, add: (a, b) => a || b, multiply: (a, b) => a && b };

class Matrix<T> {
  constructor(private readonly ring: Ring<T>, readonly rows: readonly (readonly T[])[]) {}

  times(other: Matrix<T>): Matrix<T> {
    const { zero, add, multiply } = this.ring;
    const cell = (row: readonly T[], j: number): T => row.reduce((sum, x, k) => add(sum, multiply(x, other.rows[k][j])), zero);
    return new Matrix(this.ring, this.rows.map((row) => other.rows[0].map((_, j) => cell(row, j))));
  }

  power(exponent: number): Matrix<T> {
    const { zero, one } = this.ring;
    let result = new Matrix(this.ring, this.rows.map((row, i) => row.map((_, j) => (i === j ? one : zero))));
    for (let base: Matrix<T> = this; exponent > 0; exponent = Math.floor(exponent / 2), base = base.times(base)) {
      if (exponent % 2 === 1) result = result.times(base);
    }
    return result;
  }
}

class Pcg32 {
  private state = 0n;
  private readonly increment: bigint;

  constructor(seed: bigint, sequence: bigint) {
    this.increment = (sequence << 1n) | 1n;
    this.next();
    this.state += seed;
    this.next();
  }

  next(): number {
    const old = this.state;
    this.state = BigInt.asUintN(64, old * 6364136223846793005n + this.increment);
    const folded = Number(BigInt.asUintN(32, ((old >> 18n) ^ old) >> 27n));
    const turn = Number(old >> 59n);
    return ((folded >>> turn) | (folded << (-turn & 31))) >>> 0;
  }
}

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}

const hex = (n: number): string => n.toString(16).padStart(8, "0");

console.log("fib(90):", String(new Matrix(integers, [[1n, 1n], [1n, 0n]]).power(90).rows[0][1]));
console.log("fib(10^12) mod 10:", new Matrix(modulo(10), [[1, 1], [1, 0]]).power(1e12).rows[0][1]);
const edges = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]].map((row) => row.map(Boolean));
console.log("reach in 2:", new Matrix(booleans, edges).power(2).rows.map((row) => row.map(Number).join("")).join(" "));
const random = new Pcg32(42n, 54n);
console.log("random:", Array.from({ length: 4 }, () => hex(random.next())).join(" "));
console.log("crc32:", hex(crc32(new TextEncoder().encode("123456789"))));
const floats = new Float32Array([1.5, 0.1]);
console.log("floats:", hex(new Uint32Array(floats.buffer)[0]), floats[1] === 0.1, Math.fround(0.1) === floats[1]);
