// Numeric code: typed arrays, matrix powers, Gaussian elimination, FFT, endianness.
'use strict';

const multiply = (a, b, n) => {
  const c = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < n; k++) {
      for (let j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
  return c;
};

function solve(rows) {
  const n = rows.length;
  const m = rows.map((row) => Float64Array.from(row));
  for (let col = 0; col < n; col++) {
    let pivot = col;
    for (let r = col; r < n; r++) if (Math.abs(m[r][col]) > Math.abs(m[pivot][col])) pivot = r;
    [m[col], m[pivot]] = [m[pivot], m[col]];
    for (let r = 0; r < n; r++) {
      if (r === col) continue;
      const factor = m[r][col] / m[col][col];
      for (let c = col; c <= n; c++) m[r][c] -= factor * m[col][c];
    }
  }
  return m.map((row, i) => Math.round((row[n] / row[i]) * 1e9) / 1e9);
}

// Iterative radix-2 transform, in place on separate real and imaginary parts.
function fft(re, im) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j]] = [re[j], re[i]];
  }
  for (let size = 2; size <= n; size *= 2) {
    for (let start = 0; start < n; start += size) {
      for (let k = 0; k < size / 2; k++) {
        const angle = (-2 * Math.PI * k) / size;
        const [a, b] = [start + k, start + k + size / 2];
        const x = re[b] * Math.cos(angle) - im[b] * Math.sin(angle);
        const y = re[b] * Math.sin(angle) + im[b] * Math.cos(angle);
        [re[b], im[b], re[a], im[a]] = [re[a] - x, im[a] - y, re[a] + x, im[a] + y];
      }
    }
  }
}

let power = Float64Array.of(1, 0, 0, 1);
for (let i = 0; i < 30; i++) power = multiply(power, Float64Array.of(1, 1, 1, 0), 2);
console.log('fib 31, 30, 30, 29:', [...power].join(' '));
console.log('solution:', solve([[2, 1, -1, 8], [-3, -1, 2, -11], [-2, 1, 2, -3]]).join(' '));

const n = 64;
const re = Float64Array.from({ length: n }, (_, t) => Math.sin((2 * Math.PI * 5 * t) / n) + 0.5 * Math.cos((2 * Math.PI * 12 * t) / n));
const im = new Float64Array(n);
fft(re, im);
const peaks = Array.from(re, (x, k) => [k, Math.hypot(x, im[k])]).filter(([k, size]) => k < n / 2 && size > 1);
console.log('peaks:', peaks.map(([k, size]) => `${k}=${size.toFixed(3)}`).join(' '));

const view = new DataView(new ArrayBuffer(8));
view.setUint32(0, 0xcafebabe);
view.setInt16(4, -2, true);
console.log('bytes:', Buffer.from(view.buffer).toString('hex'), view.getUint32(0, true).toString(16));
console.log('wrapped:', Uint8Array.of(256, 257, -1).join(), Uint8ClampedArray.of(300, -5, 1.6).join(), Math.imul(0xffffffff, 5));
