// Dates in UTC: a branded type, immutable date values, ranges as iterables, ISO weeks, calendars.
type DayNumber = number & { readonly __brand: "DayNumber" };

const DAY = 86_400_000;
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"] as const;
type Weekday = (typeof WEEKDAYS)[number];

class Day {
  private constructor(readonly number: DayNumber) {}

  static of(year: number, month: number, day: number): Day {
    const time = Date.UTC(year, month - 1, day);
    const date = new Date(time);
    if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) throw new RangeError(`no such day: ${year}-${month}-${day}`);
    return new Day((time / DAY) as DayNumber);
  }

  private get date(): Date {
    return new Date(this.number * DAY);
  }

  get weekday(): Weekday {
    return WEEKDAYS[this.date.getUTCDay()];
  }

  get isoWeek(): string {
    const thursday = this.plus(3 - ((this.date.getUTCDay() + 6) % 7));
    const year = thursday.date.getUTCFullYear();
    const week = 1 + Math.floor((thursday.number - Day.of(year, 1, 1).number) / 7);
    return `${year}-W${String(week).padStart(2, "0")}`;
  }

  plus(days: number): Day {
    return new Day((this.number + days) as DayNumber);
  }

  toString(): string {
    return this.date.toISOString().slice(0, 10);
  }
}

class DayRange implements Iterable<Day> {
  constructor(readonly first: Day, readonly last: Day) {}

  get length(): number {
    return this.last.number - this.first.number + 1;
  }

  *[Symbol.iterator](): Generator<Day> {
    for (let day = this.first; day.number <= this.last.number; day = day.plus(1)) yield day;
  }

  count(predicate: (day: Day) => boolean): number {
    let count = 0;
    for (const day of this) if (predicate(day)) count++;
    return count;
  }
}

const century = new DayRange(Day.of(1901, 1, 1), Day.of(2000, 12, 31));
console.log("days:", century.length, "first sundays:", century.count((day) => day.weekday === "Sun" && `${day}`.endsWith("-01")));
const year = new DayRange(Day.of(2026, 1, 1), Day.of(2026, 12, 31));
console.log("friday 13ths:", [...year].filter((day) => day.weekday === "Fri" && `${day}`.endsWith("-13")).join(" "));
const workdays = new DayRange(Day.of(2024, 2, 1), Day.of(2024, 2, 29)).count((day) => !["Sat", "Sun"].includes(day.weekday));
console.log("workdays:", workdays);
console.log("gap:", Day.of(2024, 2, 29).number - Day.of(2000, 1, 1).number, `${Day.of(2024, 2, 28).plus(2)}`);
console.log("weeks:", [Day.of(2021, 1, 3), Day.of(2021, 1, 4), Day.of(2024, 12, 30)].map((day) => day.isoWeek).join(" "));
console.log(new Date(1e12).toISOString(), Date.parse("2024-02-29T23:30:00+05:30"));
try {
  Day.of(2023, 2, 29);
} catch (error) {
  console.log(error instanceof RangeError ? error.message : error);
}
