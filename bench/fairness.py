#!/usr/bin/env python3
"""How much abusive clients slow down a normal one: `/execute` alone, then beside silent connections, idle event streams
and a queue full of jobs, and finally beside all of them at once.

Prints a table; fails if a request is refused, or if the p99 at the end is three times what it was alone or more.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import time

from measure import Failed, percentile
from memory import rollup
from product import Server

from bench import ROOT, Workshop

MOST = 3.0  # times the usual latency
LONGEST = 300  # seconds for everything
# Each kind of client has a separate address, as it would in a network.
POLITE, SILENT, STREAMS, JOBS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")


def ask(address, method, path, body=None, source=POLITE):
    """One request on a new connection: status and JSON."""
    connection = http.client.HTTPConnection(*address, timeout=60, source_address=(source, 0))
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def hold(address, source, sent, count, held, over):
    """Keeps connections open that have sent this, and replaces those that are closed. Runs in a process."""
    selector = selectors.DefaultSelector()
    open_now = 0
    while not over.is_set():
        for _ in range(min(64, count - open_now)):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(address, 5, (source, 0))
                connection.sendall(sent)
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
                open_now += 1
        for key, _ in selector.select(0.05):
            try:
                alive = key.fileobj.recv(65536) != b""
            except OSError:
                alive = False
            if not alive:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_now -= 1
        held.value = open_now


class Holders:
    """Processes that hold connections, until the end."""

    def __init__(self):
        self.over, self.all = multiprocessing.Event(), []

    def start(self, address, source, sent, count):
        held = multiprocessing.Value("i", 0)
        arguments = (address, source, sent, count, held, self.over)
        process = multiprocessing.Process(target=hold, args=arguments, daemon=True)
        process.start()
        self.all.append((process, held))
        until = time.monotonic() + 60
        while held.value < count:
            if time.monotonic() > until:
                raise Failed(f"the server holds {held.value} of {count} connections")
            time.sleep(0.05)
        return held

    def stop(self):
        self.over.set()
        for process, _ in self.all:
            process.join(5)


def submit(address, seconds):
    status, job = ask(address, "POST", "/v1/execute", sleeping(seconds), JOBS)
    if status != 202:
        raise Failed(f"a job was answered with {status}: {job}")
    return job["id"]


def sleeping(seconds):
    return {"code": f"import time; time.sleep({seconds})", "timeout": 60}


def polite(address, count):
    """Sequential requests: the time of each in ms (infinite if refused), and the number of refusals."""
    times, refused = [], 0
    for number in range(count):
        began = time.perf_counter()
        status, answer = ask(address, "POST", "/execute", {"code": f"print({number})"})
        took = (time.perf_counter() - began) * 1000
        # A refusal is quick, and must not count as a fast run.
        times.append(float("inf") if status in (429, 503) else took)
        if status in (429, 503):
            refused += 1
        elif (status, answer.get("stdout")) != (200, f"{number}\n"):
            raise Failed(f"a run was answered with {status}: {answer}")
    return times, refused


def measure(server, arguments, holders):
    address, rows = server.address, []

    def row(name):
        times, refused = polite(address, arguments.requests)
        rows.append((name, times, refused))
        p50, p99 = (percentile(times, share) for share in (0.5, 0.99))
        rss = rollup(server.pid)[1] / 2**20
        print(f"{name:28} | {len(times):8} | {refused:7} | {p50:7.1f} | {p99:7.1f} | {rss:7.1f}", flush=True)

    print("beside                       | requests | refused |  p50 ms |  p99 ms | RSS MiB")
    polite(address, 20)
    row("nothing")
    silent = holders.start(address, SILENT, b"", arguments.silent)
    row(f"{arguments.silent} silent connections")
    followed = submit(address, 59)
    request = f"GET /v1/execute/{followed}/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n"
    streams = holders.start(address, STREAMS, request.encode(), arguments.streams)
    row(f"and {arguments.streams} event streams")
    for _ in range(arguments.jobs):
        submit(address, 0.5)
    row(f"and {arguments.jobs} queued jobs")
    queue = ask(address, "GET", "/health")[1]["queue"]
    print(f"held at the end: {silent.value} silent connections, {streams.value} streams, {queue} jobs in the queue")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox-server", required=True)
    parser.add_argument("--silent", type=int, default=1024)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--cache", default=os.path.join(ROOT, "target", "bench"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"fairness: not done after {LONGEST} s"))
    signal.alarm(LONGEST)
    with contextlib.ExitStack() as stack:
        workshop = Workshop(arguments.cache, None)
        stack.callback(workshop.close)
        holders = Holders()
        try:
            server = Server(os.path.abspath(arguments.sandbox_server), workshop, 2 * os.cpu_count())
            stack.callback(server.stop)
            stack.callback(holders.stop)
            rows = measure(server, arguments, holders)
        except (Failed, OSError) as failure:
            sys.exit(f"fairness: {failure}")
    (_, usual, _), (_, last, _) = rows[0], rows[-1]
    ratio = percentile(last, 0.99) / percentile(usual, 0.99)
    print(f"p99 beside all of them: {ratio:.2f} times the usual p99, at most {MOST:.0f}")
    refused = sum(refused for _, _, refused in rows)
    if refused or ratio >= MOST:
        sys.exit(f"fairness: {refused} requests were refused, p99 is {ratio:.2f} times the usual p99")


if __name__ == "__main__":
    main()
