"""The entry point in the emulated machine: runs the part that tests/vm/hostile selects."""
import sys
import time

import attacks
import fuzz
from machine import Machine


def main():
    what, words = sys.argv[1], sys.argv[2:]
    machine = Machine()
    print(f"vm: at rest: {machine.rest}", flush=True)
    failed = 0
    if what == "attacks":
        failed += attacks.run(machine, int(words[0]), words[1:])
    elif what == "fuzz":
        failed += fuzz.run(machine, int(words[0]), int(words[1]) if words[1:] else time.time_ns() % 1_000_000)
    elif what == "short":
        failed += attacks.run(machine, 2, short=True)
        failed += fuzz.run(machine, 20, 1)
    else:
        sys.exit(f"unknown: {what}")
    for fault in machine.faults():
        failed += 1
        print(f"vm: at the end: {fault}", flush=True)
    for server in machine.servers:
        server.stop()
    sys.exit(bool(failed))


main()
