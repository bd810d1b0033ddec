// Dates in UTC: epoch arithmetic, ISO weeks, month ends, calendars, durations.
'use strict';

const DAY = 86_400_000;
const utc = (year, month, day) => new Date(Date.UTC(year, month - 1, day));
const iso = (date) => date.toISOString().slice(0, 10);

function addMonths(date, months) {
  const result = new Date(date);
  result.setUTCDate(1);
  result.setUTCMonth(result.getUTCMonth() + months);
  const last = new Date(Date.UTC(result.getUTCFullYear(), result.getUTCMonth() + 1, 0)).getUTCDate();
  result.setUTCDate(Math.min(date.getUTCDate(), last));
  return result;
}

function isoWeek(date) {
  const thursday = new Date(date.getTime() + (3 - ((date.getUTCDay() + 6) % 7)) * DAY);
  const year = thursday.getUTCFullYear();
  return `${year}-W${String(1 + Math.floor((thursday - utc(year, 1, 1)) / (7 * DAY))).padStart(2, '0')}`;
}

function duration(milliseconds) {
  const units = [['d', DAY], ['h', 3_600_000], ['m', 60_000], ['s', 1000]];
  const parts = [];
  for (const [unit, size] of units) {
    const count = Math.floor(milliseconds / size);
    milliseconds %= size;
    if (count) parts.push(count + unit);
  }
  return parts.join(' ') || '0s';
}

function calendar(year, month) {
  const first = (utc(year, month, 1).getUTCDay() + 6) % 7;
  const days = new Date(Date.UTC(year, month, 0)).getUTCDate();
  const cells = [...Array(first).fill('  '), ...Array.from({ length: days }, (_, i) => String(i + 1).padStart(2))];
  const weeks = [];
  while (cells.length) weeks.push(cells.splice(0, 7).join(' '));
  return ['Mo Tu We Th Fr Sa Su', ...weeks].join('\n');
}

console.log(new Date(1e12).toISOString(), new Date(2 ** 31 * 1000).toJSON());
console.log('days:', (utc(2024, 2, 29) - utc(2000, 1, 1)) / DAY);
console.log('months:', [1, 13, -1].map((n) => iso(addMonths(utc(2024, 1, 31), n))).join(' '));
console.log('weeks:', [utc(2021, 1, 3), utc(2021, 1, 4), utc(2024, 12, 30)].map(isoWeek).join(' '));
console.log('parsed:', Date.parse('2024-02-29T23:30:00+05:30'), new Date('nonsense').getTime());
console.log('durations:', [0, 59_000, 3_661_000, 1e9].map(duration).join(', '));
const weekday = new Intl.DateTimeFormat('en', { weekday: 'long', timeZone: 'UTC' });
console.log('weekday:', weekday.format(utc(2024, 2, 29)));
console.log(calendar(2024, 2));
