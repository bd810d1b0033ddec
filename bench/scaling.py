#!/usr/bin/env python3
"""What a run, a queued job, an event and a stream cost in CPU time, memory and Redis commands, for docs/SCALING.md.

CPU time is sampled (sampler.py). On a busy machine it is larger.
With --write-docs, the tables go into docs/SCALING.md: the costs, and what they mean for 10, 100 and 1,000 machines.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time

from fairness import Holders, ask
from measure import Failed
from memory import rollup
from product import Server
from redis_server import Redis
from report import table
from sampler import Meter, NoSampling, Sampler

from bench import ROOT, Workshop

LONGEST = 900  # seconds for everything
CODE = "print('x' * 1000)"
IDLE, JOB = "idle server, a second", "the same as a job, from creation to result"


class Bench:
    def __init__(self, program, store, capacity):
        self.stack, self.store = contextlib.ExitStack(), store
        try:
            self.workshop = Workshop(os.path.join(ROOT, "target", "bench"), None)
            self.stack.callback(self.workshop.close)
            self.redis = None
            if store == "Redis":
                self.redis = Redis(self.workshop)
                self.stack.callback(self.redis.stop)
                self.workshop.environment["REDIS_ADDR"] = f"127.0.0.1:{self.redis.port}"
            self.workshop.environment["SANDBOX_QUEUE"] = "100000"
            self.sampler = Sampler()
            self.stack.callback(self.sampler.close)
            self.server = Server(program, self.workshop, capacity)
            self.stack.callback(self.server.stop)
        except BaseException:
            self.stack.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    @contextlib.contextmanager
    def measure(self):
        """What is used meanwhile: CPU seconds of the server and its cells, and growth of the rest."""
        used = {}
        before = self.held()
        with Meter(self.sampler, self.server.contender(None)) as meter:
            yield used
        used.update({name: value - before[name] for name, value in self.held().items()}, cpu=meter.own.both)

    def held(self):
        """Memory of the server, the size of the store, and what Redis has counted."""
        sample = {"memory": rollup(self.server.pid)[0]}
        if self.redis:
            sample.update({f"redis_{name}": value for name, value in self.redis.info().items()})
        else:
            sample["file"] = sum(
                os.stat(os.path.join(self.server.data, name)).st_blocks * 512
                for name in os.listdir(self.server.data)
                if name.startswith("jobs")
            )
        return sample

    def create(self, count, body):
        """Jobs, over one connection: their ids."""
        ids, connection = [], http.client.HTTPConnection(*self.server.address, timeout=120)
        for _ in range(count):
            connection.request("POST", "/v1/execute", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 202:
                raise Failed(f"a job was answered with {response.status}: {answer}")
            ids.append(answer["id"])
        connection.close()
        return ids

    def until_empty(self):
        for _ in range(6000):
            health = ask(self.server.address, "GET", "/health")[1]
            if health["queue"] == 0 and health["load"] == 0:
                return
            time.sleep(0.1)
        raise Failed("jobs do not end")


def costs(program, store, scale):
    """Rows of what, CPU ms of the server, memory and Redis' share."""
    rows = []

    def row(what, used, count, memory=None):
        cpu = used["cpu"] / count * 1000
        stored = used["redis_bytes" if store == "Redis" else "file"] / count
        commands = used["redis_commands"] / count if store == "Redis" else None
        redis = used["redis_cpu"] / count * 1e6 if store == "Redis" else None
        held = used["memory"] / count if memory else None
        rows.append((store, what, cpu, held, stored, commands, redis))
        print(rows[-1], flush=True)

    with Bench(program, store, 2) as bench:
        address = bench.server.address
        time.sleep(3)
        with bench.measure() as used:
            time.sleep(20)
        row(IDLE, used, 20)
        for _ in range(50):
            ask(address, "POST", "/execute", {"code": CODE})
        with bench.measure() as used:
            for _ in range(scale):
                ask(address, "POST", "/execute", {"code": CODE})
        row("synchronous run (warm Python, 1 KB of output)", used, scale)
        with bench.measure() as used:
            bench.create(scale, {"code": CODE})
            bench.until_empty()
        row(JOB, used, scale)
        # Jobs that wait: both slots are taken until all have been created.
        bench.create(2, {"code": "import time; time.sleep(50)", "timeout": "60s"})
        time.sleep(1)
        with bench.measure() as used:
            bench.create(scale, {"code": CODE + "#" * 1000})
        row("queued job with a request of 1 KB", used, scale, memory=True)
    with Bench(program, store, 2) as bench:
        address = bench.server.address
        printing = "import time\nfor n in range(1000):\n    print('x' * 99, flush=True)\n    time.sleep(0.005)"
        silent = bench.create(1, {"code": "import time; time.sleep(20)", "timeout": "60s"})
        ask(address, "GET", f"/v1/execute/{silent[0]}?wait=30s")
        with bench.measure() as used:
            (identity,) = bench.create(1, {"code": printing, "timeout": "60s"})
            ask(address, "GET", f"/v1/execute/{identity}?wait=60s")
        connection = http.client.HTTPConnection(*address, timeout=60)
        connection.request("GET", f"/v1/execute/{identity}/events")
        events = connection.getresponse().read().count(b"\nevent: stdout") + 1
        connection.close()
        row("event with output of a run", used, events)
        (followed,) = bench.create(1, {"code": "import time; time.sleep(59)", "timeout": "60s"})
        time.sleep(1)
        holders, count = Holders(), 1000
        request = f"GET /v1/execute/{followed}/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n"
        try:
            with bench.measure() as used:
                holders.start(address, "127.0.0.3", request.encode(), count)
                time.sleep(2)
            row("idle event stream, opened", used, count, memory=True)
            with bench.measure() as used:
                time.sleep(10)
            row("1,000 idle event streams, a second", used, 10)
        finally:
            holders.stop()
    return rows


def number(value, unit=""):
    if value is None:
        return ""
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"


def document(rows):
    head = [
        "store",
        "what",
        "CPU of server and cells",
        "memory of the server",
        "stored",
        "Redis commands",
        "CPU of Redis",
    ]
    return table(
        head,
        [
            [
                store,
                what,
                number(cpu, " ms"),
                number(held, " B"),
                number(stored, " B"),
                number(commands),
                number(redis, " µs"),
            ]
            for store, what, cpu, held, stored, commands, redis in rows
        ],
        numbers=(2, 3, 4, 5, 6),
    )


def processor():
    with open("/proc/cpuinfo") as file:
        found = re.search(r"^model name\s*: (.+)$", file.read(), re.M)
    return found[1] if found else "an unknown processor"


# What the projection assumes.
CORES, BUSY = 16, 0.7
MACHINES = (10, 100, 1000)
WORK = (0.01, 0.1, 1, 10)  # CPU seconds of the program itself


def projection(rows):
    """Jobs a second of so many machines, and cores of Redis that they keep busy."""
    cost = {(store, what): (cpu, redis) for store, what, cpu, _, _, _, redis in rows}
    job_cpu, job_redis = cost["Redis", JOB]
    _, idle_redis = cost["Redis", IDLE]
    lines = []
    for work in WORK:
        rate = CORES * BUSY / (work + job_cpu / 1000)
        cells = []
        for machines in MACHINES:
            redis = machines * (rate * job_redis + idle_redis) / 1e6
            cells.append(f"{machines * rate:,.0f}/s, {redis:,.{0 if redis >= 10 else 1 if redis >= 1 else 2}f} cores")
        lines.append([f"{work} s", *cells])
    limit = f"With real runs, one core of Redis is fully used by {1e6 / job_redis:,.0f} jobs a second, from creation to result."
    return (
        limit
        + "\n\n"
        + table(
            ["CPU time of the program", *(f"{machines:,} machines" for machines in MACHINES)], lines, numbers=(1, 2, 3)
        )
    )


def through_redis(log):
    """What the test of the Redis store has measured, as a sentence."""
    with open(log) as file:
        found = re.search(r"through one Redis: (\d+) jobs a second, (\d+) µs of Redis each", file.read())
    if not found:
        raise Failed(f"{log} has no figure of the Redis store")
    rate, cost = int(found[1]), int(found[2])
    return (
        f"Two servers whose workers do nothing put {rate:,} jobs a second through one Redis on this machine, from\n"
        f"creation to result. Each takes {cost} µs of CPU time in Redis, so that one core of Redis is fully used by\n"
        f"{1e6 / cost:,.0f} of them a second."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox-server", required=True)
    parser.add_argument("--scale", type=int, default=1000, help="runs and jobs of each kind")
    parser.add_argument("--throughput", required=True, help="what the test throughput_of_two_servers has printed")
    parser.add_argument("--write-docs", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"scaling: not done after {LONGEST} s"))
    signal.alarm(LONGEST)
    try:
        throughput = through_redis(arguments.throughput)
        rows = [
            row
            for store in ("file", "Redis")
            for row in costs(os.path.abspath(arguments.sandbox_server), store, arguments.scale)
        ]
    except (Failed, NoSampling, OSError) as failure:
        sys.exit(f"scaling: {failure}")
    version = subprocess.run(
        [arguments.sandbox_server, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    measured = (
        f"Measured with {version} on {os.cpu_count()} cores of {processor()}; load average {os.getloadavg()[0]:.1f}."
    )
    parts = {"costs": f"{document(rows)}\n\n{measured}", "redis": throughput, "projection": projection(rows)}
    print("\n\n".join(parts.values()))
    if arguments.write_docs:
        path = os.path.join(ROOT, "docs/SCALING.md")
        with open(path) as file:
            text = file.read()
        for name, part in parts.items():
            text, found = re.subn(
                rf"(<!-- {name} -->\n)(?:.*\n)*?(<!-- end -->)", lambda m, part=part: f"{m[1]}{part}\n{m[2]}", text
            )
            if found != 1:
                sys.exit(f"scaling: docs/SCALING.md has no place for the table of {name}")
        with open(path, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
