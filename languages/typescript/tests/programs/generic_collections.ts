// Generics: constrained type parameters, iterators, mapped and conditional types, keyof, readonly.
interface Comparable<T> {
  compareTo(other: T): number;
}

class Version implements Comparable<Version> {
  private readonly parts: readonly number[];

  constructor(private readonly text: string) {
    this.parts = text.split(".").map(Number);
  }

  compareTo(other: Version): number {
    const longest = Math.max(this.parts.length, other.parts.length);
    for (let i = 0; i < longest; i++) {
      const difference = (this.parts[i] ?? 0) - (other.parts[i] ?? 0);
      if (difference !== 0) return difference;
    }
    return 0;
  }

  toString(): string {
    return this.text;
  }
}

class SortedList<T extends Comparable<T>> implements Iterable<T> {
  private items: T[] = [];

  add(...items: T[]): this {
    for (const item of items) {
      let at = this.items.findIndex((other) => other.compareTo(item) > 0);
      if (at < 0) at = this.items.length;
      this.items.splice(at, 0, item);
    }
    return this;
  }

  *[Symbol.iterator](): Iterator<T> {
    yield* this.items;
  }
}

function groupBy<T, K extends string | number>(items: Iterable<T>, key: (item: T) => K): Record<K, T[]> {
  const groups = {} as Record<K, T[]>;
  for (const item of items) (groups[key(item)] ??= []).push(item);
  return groups;
}

function pick<T, K extends keyof T>(object: T, ...keys: K[]): Pick<T, K> {
  return Object.fromEntries(keys.map((key) => [key, object[key]])) as Pick<T, K>;
}

function zip<A, B>(a: readonly A[], b: readonly B[]): [A, B][] {
  return a.slice(0, b.length).map((item, i) => [item, b[i]]);
}

type Getters<T> = { [K in keyof T & string as `get${Capitalize<K>}`]: () => T[K] };

function getters<T extends object>(source: T): Getters<T> {
  const entries = Object.entries(source).map(([key, value]) => [`get${key[0].toUpperCase()}${key.slice(1)}`, () => value]);
  return Object.fromEntries(entries) as Getters<T>;
}

type ItemOf<T> = T extends readonly (infer U)[] ? U : never;
const primes = [2, 3, 5, 7] as const;
const prime: ItemOf<typeof primes> = 5;

const versions = new SortedList<Version>().add(...["1.10", "1.9.2", "2.0", "1.9"].map((text) => new Version(text)));
console.log([...versions].join(" < "));
console.log(JSON.stringify(groupBy(["one", "two", "three", "four"], (word) => word.length)));
const user = { name: "Ada", age: 36, admin: true };
console.log(JSON.stringify(pick(user, "name", "admin")));
console.log(getters(user).getName().toUpperCase(), getters(user).getAge() + 1);
console.log(JSON.stringify(zip([1, 2, 3], ["a", "b"])), primes.indexOf(prime));
