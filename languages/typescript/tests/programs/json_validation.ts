// Parsing unknown JSON into typed values: composable decoders, inferred types, assertion functions.
type Decoder<T> = (value: unknown, path: string) => T;
type Decoded<D> = D extends Decoder<infer T> ? T : never;

class DecodeError extends Error {}

const primitive =
  <T>(name: string, test: (value: unknown) => value is T): Decoder<T> =>
  (value, path) => {
    if (!test(value)) throw new DecodeError(`${path}: expected ${name}, found ${JSON.stringify(value)}`);
    return value;
  };

const text = primitive("text", (v): v is string => typeof v === "string");
const integer = primitive("integer", (v): v is number => Number.isInteger(v));
const flag = primitive("flag", (v): v is boolean => typeof v === "boolean");

const list =
  <T>(item: Decoder<T>): Decoder<T[]> =>
  (value, path) => {
    if (!Array.isArray(value)) throw new DecodeError(`${path}: expected list`);
    return value.map((element, i) => item(element, `${path}[${i}]`));
  };

const optional =
  <T>(inner: Decoder<T>): Decoder<T | undefined> =>
  (value, path) => (value === undefined ? undefined : inner(value, path));

function object<S extends Record<string, Decoder<unknown>>>(shape: S): Decoder<{ [K in keyof S]: Decoded<S[K]> }> {
  return (value, path) => {
    if (typeof value !== "object" || value === null) throw new DecodeError(`${path}: expected object`);
    const source = value as Record<string, unknown>;
    const entries = Object.entries(shape).map(([key, decode]) => [key, decode(source[key], `${path}.${key}`)]);
    return Object.fromEntries(entries);
  };
}

const order = object({
  id: integer,
  customer: object({ name: text, vip: optional(flag) }),
  lines: list(object({ sku: text, quantity: integer, cents: integer })),
});

type Order = Decoded<typeof order>;

const total = ({ lines }: Order): number => lines.reduce((sum, { quantity, cents }) => sum + quantity * cents, 0);

function assertPositive(value: number): asserts value is number {
  if (value <= 0) throw new RangeError(`${value} is not positive`);
}

const sources: readonly string[] = [
  '{"id": 1, "customer": {"name": "Ada", "vip": true}, "lines": [{"sku": "pen", "quantity": 3, "cents": 120}, {"sku": "ink", "quantity": 1, "cents": 750}]}',
  '{"id": 2, "customer": {"name": "Bob"}, "lines": [{"sku": "pen", "quantity": "3", "cents": 120}]}',
  '{"id": 3.5, "customer": {"name": "Eve"}, "lines": []}',
  '{"id": 4, "customer": {"name": "Sam"}, "lines": []}',
  '{"id": 5',
];

for (const source of sources) {
  try {
    const decoded: Order = order(JSON.parse(source), "order");
    assertPositive(total(decoded));
    console.log(`${decoded.customer.name}${decoded.customer.vip ? "*" : ""} owes ${(total(decoded) / 100).toFixed(2)}`);
  } catch (error) {
    if (error instanceof DecodeError || error instanceof RangeError) console.log(error.message);
    else if (error instanceof SyntaxError) console.log("not JSON");
    else throw error;
  }
}
