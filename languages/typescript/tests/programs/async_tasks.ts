// Typed promises: a concurrency limit, retries with typed errors, async generators, an event emitter.
class RetryError extends Error {
  constructor(readonly attempts: number, readonly reason: unknown) {
    super(`gave up after ${attempts} attempts`);
    this.name = "RetryError";
  }
}

const sleep = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function mapLimited<T, U>(items: readonly T[], limit: number, task: (item: T) => Promise<U>): Promise<U[]> {
  const results: U[] = new Array(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++;
      results[index] = await task(items[index]);
    }
  };
  await Promise.all(Array.from({ length: limit }, worker));
  return results;
}

async function retry<T>(attempts: number, task: (attempt: number) => Promise<T>): Promise<T> {
  let reason: unknown;
  for (let attempt = 1; attempt <= attempts; attempt++) {
    try {
      return await task(attempt);
    } catch (error) {
      reason = error;
    }
  }
  throw new RetryError(attempts, reason);
}

async function* ticks(count: number): AsyncGenerator<number, string> {
  for (let i = 1; i <= count; i++) {
    await sleep(1);
    yield i * i;
  }
  return "done";
}

type Events = { progress: [done: number, total: number]; finished: [message: string] };

class Emitter<E extends Record<string, unknown[]>> {
  private readonly handlers: { [K in keyof E]?: ((...args: E[K]) => void)[] } = {};

  on<K extends keyof E>(event: K, handler: (...args: E[K]) => void): void {
    (this.handlers[event] ??= []).push(handler);
  }

  emit<K extends keyof E>(event: K, ...args: E[K]): void {
    this.handlers[event]?.forEach((handler) => handler(...args));
  }
}

async function main(): Promise<void> {
  let running = 0;
  let peak = 0;
  const squares = await mapLimited([5, 3, 8, 1], 2, async (n) => {
    peak = Math.max(peak, ++running);
    await sleep(n);
    running--;
    return n ** 2;
  });
  console.log(squares.join(" "), "peak", peak);

  console.log(await retry(3, async (attempt) => (attempt < 3 ? Promise.reject(new Error("not yet")) : `attempt ${attempt}`)));
  const failure = await retry(2, () => Promise.reject(new RangeError("never"))).catch((error: unknown) => error);
  if (failure instanceof RetryError) console.log(failure.message, failure.reason instanceof RangeError);

  const emitter = new Emitter<Events>();
  emitter.on("progress", (done, total) => console.log(`${(100 * done) / total}%`));
  emitter.on("finished", (message) => console.log(message.toUpperCase()));
  for await (const square of ticks(2)) emitter.emit("progress", square, 4);
  emitter.emit("finished", "all done");
}

main().catch((error: unknown) => console.log("failed", error));
