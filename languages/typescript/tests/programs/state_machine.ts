// Type-level programming: a checked state machine, satisfies, template literals, a fluent builder.
type State = "idle" | "running" | "paused" | "stopped";
type Trigger = "start" | "pause" | "resume" | "stop";

const TRANSITIONS = {
  idle: { start: "running" },
  running: { pause: "paused", stop: "stopped" },
  paused: { resume: "running", stop: "stopped" },
  stopped: {},
} as const satisfies Record<State, Partial<Record<Trigger, State>>>;

class Machine {
  private readonly history: State[] = ["idle"];

  get state(): State {
    return this.history[this.history.length - 1];
  }

  send(event: Trigger): boolean {
    const table: Partial<Record<Trigger, State>> = TRANSITIONS[this.state];
    const next = table[event];
    if (next !== undefined) this.history.push(next);
    return next !== undefined;
  }

  toString(): string {
    return this.history.join(" > ");
  }
}

// The builder's type records which fields were set; build() exists only when all were.
interface Call {
  method: "GET" | "POST";
  path: `/${string}`;
  retries: number;
}

class Builder<Set extends keyof Call = never> {
  private constructor(private readonly fields: Partial<Call>) {}

  static start(): Builder {
    return new Builder({});
  }

  with<K extends Exclude<keyof Call, Set>>(key: K, value: Call[K]): Builder<Set | K> {
    return new Builder<Set | K>({ ...this.fields, [key]: value });
  }

  build(this: Builder<keyof Call>): Readonly<Call> {
    return Object.freeze({ ...(this.fields as Call) });
  }
}

type Split<S extends string, D extends string> = S extends `${infer Head}${D}${infer Tail}` ? [Head, ...Split<Tail, D>] : [S];
const parts: Split<"a.b.c", "."> = ["a", "b", "c"];

type DeepReadonly<T> = { readonly [K in keyof T]: T[K] extends object ? DeepReadonly<T[K]> : T[K] };
const config: DeepReadonly<{ server: { port: number; hosts: string[] } }> = { server: { port: 8080, hosts: ["a", "b"] } };

const machine = new Machine();
const outcomes = (["start", "resume", "pause", "resume", "stop", "start"] as const).map((event) => `${event}:${machine.send(event) ? "ok" : "no"}`);
console.log(outcomes.join(" "));
console.log(machine.toString());

const request = Builder.start().with("path", "/items").with("retries", 3).with("method", "POST").build();
console.log(JSON.stringify(request), Object.isFrozen(request));
console.log(parts.length, parts.join("/"), config.server.hosts.length + config.server.port);
console.log((Object.keys(TRANSITIONS) as State[]).filter((state) => Object.keys(TRANSITIONS[state]).length === 0).join());
