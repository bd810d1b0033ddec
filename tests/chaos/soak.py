#!/usr/bin/env python3
"""A long load: idle event streams, a long queue of jobs, then runs and jobs of several languages with hostile programs
among them. Every answer has to be right, and memory, descriptors, control groups and disk have to stay flat.

Prints a line every few seconds; writes samples and percentiles as JSON and a picture as SVG. Ends with 1 if something grows
or is wrong.
"""

import argparse
import collections
import contextlib
import dataclasses
import http.client
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any

import api
import leftovers
import picture
import processes
from cluster import Server
from mixture import Mixed, mixed
from samples import Sample, Sampler, growth

LONGEST_JOB = 300.0  # seconds until a job has to have ended


class Failures:
    """What went wrong; the first few in words."""

    def __init__(self) -> None:
        self.lock, self.count, self.some = threading.Lock(), 0, list[str]()

    def add(self, what: str) -> None:
        with self.lock:
            self.count += 1
            if len(self.some) < 20:
                self.some.append(what[:300])


class Streams:
    """Idle event streams of one job that says nothing, held by one thread."""

    def __init__(self, address: api.Address, count: int) -> None:
        status, _, job = api.ask(address, "POST", "/v1/execute", {"code": "import time; time.sleep(86400)", "timeout": "24h"})
        if status != 202:
            raise RuntimeError(f"the job to follow was answered with {status}: {job}")
        self.address, self.job = address, job["id"]
        self.selector, self.lost, self.held = selectors.DefaultSelector(), 0, 0
        request = f"GET /v1/execute/{self.job}/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode()
        for _ in range(count):
            connection = socket.create_connection(address, 10)
            connection.sendall(request)
            self.selector.register(connection, selectors.EVENT_READ)
            self.held += 1
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.hold, daemon=True)
        self.thread.start()

    def hold(self) -> None:
        """Reads the server's comments that keep streams alive, and counts streams that end too early."""
        while not self.over.is_set():
            for key, _ in self.selector.select(0.2):
                connection: Any = key.fileobj
                with contextlib.suppress(OSError):
                    if connection.recv(65536):
                        continue
                self.selector.unregister(connection)
                connection.close()
                if not self.over.is_set():
                    self.lost += 1

    def stop(self) -> None:
        self.over.set()
        self.thread.join(5)
        api.ask(self.address, "DELETE", f"/v1/execute/{self.job}", patience=20)
        for key in list(self.selector.get_map().values()):
            connection: Any = key.fileobj
            connection.close()
        self.selector.close()


class Load:
    """Threads that take programs by number, each with a connection that it keeps."""

    def __init__(self, address: api.Address, seed: int, sampler: Sampler, failures: Failures) -> None:
        self.address, self.seed, self.sampler, self.failures = address, seed, sampler, failures
        self.times: dict[str, list[float]] = collections.defaultdict(list)
        self.verdicts: collections.Counter[str] = collections.Counter()
        self.lock = threading.Lock()
        self.next = 0
        self.pending: collections.deque[tuple[str, Mixed]] = collections.deque()

    def phase(self, name: str, count: int, clients: int, work: Any) -> float:
        """Does so many programs with so many clients; the seconds that it took."""
        self.sampler.phase, last = name, self.next + count
        began = time.monotonic()

        def client() -> None:
            connection = http.client.HTTPConnection(*self.address, timeout=LONGEST_JOB)
            try:
                while True:
                    with self.lock:
                        if self.next >= last:
                            return
                        number, self.next = self.next, self.next + 1
                    try:
                        work(connection, number)
                    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                        self.failures.add(f"program {number}: {error!r}")
                        connection.close()
                    self.sampler.done += 1
            finally:
                connection.close()

        threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        shown = 0.0
        while any(thread.is_alive() for thread in threads):
            threads[0].join(0.2)
            if time.monotonic() - shown >= 5:
                shown = time.monotonic()
                self.show()
            time.sleep(0.1)
        return time.monotonic() - began

    def show(self) -> None:
        if self.sampler.samples:
            s = self.sampler.samples[-1]
            print(
                f"{s.at:6.0f} s | {s.phase:8} | done {self.sampler.done:6} | server {s.server_memory >> 20:4} MiB, "
                f"keeper {s.keeper_memory >> 20:3} MiB | descriptors {s.server_descriptors:5}, {s.keeper_descriptors:4} | "
                f"groups {s.groups:3} | disk {s.disk >> 20:4} MiB | wrong {self.failures.count}",
                flush=True,
            )

    def ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")

    def note(self, name: str, began: float) -> None:
        with self.lock:
            self.times[name].append((time.monotonic() - began) * 1000)

    def judge(self, program: Mixed, result: Any) -> None:
        self.verdicts[f"{program.name}: {result['verdict']}"] += 1
        if result["verdict"] not in program.verdicts or program.stdout not in (None, result["stdout"]):
            self.failures.add(f"{program.name}: {result['verdict']}, {result['stdout'][:80]!r}, {result.get('error')}")

    def run(self, connection: http.client.HTTPConnection, number: int) -> None:
        """A synchronous run; one that is refused for want of a slot is sent again."""
        program, began = mixed(self.seed, number), time.monotonic()
        for _ in range(200):
            status, result = self.ask(connection, "POST", "/execute", program.request)
            if status != 429:
                break
            time.sleep(0.05)
        if status != 200:
            return self.failures.add(f"{program.name}: {status} {result}")
        self.note(f"run {program.name}", began)
        self.judge(program, result)

    def queue(self, connection: http.client.HTTPConnection, number: int) -> None:
        """A job that is only created."""
        program, began = mixed(self.seed, number), time.monotonic()
        status, job = self.ask(connection, "POST", "/v1/execute", program.request)
        if status != 202:
            return self.failures.add(f"a job was answered with {status}: {job}")
        self.note("create job", began)
        self.pending.append((job["id"], program))

    def collect(self, connection: http.client.HTTPConnection, _: int) -> None:
        """The result of a queued job."""
        id, program = self.pending.popleft()
        until = time.monotonic() + 20 * LONGEST_JOB
        while time.monotonic() < until:
            status, job = self.ask(connection, "GET", f"/v1/execute/{id}?wait=30s")
            if status != 200:
                return self.failures.add(f"a job was answered with {status}: {job}")
            if job["status"] == "finished":
                return self.judge(program, job["result"])
        self.failures.add(f"job {id} does not end")

    def mix(self, connection: http.client.HTTPConnection, number: int) -> None:
        """Every second one is a job, waited for."""
        if number % 2:
            return self.run(connection, number)
        program, began = mixed(self.seed, number), time.monotonic()
        status, job = self.ask(connection, "POST", "/v1/execute", program.request)
        if status != 202:
            return self.failures.add(f"a job was answered with {status}: {job}")
        while job.get("status") != "finished" and time.monotonic() < began + LONGEST_JOB:
            status, job = self.ask(connection, "GET", f"/v1/execute/{job['id']}?wait=30s")
            if status != 200:
                return self.failures.add(f"a job was answered with {status}: {job}")
        self.note(f"job {program.name}", began)
        self.judge(program, job["result"])


def percentiles(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Milliseconds by what was measured."""
    found = {}
    for name, values in sorted(times.items()):
        ordered = sorted(values)
        pick = lambda share: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)  # noqa: E731
        found[name] = {"count": len(ordered), "p50": pick(0.5), "p95": pick(0.95), "p99": pick(0.99), "max": round(ordered[-1], 1)}
    return found


def soak(arguments: argparse.Namespace, work: str, nursery: processes.Nursery) -> dict[str, Any]:
    options = ["--capacity", str(arguments.capacity), "--ready-cells", str(arguments.capacity), "--zygotes", "2"]
    options += ["--queue", str(max(10_000, 2 * arguments.queued)), "--job-retention", f"{arguments.retention}s"]
    data, environment = os.path.join(work, "data"), {"SANDBOX_MAX_TIMEOUT": "24h"}
    server = Server("server", arguments.sandbox_server, work, data, nursery, options, environment)
    if not server.start() or server.address is None:
        raise RuntimeError("the server does not start")
    if server.keeper() is None:
        raise RuntimeError("the keeper was not found")
    failures, sampler = Failures(), Sampler(server, arguments.every)
    load = Load(server.address, arguments.seed, sampler, failures)
    took: dict[str, float] = {}
    took["warm-up"] = load.phase("warm-up", 40, 4, load.run)
    before = sampler.look()
    streams = Streams(server.address, arguments.streams)
    took["queue"] = load.phase("queue", arguments.queued, 8, load.queue)
    took["drain"] = load.phase("drain", len(load.pending), 8, load.collect)
    sampler.done -= arguments.queued  # counted when they were created
    rest = max(0, arguments.runs - sampler.done)
    took["mixed"] = load.phase("mixed", rest, arguments.clients, load.mix)
    wrong = growth([sample for sample in sampler.samples if sample.phase == "mixed"])
    if streams.lost:
        wrong.append(f"{streams.lost} of {streams.held} idle streams ended")
    streams.stop()
    sampler.phase = "after"
    after = idle(sampler, before.server_descriptors + leftovers.DESCRIPTORS)
    if after.server_descriptors > before.server_descriptors + leftovers.DESCRIPTORS:
        wrong.append(f"{after.server_descriptors} descriptors are open in the end, {before.server_descriptors} at first")
    sampler.stop()
    server.note_keeper()
    server.end(signal.SIGTERM)
    wrong += [f"left: process {pid} ({processes.name(pid)})" for pid in nursery.left(10)]
    wrong += [f"left: {path}" for path in leftovers.groups_of(server.keepers)]
    wrong += [f"left: {os.path.join(server.temporary, name)}" for name in os.listdir(server.temporary)]
    wrong += [f"the server {what}" for what in server.died]
    if failures.count:
        wrong += [f"{failures.count} answers were wrong, the first ones:", *failures.some]
    return {
        "seed": arguments.seed,
        "done": sampler.done,
        "streams": streams.held,
        "seconds": {name: round(seconds, 1) for name, seconds in took.items()},
        "milliseconds": percentiles(load.times),
        "verdicts": dict(load.verdicts),
        "wrong": wrong,
        "samples": [dataclasses.asdict(sample) for sample in sampler.samples],
    }


def idle(sampler: Sampler, descriptors: int) -> Any:
    """A sample once connections are closed, or after half a minute."""
    until = time.monotonic() + 30
    while (sample := sampler.look()).server_descriptors > descriptors and time.monotonic() < until:
        time.sleep(0.5)
    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox-server", required=True, help="the program to test")
    parser.add_argument("--seed", type=int, default=1, help="choose the programs [default: 1]")
    parser.add_argument("--runs", type=int, default=100_000, help="runs and jobs in all [default: 100000]")
    parser.add_argument("--queued", type=int, default=10_000, help="jobs queued at once [default: 10000]")
    parser.add_argument("--streams", type=int, default=1_000, help="idle event streams [default: 1000]")
    parser.add_argument("--clients", type=int, default=6, help="concurrent clients [default: 6]")
    parser.add_argument("--capacity", type=int, default=4, help="concurrent runs of the server [default: 4]")
    parser.add_argument("--retention", type=int, default=60, help="seconds until the server deletes a job [default: 60]")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples [default: 5]")
    parser.add_argument("--json", help="file for figures and samples")
    parser.add_argument("--plot", help="file for the picture, as SVG")
    arguments = parser.parse_args()
    arguments.sandbox_server = os.path.abspath(arguments.sandbox_server)
    if not os.access(arguments.sandbox_server, os.X_OK):
        parser.error(f"cannot execute {arguments.sandbox_server}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(4096, arguments.streams * 2)), hard))
    processes.adopt_orphans()
    work = tempfile.mkdtemp(prefix="sandbox-soak-")
    os.chmod(work, 0o755)
    nursery = processes.Nursery()
    try:
        result = soak(arguments, work, nursery)
    finally:
        nursery.close()
        shutil.rmtree(work, ignore_errors=True)
    write(arguments, result)
    if result["wrong"]:
        sys.exit("\n".join(["soak: failed", *(f"    {what}" for what in result["wrong"])]))
    print("everything is right and flat")


def write(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    for name, figures in result["milliseconds"].items():
        print(f"{name:20} | {figures['count']:6} | p50 {figures['p50']:8} | p95 {figures['p95']:8} | p99 {figures['p99']:8} ms")
    print(f"{result['done']} programs; seconds: {result['seconds']}; verdicts: {result['verdicts']}", flush=True)
    if arguments.json:
        os.makedirs(os.path.dirname(os.path.abspath(arguments.json)), exist_ok=True)
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)
    if arguments.plot:
        os.makedirs(os.path.dirname(os.path.abspath(arguments.plot)), exist_ok=True)
        title = f"{result['done']} runs and jobs beside {result['streams']} idle event streams"
        with open(arguments.plot, "w") as file:
            file.write(picture.draw([Sample(**sample) for sample in result["samples"]], title))


if __name__ == "__main__":
    main()
