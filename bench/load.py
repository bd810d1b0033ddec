#!/usr/bin/env python3
"""Many clients at once for minutes: every answer is right, memory does not grow, and the pool's metrics are consistent.

Prints a line every few seconds; fails at the first wrong answer, or if the memory of the server or its keeper has grown at the end.
"""

import argparse
import contextlib
import http.client
import os
import re
import signal
import sys
import time

from cases import CASES
from measure import Failed, at_once, percentile
from memory import rollup, snapshot
from product import Server

from bench import ROOT, Workshop

MIXED = ("python", "javascript", "c-seen", "python")
# Differences below this are not growth: buffers of threads that were not needed before.
SLACK = 16 << 20


def scrape(server):
    """The server's metrics of its pool: ready cells, and runs by how they started."""
    connection = http.client.HTTPConnection(*server.address)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    ready = re.search(r"^sandbox_cells_ready (\d+)", text, re.M)
    starts = dict(re.findall(r'^sandbox_starts_total\{[^}]*start="(\w+)"[^}]*\} (\d+)', text, re.M))
    return int(ready[1]) if ready else 0, {start: int(count) for start, count in starts.items()}


def load(server, clients, seconds):
    cases = {case.key: case for case in CASES}
    began, next_line, runs, lines = time.monotonic(), 0, 0, []
    for key in sorted(set(MIXED)):
        at_once(server.contender(cases[key]), cases[key].programs(), 2, 10)
    print("seconds |   runs | runs/s |  p50 ms |  p99 ms | server MiB | keeper MiB | ready | cold, ready, warm")
    while (passed := time.monotonic() - began) < seconds:
        case = cases[MIXED[len(lines) % len(MIXED)]]
        times, took = at_once(server.contender(case), case.programs(), clients, clients * 8)
        runs += len(times)
        sizes = [rollup(pid)[0] for pid in (server.pid, server.keeper)]
        ready, starts = scrape(server)
        lines.append(sizes)
        if passed >= next_line:
            next_line += 10
            mib = [f"{size / 2**20:10.1f}" for size in sizes]
            figures = f"{passed:7.0f} | {runs:6} | {len(times) / took:6.0f}"
            figures += "".join(f" | {percentile(times, share):7.1f}" for share in (0.5, 0.99))
            counts = ", ".join(str(starts.get(start, 0)) for start in ("cold", "ready", "warm"))
            print(f"{figures} | {' | '.join(mib)} | {ready:5} | {counts}", flush=True)
    return runs, lines, starts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox-server", required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--cache", default=os.path.join(ROOT, "target", "bench"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        workshop = Workshop(arguments.cache, None)
        stack.callback(workshop.close)
        try:
            server = Server(os.path.abspath(arguments.sandbox_server), workshop, arguments.clients)
            stack.callback(server.stop)
            runs, lines, starts = load(server, arguments.clients, arguments.seconds)
            after = snapshot(server, runs)
        except Failed as failure:
            sys.exit(f"load: {failure}")
    if sum(starts.values()) < runs:
        sys.exit(f"load: {runs} runs, but the server counted {starts}")
    third = max(1, len(lines) // 3)
    for name, early, late in zip(("server", "keeper"), zip(*lines[:third]), zip(*lines[-third:])):
        print(f"{name}: at most {max(early) >> 20} MiB in the first third, {max(late) >> 20} MiB in the last")
        if max(late) > max(early) + SLACK:
            sys.exit(f"load: the {name} has grown")
    print(f"{runs} runs, no error; left afterwards: {after['processes']} processes, {after['open_files']} open files")


if __name__ == "__main__":
    main()
