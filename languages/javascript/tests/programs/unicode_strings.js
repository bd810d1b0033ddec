// Strings and Unicode: code points, graphemes, normalisation, encoders, tagged templates.
'use strict';

const family = '👨‍👩‍👧';
const segmenter = new Intl.Segmenter('en', { granularity: 'grapheme' });
const graphemes = (text) => [...segmenter.segment(text)].map(({ segment }) => segment);
const reverse = (text) => graphemes(text).reverse().join('');

for (const text of ['naïve', '日本語', '🎉', family]) {
  const bytes = new TextEncoder().encode(text).length;
  console.log(text, text.length, [...text].length, graphemes(text).length, bytes);
}

console.log(reverse(`ab${family}c`) === `c${family}ba`);
console.log('e\u0301'.normalize('NFC').length, 'é'.normalize('NFD').length);
console.log('Crème Brûlée'.normalize('NFD').replace(/\p{M}/gu, ''));
console.log('straße'.toUpperCase(), 'ΑΣ'.toLowerCase(), 'ﬁ'.normalize('NFKC'));
console.log('🎉'.codePointAt(0).toString(16), String.fromCodePoint(0x1f40d), '🎉'.charCodeAt(0).toString(16));
console.log(encodeURIComponent('a b&c=é'), decodeURIComponent('%E2%82%AC'));
console.log(new TextDecoder().decode(Uint8Array.of(0x68, 0x69, 0xff)), new TextDecoder('utf-16le').decode(Uint8Array.of(65, 0)));

const escapeHtml = (text) => text.replace(/[&<>"]/g, (ch) => `&#${ch.charCodeAt(0)};`);
const html = (strings, ...values) => String.raw({ raw: strings }, ...values.map((v) => escapeHtml(String(v))));
console.log(html`<p>${'<b>'} & ${1 + 1}</p>`);

console.log('5'.padStart(3, '0'), 'ab'.repeat(2), 'a-b-c'.replaceAll('-', '+'), 'xyz'.at(-1));
console.log(['b', 'a', 'C', 'ä'].sort(new Intl.Collator('de').compare).join(' '), ['b', 'a', 'C'].sort().join(' '));
console.log(new Intl.NumberFormat('en-US').format(1234567.891), (255).toString(2), parseInt('zz', 36));

const caesar = (text, shift) =>
  text.replace(/[a-z]/gi, (ch) => {
    const base = ch <= 'Z' ? 65 : 97;
    return String.fromCharCode(((ch.charCodeAt(0) - base + shift + 26) % 26) + base);
  });
console.log(caesar('Hello, World!', 13), caesar(caesar('Zebra', 3), -3));
