"""Exhausts every resource that the whole kernel shares from inside cells, and checks the effect from outside.

While an attack holds the resource, root, an ordinary user and another cell must still get some of it. Afterwards
nothing may be left.
"""
import concurrent.futures
import dataclasses
import json
import re
import subprocess
import time

from machine import HERE, MIB, NAMESPACES_SLACK, as_user, memory, objects, recorded

TAKE = f"{HERE}/take"
ENDED_BY_MEMORY = "ended by the memory limit"


@dataclasses.dataclass
class Attack:
    """A resource, and how it is exhausted."""

    pool: str
    workers: int = 8
    # The cell's memory limit, and how much an attack on memory tries to take in all, in MiB.
    memory: int = 256
    bound: int = 400
    network: str = "none"
    # Whether others must still get one.
    probed: bool = True
    # Whether it counts against the user of the server, and so is tried for both users even in short runs.
    by_user: bool = False
    # How long it has to run to do harm without protection, in seconds.
    least: int = 0


# Known faults: server, attack, text of the fault, and reason.
KNOWN = [
    ("user", r": \d+ MiB taken by a cell", "without a cgroup, kernel memory is not charged to the program"),
    ("user", r"^names: afterwards: ", "without a cgroup, negative dentries of a cell are not reclaimed"),
    ("user", r"^pipes: (user|another cell) gets no pipes", "pipe pages are counted per user, and all cells of this server have the same user"),
    ("user", r"^in-flight: (user|another cell) gets no in-flight", "descriptors in flight are counted per user likewise"),
    ("root", r"^locks: \d+ MiB (taken by a cell|are not charged)", "the kernel does not charge the memory of file locks"),
]
# A keeper leaves up to 2 MiB of kernel memory behind for each cell, which is this many names.
NAMES_LEFT = 12_000
# Removing many socket filters hangs some kernels: last, and only in this machine.
ATTACKS = [
    Attack("inotify", by_user=True),
    Attack("fanotify", by_user=True),
    Attack("swap", workers=2, memory=48, probed=False, by_user=True),
    Attack("domains"),
    Attack("cells", probed=False),
    Attack("timers", by_user=True),
    Attack("signals", by_user=True),
    Attack("messages"),
    Attack("pipes", by_user=True),
    Attack("keys"),
    Attack("epoll"),
    Attack("aio"),
    Attack("terminals"),
    Attack("user-namespaces", workers=1),
    Attack("net-namespaces", workers=1),
    Attack("locks", memory=48),
    Attack("names", least=8),
    Attack("semaphores", memory=48),
    Attack("netlink", workers=32, memory=48),
    Attack("tcp", memory=48, network="localhost"),
    Attack("udp", memory=48, network="localhost"),
    Attack("in-flight", workers=16, by_user=True),
    Attack("files", workers=32),
    Attack("processes", workers=1),
    Attack("huge-pages", workers=2),
    Attack("cores", workers=1, probed=False, by_user=True),
    Attack("modules", workers=1, probed=False),
    Attack("seccomp-filters", workers=60, memory=512),
    Attack("port-filters", workers=60, memory=512),
    Attack("filters", workers=60, memory=512, by_user=True),
]


def outcomes(text):
    return dict(line.split(" ", 1) for line in text.splitlines())


class Prober:
    """Requests one of each resource, for root, for an ordinary user and for another cell."""

    def __init__(self, server):
        self.server = server

    def probe(self, pools):
        found = {}
        for who, argv in {"root": [TAKE], "user": as_user([TAKE])}.items():
            try:
                run = subprocess.run([*argv, "--probe", *pools], capture_output=True, text=True, timeout=20)
                found[who] = outcomes(run.stdout)
            except subprocess.TimeoutExpired:
                found[who] = {pool: "no answer" for pool in pools}
        try:
            result = self.server.run(f"{TAKE} --probe {' '.join(pools)}", network={"mode": "localhost"}, limits={"wall_time": "20s"})
            found["another cell"] = outcomes(result["stdout"])
        except (AssertionError, OSError, ValueError) as error:  # no answer, no JSON, or not the output of a probe
            found["another cell"] = {pool: f"no cell: {error}" for pool in pools}
        return found


def took(server, attack, seconds):
    """Starts an attack and waits until it holds its resources; returns its report and a way to end it."""
    limits = {
        "memory": f"{attack.memory}m", "processes": 80, "open_files": 1024, "wall_time": "10m",
        "inodes": 100000,
    }
    if server.name == "root":
        limits["cpus"] = 2  # an ordinary user has no cgroup
    code = f"{TAKE} {attack.pool} {seconds} {attack.workers} {attack.bound}"
    connection, answer = server.start(code, True, seconds + 90, limits=limits, network={"mode": attack.network})
    said = ""
    for line in answer:
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if event["event"] in ("stdout", "stderr"):
                said += event["data"]
                if re.search(r"^took .*\n", said):
                    break
            elif event["event"] == "result" and event["result"]["verdict"] == "memory_limit":
                said = ENDED_BY_MEMORY
                break
            elif event["event"] not in ("start", "step"):
                raise AssertionError(f"the attack ended early: {line[:600]!r}")
    return said.strip(), connection, answer


def missing(before, during, pools, when):
    """The users who no longer get what they got before the attack."""
    return [
        f"{who} gets no {name} {when}: {during[who].get(name, 'no answer')}"
        for who, names in before.items() for name in pools
        if names[name] == "ok" and during[who].get(name) != "ok"
    ]


def attempt(machine, server, attack, before, seconds):
    """Runs one attack; returns its report and the faults that it caused."""
    machine.wait_for_rest()
    start, log = memory(), len(recorded())
    pools = sorted({"seccomp-filters", attack.pool} if attack.probed else {"seccomp-filters"})
    said, connection, answer = took(server, attack, max(seconds, attack.least))
    held = memory()
    # An attack that took nothing did no harm; but socket filters are checked in any case.
    harmless = said.startswith("took 0 ") and attack.pool != "filters"
    faults = [] if harmless else missing(before, Prober(server).probe(pools), pools, "during the attack")
    answer.close()
    connection.close()
    grown = start["free"] - held["free"]
    if grown > (attack.memory + 48) * MIB:
        faults.append(f"{grown // MIB} MiB taken by a cell that may have {attack.memory}")
    # What the memory limit ended was charged, and is being freed now.
    charged = said == ENDED_BY_MEMORY
    uncounted = grown - (held["counted"] - start["counted"])
    if server.name == "root" and not charged and uncounted > 24 * MIB:
        faults.append(f"{uncounted // MIB} MiB are not charged to any cgroup")
    if held["huge"] < start["huge"]:
        faults.append(f"{start['huge'] - held['huge']} huge pages taken")
    swapped = memory()["swapped"] - start["swapped"]
    if swapped > MIB:
        faults.append(f"{swapped // MIB} MiB written to swap")
    left = machine.wait_for_rest(start, slack=16 * MIB)
    faults += [f"afterwards: {what}" for what in left]
    names = memory()["names"] - start["names"]
    if names > NAMES_LEFT:
        faults.append(f"afterwards: {names} looked-up names are still remembered")
    if not harmless:
        faults += missing(before, Prober(server).probe(pools), pools, "after the attack")
    faults += [f"the kernel ran for it: {line}" for line in recorded()[log:]]
    faults += [f"the kernel says: {line}" for line in machine.log.bad()]
    machine.before = memory()  # leftovers are reported once
    return f"{said} ({grown // MIB} MiB)", faults


def churn(machine, server, seconds):
    """Makes clients create and end cells as fast as they can; returns their number, and the faults that this caused.

    The kernel frees namespaces in queues that others need too: these must not fall behind.
    """
    machine.wait_for_rest()
    start, until = memory(), time.monotonic() + seconds
    ended = []

    def client():
        while time.monotonic() < until:
            server.run("true", limits={"wall_time": "40s"})
            ended.append(1)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(client) for _ in range(4)]:
            one.result()
    faults = []
    behind = objects("net_namespace") - machine.namespaces
    if behind > 2 * NAMESPACES_SLACK:
        faults.append(f"{behind} network namespaces wait to be freed")
    faults += [f"afterwards: {what}" for what in machine.wait_for_rest(start, slack=16 * MIB)]
    faults += [f"the kernel says: {line}" for line in machine.log.bad()]
    try:
        machine.fresh_cell(server)
    except AssertionError as error:
        faults.append(str(error))
    return f"{len(ended)} cells in {seconds} s", faults


def known(server, fault):
    """Why a fault is known, or nothing."""
    return next((why for who, text, why in KNOWN if who == server.name and re.search(text, fault)), "")


def run(machine, seconds, only=(), short=False):
    """Runs all or the named attacks, by both servers (in short runs only where that matters); returns how many succeed."""
    attacks = [attack for attack in ATTACKS if not only or attack.pool in only]
    breached = []
    before = {server.name: Prober(server).probe([attack.pool for attack in ATTACKS if attack.probed]) for server in machine.servers}
    for who, names in before["root"].items():
        got = ", ".join(name if got == "ok" else f"no {name} ({got})" for name, got in names.items())
        print(f"vm: before, {who} gets: {got}", flush=True)
    for attack in attacks:
        for server in machine.servers if attack.by_user or not short else machine.servers[:1]:
            try:
                if attack.pool == "cells":
                    said, faults = churn(machine, server, 5 * seconds)
                else:
                    said, faults = attempt(machine, server, attack, before[server.name], seconds)
            except (AssertionError, OSError) as error:
                said, faults = "", [f"{type(error).__name__}: {error}"]
            reasons = [known(server, f"{attack.pool}: {fault}") for fault in faults]
            verdict = "held" if not faults else "known" if all(reasons) else "BREACHED"
            print(f"vm: {time.monotonic():.0f}s: {attack.pool} by {server.name}: {verdict}: {said}", flush=True)
            for fault, reason in zip(faults, reasons):
                print(f"vm:     {fault}{reason and f' (known: {reason})'}", flush=True)
            if verdict == "BREACHED":
                breached.append(f"{attack.pool} by {server.name}: {'; '.join(faults)}")
    print(f"vm: {len(attacks)} attacks on shared kernel resources, {len(breached)} breached", flush=True)
    for line in breached:
        print(f"vm: breached: {line}", flush=True)
    return len(breached)
