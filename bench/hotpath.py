#!/usr/bin/env python3
"""Counts the system calls that one request costs, by process: the server, its keeper, a cell's init, the program, and
the waiting processes below the keeper.

Traces them with strace, which slows everything down but does not change the counts.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from cases import CASES
from measure import Failed, once
from memory import settle
from processes import INIT, command_name, descendants
from product import Server
from report import syscalls

from bench import ROOT, Workshop

LINE = re.compile(r"^(\d+) +(?:(\w+)\(|<\.\.\. (\w+) resumed>)(.*)")
# A child's process id, and its id in this namespace if it was created in another PID namespace.
CHILD = re.compile(r"= (\d+)(?: /\* (\d+) in strace's PID NS \*/)?$")
FORKS = ("clone", "clone3", "fork", "vfork")


def threads(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def roles(server):
    """Existing threads, and the processes that they belong to."""
    waiting = {pid: "init" if command_name(pid) == INIT else "waiting" for pid in descendants(server.keeper)}
    return {
        thread: role
        for pid, role in {server.pid: "server", server.keeper: "keeper", **waiting}.items()
        for thread in threads(pid)
    }


# The role of each process's children.
BELOW = {"server": "server", "keeper": "init", "init": "program", "waiting": "program", "program": "program"}


def classify(lines, known):
    """Process → system call → count. A call that was interrupted by another's line counts once, where it began."""
    entries = [match.groups() for match in map(LINE.match, lines) if match]
    # Parents first: a child's first line may come before the line of its fork.
    parents = {}
    for pid, began, resumed, rest in entries:
        child = CHILD.search(rest)
        if (began or resumed) in FORKS and child:
            parents.setdefault(int(child[2] or child[1]), int(pid))

    def role(pid):
        if pid in known:
            return known[pid]
        return BELOW.get(role(parents[pid]), "other") if pid in parents else "other"

    counts = collections.defaultdict(collections.Counter)
    for pid, began, _, _ in entries:
        if began:
            counts[role(int(pid))][began] += 1
    return counts


def trace(server, case, requests, directory):
    slot = server.slot(case)
    source, expected = next(case.programs())
    for _ in range(requests):
        once(slot, source, expected)
    settle(server)
    known = roles(server)
    pids = [server.pid, server.keeper, *descendants(server.keeper)]
    output = os.path.join(directory, "trace")
    command = ["strace", "-f", "-q", "-s", "0", "--decode-pids=pidns", "-o", output]
    tracer = subprocess.Popen(
        [*command, *(word for pid in pids for word in ("-p", str(pid)))],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_tracer(pids)
        for _ in range(requests):
            once(slot, source, expected)
        known.update({thread: "server" for thread in threads(server.pid)})
        time.sleep(0.5)  # clean-up after the answer belongs to the request too
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        slot.close()
    with open(output, errors="replace") as file:
        return classify(file, known)


def wait_for_tracer(pids):
    for _ in range(100):
        states = []
        for pid in pids:
            with open(f"/proc/{pid}/status") as file:
                states.append(re.search(r"TracerPid:\t(\d+)", file.read())[1] != "0")
        if all(states):
            return
        time.sleep(0.05)
    raise Failed("strace cannot attach to the server and its keeper")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox-server", required=True)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--cold", action="store_true", help="the server keeps nothing ready")
    parser.add_argument("--cache", default=os.path.join(ROOT, "target", "bench"))
    arguments = parser.parse_args()
    if not shutil.which("strace"):
        sys.exit("hotpath: strace is not installed (Debian: apt-get install strace)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        workshop = Workshop(arguments.cache, None)
        stack.callback(workshop.close)
        try:
            server = Server(os.path.abspath(arguments.sandbox_server), workshop, 4, arguments.cold)
            stack.callback(server.stop)
            case = next(case for case in CASES if case.key == "python")
            counts = trace(server, case, arguments.requests, workshop.directory)
        except Failed as failure:
            sys.exit(f"hotpath: {failure}")
    figures = {"requests": arguments.requests, "processes": {}}
    for name in ("server", "keeper", "init", "waiting", "program", "other"):
        if counts[name]:
            calls = {call: count / arguments.requests for call, count in counts[name].most_common()}
            figures["processes"][name] = {"calls": sum(calls.values()), "most": calls}
    with open(os.path.join(arguments.cache, "syscalls.json"), "w") as file:
        json.dump(figures, file, indent=1)
    print(syscalls(figures))


if __name__ == "__main__":
    main()
