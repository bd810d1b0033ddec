// Files and streams in an ES module: write, read line by line, transform, gzip, clean up.
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';

const folder = await mkdtemp(path.join(tmpdir(), 'lines-'));
const source = path.join(folder, 'temperatures.txt');

const stations = ['Oslo', 'Cairo', 'Lima'];
const readings = Array.from({ length: 300 }, (_, i) => `${stations[i % 3]};${(i % 40) - 10}`);
await writeFile(source, `# station;celsius\n${readings.join('\n')}\n`);
console.log('size:', (await stat(source)).size);

const summary = new Map();
for await (const line of createInterface({ input: createReadStream(source) })) {
  if (line.startsWith('#')) continue;
  const [station, value] = line.split(';');
  const entry = summary.get(station) ?? { count: 0, sum: 0, min: Infinity, max: -Infinity };
  entry.count++;
  entry.sum += Number(value);
  entry.min = Math.min(entry.min, value);
  entry.max = Math.max(entry.max, value);
  summary.set(station, entry);
}
for (const [station, { count, sum, min, max }] of [...summary].sort()) {
  console.log(`${station.padEnd(6)} ${count} ${sum} ${min} ${max}`);
}

const shout = new Transform({
  transform(chunk, _encoding, done) {
    done(null, chunk.toString().toUpperCase());
  },
});
const packed = path.join(folder, 'packed.gz');
const copy = path.join(folder, 'copy.txt');
await pipeline(createReadStream(source), shout, createGzip(), createWriteStream(packed));
await pipeline(createReadStream(packed), createGunzip(), createWriteStream(copy));
console.log('copy:', (await readFile(copy, 'utf8')).split('\n').slice(0, 3));
console.log('smaller:', (await stat(packed)).size < (await stat(copy)).size / 3);
console.log('files:', await readdir(folder));

await rm(folder, { recursive: true });
console.log('gone:', await stat(folder).catch((error) => error.code));
