#!/usr/bin/env python3
"""Breaks servers, Redis, the way between them and the disk, at random from a seed, under a load with known answers; then
checks that every acknowledged job has exactly one result, that it is right, and that nothing is left on the machine.

Prints a line a second and a report. Ends with 1 if something is wrong, and with what repeats it.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import aftermath
import leftovers
import processes
import report
from checker import Wrong, check
from clients import Clients
from cluster import Clocks, Cluster, copy_data, roll_back
from faults import Injector, settle
from history import History
from readiness import Prober, await_ready
from receiver import Receiver
from schedule import Fault, clock_offsets, plan

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DISK = 64 << 20
DISK_FOR_EACH_MINUTE = 64 << 20
SETTLES_WITHIN = 120.0


class Bench:
    """Everything that a run needs, made and removed."""

    def __init__(self, program: str, store: str, servers: int, seed: int, minutes: float, clients: int, dynamic: str | None) -> None:
        self.history = History()
        # Servers drop root privileges, so the directory has to be open to other users, which /tmp is.
        self.work = tempfile.mkdtemp(prefix="sandbox-chaos-")
        os.chmod(self.work, 0o755)
        self.disk = os.path.join(self.work, "disk")
        os.makedirs(self.disk)
        self.small_disk = processes.own_mounts()
        if self.small_disk:
            processes.mount_tmpfs(self.disk, DISK + int(DISK_FOR_EACH_MINUTE * minutes))
        self.mounts = leftovers.mounts()
        self.nursery = processes.Nursery()
        self.receiver = Receiver(self.history, lambda number: self.clients.secret(number))
        redis = store == "redis"
        clocks = Clocks(dynamic, clock_offsets(seed, servers)) if dynamic and redis else None
        if clocks:
            print("clocks:", ", ".join(f"{name} {offset:+d} s" for name, offset in clocks.offsets.items()), flush=True)
        self.cluster = Cluster(program, self.work, self.disk, servers if redis else 1, redis, self.receiver.port, self.nursery, clocks)
        self.clients = Clients(seed, self.history, self.cluster.addresses, self.receiver.port, clients)
        self.prober = Prober([server.name for server in self.cluster.servers], self.history, self.cluster.addresses)

    def close(self, keep: bool) -> None:
        self.nursery.close()
        self.receiver.close()
        if self.small_disk:
            processes.unmount(self.disk)
        if keep:
            print(f"logs are kept in {self.work}", flush=True)
        else:
            shutil.rmtree(self.work, ignore_errors=True)


def run(arguments: argparse.Namespace, store: str) -> report.Report:
    """One run on one store."""
    seconds = arguments.minutes * 60
    bench = Bench(
        arguments.sandbox_server, store, arguments.servers, arguments.seed, arguments.minutes, arguments.clients, arguments.clocks
    )
    keep = True
    try:
        only = frozenset(arguments.only.split(",")) if arguments.only else frozenset()
        # Without root there is no small disk, and no process that dropped its privileges can be traced.
        faults = plan(arguments.seed, seconds, len(bench.cluster.servers), store == "redis", bench.small_disk, only)
        if arguments.forget and store == "redis":
            faults = sorted([*faults, Fault(seconds / 3, "redis-forget", "redis", 0.0)])
        bench.cluster.start()
        for server in bench.cluster.servers:
            if not await_ready(server.name, bench.cluster.addresses, 60):
                raise SystemExit(f"chaos: {server.name} is not ready a minute after its start")
            if server.keeper() is None:
                raise SystemExit(f"chaos: the keeper of {server.name} was not found")
        baseline = [processes.descriptors(server.pid) for server in bench.cluster.servers]
        bench.history.begin()
        injector = Injector(bench.cluster, bench.history, faults)
        rollback = Rollback(bench, seconds) if arguments.sabotage == "rollback" else None
        for part in (bench.prober, bench.clients, injector):
            part.start()
        progress(bench, injector, seconds, rollback)
        injector.stop()
        wrong = finish(bench, injector, baseline)
        found = report.make(arguments.seed, store, seconds, bench.history, wrong, faults)
        keep = found.failed and not arguments.sabotage
        return found
    finally:
        bench.close(keep)


class Rollback:
    """Sabotage for the test of the checker: takes the only server's data back to an earlier state."""

    def __init__(self, bench: Bench, seconds: float) -> None:
        self.bench, self.copy_at, self.back_at = bench, seconds / 3, seconds * 2 / 3
        self.copy = os.path.join(bench.work, "older")

    def tick(self, passed: float) -> None:
        server = self.bench.cluster.servers[0]
        if passed >= self.copy_at and not os.path.exists(self.copy):
            self.restart_around(lambda: copy_data(server.data, self.copy))
            status = os.stat(server.data)
            os.chown(self.copy, status.st_uid, status.st_gid)
        if passed >= self.back_at:
            self.back_at = float("inf")
            self.restart_around(lambda: roll_back(server, self.copy))

    def restart_around(self, work: Callable[[], object]) -> None:
        server = self.bench.cluster.servers[0]
        with server.lock:
            server.end(signal.SIGKILL)
            work()
            server.start()


def progress(bench: Bench, injector: Injector, seconds: float, rollback: Rollback | None) -> None:
    history, counters = bench.history, bench.clients.counters
    while (passed := history.now()) < seconds:
        up = sum(server.is_up() for server in bench.cluster.servers)
        print(
            f"{passed:5.0f} s | up {up}/{len(bench.cluster.servers)} | faults {sum(injector.done.values()):4} | "
            f"acknowledged {counters.acknowledged:5}, ended {counters.ended:5}, runs {counters.runs:4}, "
            f"unanswered {counters.unanswered:4}, 5xx {counters.refused:4} | {injector.last}",
            flush=True,
        )
        if rollback:
            rollback.tick(passed)
        time.sleep(max(0.0, min(seconds, int(passed) + 1) - history.now()))


def finish(bench: Bench, injector: Injector, baseline: list[int]) -> list[Wrong]:
    """Lets everything settle, reads the results, ends the servers, and judges."""
    history, cluster = bench.history, bench.cluster
    print("the faults are over: waiting for jobs to end", flush=True)
    servers = cluster.addresses
    history.not_recovered += [f"{name}: does not start" for name in settle(cluster, SETTLES_WITHIN)]
    for server in cluster.servers:
        if not await_ready(server.name, servers, 30):
            history.not_recovered.append(f"{server.name}: not ready 30 s after the last fault")
    bench.clients.stop(60)
    bench.prober.stop()
    extra: list[Wrong] = []
    if servers():
        aftermath.wait_for_ends(history, servers, SETTLES_WITHIN)
        try:
            aftermath.look(history, servers)
        except Exception as error:  # whatever the servers answer, there is a report
            extra.append(Wrong("unreadable", "", f"the final look failed: {error!r}"))
    time.sleep(1)
    for server, before in zip(cluster.servers, baseline):
        now = processes.descriptors(server.pid)
        if now > before + leftovers.DESCRIPTORS:
            history.leftovers.append(f"{now} descriptors in {server.name}, {before} after its first start")
    cluster.stop()
    history.leftovers += leftovers.look(cluster, bench.nursery, bench.mounts)
    extra += [Wrong("server_died", server.name, what) for server in cluster.servers for what in server.died]
    extra += [Wrong("harness", "", what) for what in injector.broken]
    return [*check(history), *extra]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox-server", required=True, help="the program to test")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeat a schedule [default: the time]")
    parser.add_argument("--minutes", type=float, default=5, help="duration for each store [default: 5]")
    parser.add_argument("--store", choices=("embedded", "redis", "both"), default="both")
    parser.add_argument("--servers", type=int, default=2, help="servers that share a Redis [default: 2]")
    parser.add_argument("--clients", type=int, default=8, help="concurrent clients [default: 8]")
    parser.add_argument("--only", default="", help="kinds of faults, separated by commas, or none [default: all]")
    parser.add_argument("--forget", action="store_true", help="empty Redis once; jobs from before are not expected to survive")
    parser.add_argument("--clocks", metavar="SERVER", help="start servers that share a Redis with clocks that are minutes off, with this dynamically linked program")
    parser.add_argument("--sabotage", choices=("rollback",), help="break the product on purpose, to test the checker")
    parser.add_argument("--json", help="file for the report")
    arguments = parser.parse_args()
    arguments.sandbox_server = os.path.abspath(arguments.sandbox_server)
    if not os.access(arguments.sandbox_server, os.X_OK):
        parser.error(f"cannot execute {arguments.sandbox_server}")
    if arguments.clocks:
        arguments.clocks = os.path.abspath(arguments.clocks)
        if not os.access(arguments.clocks, os.X_OK):
            parser.error(f"cannot execute {arguments.clocks}")
    if arguments.sabotage and arguments.store != "embedded":
        parser.error("--sabotage needs --store embedded")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Whatever hangs, the run ends.
    watchdog = threading.Timer((arguments.minutes * 60 + 600) * 2, lambda: os._exit(3))
    watchdog.daemon = True
    watchdog.start()
    processes.adopt_orphans()
    reports = []
    for store in ("embedded", "redis") if arguments.store == "both" else (arguments.store,):
        print(f"chaos: {store} store, seed {arguments.seed}, {arguments.minutes} minutes", flush=True)
        reports.append(run(arguments, store))
        print(reports[-1].text(), flush=True)
    if arguments.json:
        os.makedirs(os.path.dirname(os.path.abspath(arguments.json)), exist_ok=True)
        with open(arguments.json, "w") as file:
            json.dump([one.json() for one in reports], file, indent=1)
    if any(one.failed for one in reports):
        for one in reports:
            print("\n".join([f"timeline, {one.store} store:", *one.timeline]))
        sys.exit(f"chaos: failed; repeat with SEED={arguments.seed} MINUTES={arguments.minutes}")


if __name__ == "__main__":
    main()
