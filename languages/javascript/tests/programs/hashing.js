// Hashing and encoding: node:crypto against published vectors, CRC-32 by hand, buffers (CommonJS).
'use strict';
const crypto = require('node:crypto');
const assert = require('node:assert/strict');

const FOX = 'The quick brown fox jumps over the lazy dog';

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

function crc32(text) {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ byte) & 0xff];
  return (crc ^ 0xffffffff) >>> 0;
}

function fnv1a(text) {
  let hash = 0xcbf29ce484222325n;
  for (const byte of Buffer.from(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, '0');
}

const digest = (algorithm, text) => crypto.createHash(algorithm).update(text).digest('hex');

console.log('crc32 ', crc32('123456789').toString(16), crc32(FOX).toString(16));
console.log('fnv1a ', fnv1a(''), fnv1a('foobar'));
console.log('md5   ', digest('md5', 'abc'));
console.log('sha1  ', digest('sha1', FOX));
console.log('sha256', digest('sha256', 'abc'));
console.log('hmac  ', crypto.createHmac('sha256', 'key').update(FOX).digest('hex'));

for (const text of ['f', 'fo', 'foo', 'foobar']) {
  const encoded = Buffer.from(text).toString('base64');
  assert.equal(Buffer.from(encoded, 'base64').toString(), text);
  console.log(text.padEnd(6), encoded, Buffer.from(text).toString('hex'));
}

const key = Buffer.alloc(32, 7);
const iv = Buffer.alloc(12, 1);
const cipher = crypto.createCipheriv('aes-256-gcm', key, iv);
const sealed = Buffer.concat([cipher.update(FOX), cipher.final()]);
const decipher = crypto.createDecipheriv('aes-256-gcm', key, iv).setAuthTag(cipher.getAuthTag());
console.log('opened:', Buffer.concat([decipher.update(sealed), decipher.final()]).toString() === FOX);
console.log('random:', crypto.randomBytes(16).length, crypto.randomUUID().length);

const view = Buffer.alloc(8);
view.writeDoubleBE(1.5);
console.log('double:', view.toString('hex'), view.readDoubleBE());
