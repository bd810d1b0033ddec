"""The memory of the server: of ready and running cells, and what remains after many runs.

Memory is the proportional set size (PSS): a page that many processes share counts as a fraction for each.
"""

import os
import time

from measure import at_once
from processes import INIT, command_name, descendants

SLEEPERS = 8
SLEEP = "import time; print('here', flush=True); time.sleep(3)"


def rollup(pid):
    """Bytes: proportional and resident set size."""
    sizes = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                words = line.split()
                if words[0] in ("Pss:", "Rss:"):
                    sizes[words[0]] = int(words[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        pass
    return sizes.get("Pss:", 0), sizes.get("Rss:", 0)


def pss(pids):
    return sum(rollup(pid)[0] for pid in pids)


def by_namespace(pids):
    """Processes that share a PID namespace: those of one cell."""
    groups = {}
    for pid in pids:
        try:
            groups.setdefault(os.readlink(f"/proc/{pid}/ns/pid"), []).append(pid)
        except OSError:
            pass
    return list(groups.values())


def idle(server):
    """The waiting processes below the keeper: ready cells, and others (interpreters, compilers) by name."""
    ready, others = [], {}
    for group in by_namespace(descendants(server.keeper)):
        names = [command_name(pid) for pid in group]
        if set(names) == {INIT}:
            ready.append(pss(group))
        else:
            name = "+".join(sorted(set(names)))
            count, size = others.get(name, (0, 0))
            others[name] = (count + 1, size + pss(group))
    return {
        "ready_cells": len(ready),
        "ready_cell_pss": sorted(ready)[len(ready) // 2] if ready else None,
        "others": {name: {"count": count, "pss": size} for name, (count, size) in others.items()},
        "server_pss": pss([server.pid]),
        "keeper_pss": pss([server.keeper]),
    }


def running(server, case):
    """Bytes that each additional running Python program takes, cell and interpreter together."""
    before = pss([server.keeper, *descendants(server.keeper)])
    slots = [server.slot(case) for _ in range(SLEEPERS)]
    try:
        for slot in slots:
            slot.prepare(SLEEP)
            slot.begin()
        time.sleep(2)  # all sleep by now, and the pool has been refilled
        during = pss([server.keeper, *descendants(server.keeper)])
        for slot in slots:
            while (answer := slot.feed()) is None:
                pass
            slot.stdout(answer)
    finally:
        for slot in slots:
            slot.close()
    return (during - before) // SLEEPERS


def settle(server):
    """Waits until the processes below the keeper do not change any more."""
    last, same = None, 0
    for _ in range(100):
        now = sorted(descendants(server.keeper))
        same = same + 1 if now == last else 0
        if same >= 5:
            break
        last = now
        time.sleep(0.1)


def groups(server):
    """Directories of the keeper's cgroups that still exist."""
    prefix = f"sandbox-run-{server.keeper}-"
    return sum(name.startswith(prefix) for _, names, _ in os.walk("/sys/fs/cgroup") for name in names)


def snapshot(server, runs):
    settle(server)
    sizes = {"server": rollup(server.pid), "keeper": rollup(server.keeper)}
    return {
        "runs": runs,
        **{f"{name}_pss": pss for name, (pss, _) in sizes.items()},
        **{f"{name}_rss": rss for name, (_, rss) in sizes.items()},
        "open_files": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (server.pid, server.keeper)),
        "cgroups": groups(server),
        "processes": len(descendants(server.keeper)),
    }


def growth(server, case, runs, concurrency):
    """The state of one fresh server after 1, 10, 100, … runs."""
    programs, done, snapshots = case.programs(), 0, []
    for goal in [10**power for power in range(10) if 10**power < runs] + [runs]:
        at_once(server.contender(case), programs, concurrency, goal - done)
        done = goal
        snapshots.append(snapshot(server, done))
    return snapshots
