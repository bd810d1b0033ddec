// Discriminated unions: an expression tree with exhaustive switches, type guards, a Result type.
type Expr =
  | { kind: "number"; value: number }
  | { kind: "variable"; name: string }
  | { kind: "negate"; operand: Expr }
  | { kind: "binary"; operator: Operator; left: Expr; right: Expr };

type Operator = "+" | "-" | "*" | "/";

type Result<T, E = string> = { ok: true; value: T } | { ok: false; error: E };

const ok = <T>(value: T): Result<T, never> => ({ ok: true, value });
const fail = <E>(error: E): Result<never, E> => ({ ok: false, error });

function unreachable(value: never): never {
  throw new Error(`unexpected ${JSON.stringify(value)}`);
}

const OPERATIONS: Record<Operator, (a: number, b: number) => Result<number>> = {
  "+": (a, b) => ok(a + b),
  "-": (a, b) => ok(a - b),
  "*": (a, b) => ok(a * b),
  "/": (a, b) => (b === 0 ? fail("division by zero") : ok(a / b)),
};

function evaluate(expr: Expr, scope: ReadonlyMap<string, number>): Result<number> {
  switch (expr.kind) {
    case "number":
      return ok(expr.value);
    case "variable": {
      const value = scope.get(expr.name);
      return value === undefined ? fail(`unknown variable ${expr.name}`) : ok(value);
    }
    case "negate": {
      const inner = evaluate(expr.operand, scope);
      return inner.ok ? ok(-inner.value) : inner;
    }
    case "binary": {
      const left = evaluate(expr.left, scope);
      if (!left.ok) return left;
      const right = evaluate(expr.right, scope);
      return right.ok ? OPERATIONS[expr.operator](left.value, right.value) : right;
    }
    default:
      return unreachable(expr);
  }
}

function show(expr: Expr): string {
  switch (expr.kind) {
    case "number":
      return String(expr.value);
    case "variable":
      return expr.name;
    case "negate":
      return `-${show(expr.operand)}`;
    case "binary":
      return `(${show(expr.left)} ${expr.operator} ${show(expr.right)})`;
  }
}

const num = (value: number): Expr => ({ kind: "number", value });
const variable = (name: string): Expr => ({ kind: "variable", name });
const binary = (left: Expr, operator: Operator, right: Expr): Expr => ({ kind: "binary", operator, left, right });

const isLeaf = (expr: Expr): expr is Extract<Expr, { kind: "number" | "variable" }> =>
  expr.kind === "number" || expr.kind === "variable";

const scope = new Map([["x", 6]]);
const trees: Expr[] = [
  num(42),
  binary(num(1), "+", binary(variable("x"), "*", { kind: "negate", operand: num(7) })),
  binary(num(1), "/", binary(variable("x"), "-", num(6))),
  binary(variable("y"), "+", num(1)),
];
for (const tree of trees) {
  const result = evaluate(tree, scope);
  console.log(`${show(tree)} = ${result.ok ? result.value : `error: ${result.error}`}${isLeaf(tree) ? " (leaf)" : ""}`);
}
