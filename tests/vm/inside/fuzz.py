"""Runs the syscall fuzzer in cells, batch after batch, and checks from outside that the machine stays healthy."""
import re
import time

from machine import HERE, recorded

# Seconds of one batch. Cells of both servers run side by side.
BATCH = 20
# A batch that does less than this does not test anything.
LEAST_CALLS, LEAST_KINDS = 2000, 80


def batch(server, seconds, seed, network):
    """Fuzzes in one cell; returns the fuzzer's report, and what is wrong with it."""
    limits = {"wall_time": f"{seconds + 60}s", "memory": "256m", "processes": 64}
    result = server.run(f"mkdir -p fuzz && cd fuzz && {HERE}/fuzz {seed} {seconds}", seconds + 120, limits=limits, network={"mode": network})
    said = result["stdout"].strip()
    found = re.fullmatch(r"fuzzed (\d+) calls, \d+ succeeded, (\d+) kinds, .*", said)
    # A fuzzer may kill itself: a call can unmap its memory, or use up the limits of its cell.
    if result["verdict"] != "ok":
        return f"ended: {result['verdict']} {result.get('error')}", 0
    if not found or int(found[1]) < LEAST_CALLS or int(found[2]) < LEAST_KINDS:
        raise AssertionError(f"the fuzzer has hardly run: {said} {result['stderr'][:500]}")
    return said, int(found[1])


def run(machine, seconds, seed):
    """Fuzzes for some seconds; returns how many batches did harm."""
    print(f"vm: fuzz: seed {seed}", flush=True)
    end = time.monotonic() + seconds
    failed = calls = 0
    while time.monotonic() < end:
        length = max(5, min(BATCH, int(end - time.monotonic())))
        faults = []
        log = len(recorded())
        for server, network in zip(machine.servers, ("none", "localhost") if seed % 2 else ("localhost", "none")):
            try:
                said, made = batch(server, length, seed, network)
                calls += made
                print(f"vm: fuzz: seed {seed}, cell of {server.name}: {said}", flush=True)
            except (AssertionError, OSError) as error:
                faults.append(f"{type(error).__name__}: {error}")
        faults += machine.faults()
        faults += [f"the kernel ran for it: {line}" for line in recorded()[log:]]
        for fault in faults:
            print(f"vm: fuzz: seed {seed}: {fault}", flush=True)
        failed += bool(faults)
        seed += 1
    if calls == 0:
        failed += 1
        print("vm: fuzz: no batch completed", flush=True)
    print(f"vm: fuzz: {calls} calls, batches that did harm: {failed}", flush=True)
    return failed
