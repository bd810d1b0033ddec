// Text: typed regular expression matches, template literal types, CSV with quotes, Unicode.
type LogLevel = "INFO" | "WARN" | "ERROR";
type Timestamp = `${number}-${number}-${number}`;

interface Entry {
  readonly date: Timestamp;
  readonly level: LogLevel;
  readonly message: string;
}

const LINE = /^(?<date>\d{4}-\d{2}-\d{2}) (?<level>INFO|WARN|ERROR): (?<message>.*)$/;

function parseLine(line: string): Entry | undefined {
  const groups = LINE.exec(line)?.groups;
  return groups && { date: groups.date as Timestamp, level: groups.level as LogLevel, message: groups.message };
}

function parseCsv(source: string): string[][] {
  const rows: string[][] = [[]];
  for (const match of source.matchAll(/("(?:[^"]|"")*"|[^,\n]*)(,|\n|$)/g)) {
    const [whole, field, separator] = match;
    if (whole === "" && rows[rows.length - 1].length === 0) continue;
    rows[rows.length - 1].push(field.startsWith('"') ? field.slice(1, -1).replaceAll('""', '"') : field);
    if (separator === "\n") rows.push([]);
    if (separator === "") break;
  }
  return rows.filter((row) => row.length > 0);
}

function wordCounts(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [word] of text.toLowerCase().matchAll(/[a-z']+/g)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

const log = `2024-02-29 INFO: started
2024-02-29 ERROR: disk full: sda1
garbage
2024-03-01 WARN: slow`;

const entries = log.split("\n").map(parseLine).filter((entry): entry is Entry => entry !== undefined);
const levels: Record<LogLevel, number> = { INFO: 0, WARN: 0, ERROR: 0 };
for (const { level } of entries) levels[level]++;
console.log(JSON.stringify(levels), entries.find((entry) => entry.level === "ERROR")?.message);

for (const row of parseCsv('name,note\nAda,"first, and ""best"""\nBob,\n')) console.log(JSON.stringify(row));

const counts = [...wordCounts("The quick fox. The lazy dog; the end")].sort(([a, m], [b, n]) => n - m || a.localeCompare(b));
console.log(counts.slice(0, 3).map(([word, count]) => `${word}=${count}`).join(" "));

const camelToSnake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const snakeToCamel = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
console.log(camelToSnake("parseHttpHeader"), snakeToCamel("parse_http_header"));

for (const sample of ["na\u00efve", "\u65e5\u672c", "\u{1F389}", "e\u0301"]) {
  console.log(sample.length, [...sample].length, sample.normalize("NFC").length, new TextEncoder().encode(sample).length);
}
const roman = ([[1000, "M"], [900, "CM"], [500, "D"], [400, "CD"], [100, "C"], [90, "XC"], [50, "L"], [40, "XL"], [10, "X"], [9, "IX"], [5, "V"], [4, "IV"], [1, "I"]] as const)
  .reduce(({ left, text }, [value, numeral]) => ({ left: left % value, text: text + numeral.repeat(left / value) }), { left: 1994, text: "" });
console.log(roman.text);
