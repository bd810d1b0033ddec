// JSON: parsing with a reviver, grouping, reshaping, stringifying with replacers and toJSON.
'use strict';

const text = `{
  "team": "compilers",
  "people": [
    {"name": "Grace", "born": "1906-12-09", "skills": ["cobol", "maths"]},
    {"name": "Frances", "born": "1932-08-04", "skills": ["fortran", "maths"]},
    {"name": "Niklaus", "born": "1934-02-15", "skills": ["pascal"]}
  ],
  "budget": {"2023": 120.5, "2024": 99}
}`;

const isDate = /^\d{4}-\d\d-\d\d$/;
const data = JSON.parse(text, (_key, value) =>
  typeof value === 'string' && isDate.test(value) ? new Date(value) : value);

const bySkill = {};
for (const { name, skills } of data.people) {
  for (const skill of skills) (bySkill[skill] ??= []).push(name);
}
console.log(JSON.stringify(bySkill));

const thirties = data.people.filter(({ born }) => Math.trunc(born.getUTCFullYear() / 10) === 193);
console.log('thirties:', thirties.map((p) => p.name).join(', '));

const { budget, ...rest } = data;
console.log('keys:', Object.keys(rest), 'spent:', Object.values(budget).reduce((a, b) => a + b));

class Money {
  constructor(cents) {
    this.cents = cents;
  }

  toJSON() {
    return `${Math.trunc(this.cents / 100)}.${String(this.cents % 100).padStart(2, '0')}`;
  }
}
console.log(JSON.stringify({ price: new Money(1205), skip: undefined, fn() {}, nan: NaN, list: [undefined] }));
console.log(JSON.stringify({ a: 1, secret: 'x', b: { secret: 'y', c: [1, { d: 2 }] } },
  (key, value) => (key === 'secret' ? undefined : value), 2));

const copy = structuredClone({ when: new Date(0), set: new Set([1, 2]), deep: { map: new Map([['k', 'v']]) } });
console.log(copy.when.toISOString(), [...copy.set], copy.deep.map.get('k'));
try {
  JSON.parse('{"a": 1,}');
} catch (error) {
  console.log(error.name);
}
const loop = {};
loop.self = loop;
try {
  JSON.stringify(loop);
} catch (error) {
  console.log(error.message.split('\n')[0]);
}
