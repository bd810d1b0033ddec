"""What a run costs: CPU time by process role, of runs that start cold, ready and warm, next to the other contenders.

Every measurement includes a pause at the end, so that work that was deferred until after the answer (deleting the cell,
preparing the next one) is counted too.
"""

import contextlib
import time

from measure import Contender, Failed, at_once, once
from sampler import Meter

CASES = ["static", "python", "javascript", "java", "c-seen", "go-seen", "rust-seen"]
PEERS = ["bubblewrap", "go-judge"]
# Cases with a zygote.
WARM = ["python", "javascript", "java"]
# Turns, and calls in each.
WORK = {"full": (5, 40), "quick": (3, 10), "smoke": (1, 2)}
SLOW = {"java": 8}  # a turn has so many times fewer calls
SETTLE = 0.3  # at the end of a turn
COLUMNS = {"caller": ("caller",), "keeper": ("keeper",), "init": ("init",), "zygote": ("zygote", "helper")}
COLUMNS["program"] = ("program",)


class Costs:
    """The costs of some contenders that take turns, next to those of an idle machine."""

    def __init__(self, sampler, contenders):
        self.idle = Meter(sampler, Contender("idle", None))
        self.meters = {contender.name: Meter(sampler, contender) for contender in contenders}
        self.runs = dict.fromkeys(self.meters, 0)

    def rest(self, seconds):
        """What the machine does by itself."""
        with self.idle:
            time.sleep(seconds)

    def turn(self, case, contenders, count):
        """So many sequential calls of each contender."""
        self.rest(SETTLE)
        for contender in contenders:
            try:
                self.one_by_one(contender, case, count)
            except (Failed, OSError) as failure:
                raise Failed(f"{contender.name}: {failure}") from failure

    def one_by_one(self, contender, case, count):
        slot = contender.new_slot()
        try:
            with self.meters[contender.name]:
                for _ in range(count):
                    once(slot, *next(case.programs()))
                time.sleep(SETTLE)
        finally:
            slot.close()
        self.runs[contender.name] += count

    def at_once(self, contender, case, concurrency, count):
        """As `measure.at_once`."""
        with contextlib.ExitStack() as stack:
            begin = lambda: stack.enter_context(self.meters[contender.name])  # noqa: E731
            measured = at_once(contender, case.programs(), concurrency, count, begin)
            time.sleep(SETTLE)
        self.runs[contender.name] += count
        return measured

    def figures(self, name):
        """Milliseconds of CPU time a run."""
        meter, runs = self.meters[name], self.runs[name]
        by_itself = meter.seconds / self.idle.seconds

        def each(spent, idle=0.0):
            return round(max(0.0, spent - idle * by_itself) * 1000 / runs, 4)

        own, kernel = meter.own, each(meter.of("kernel").both, self.idle.of("kernel").both)
        return {
            "runs": runs,
            "user": each(own.user),
            "system": each(own.system),
            "roles": {role: each(meter.of(*parts).both) for role, parts in COLUMNS.items() if meter.of(*parts).both},
            "kernel": kernel,
            "total": round(each(own.both) + kernel, 4),
            "machine": each(meter.machine.both, self.idle.machine.both),
            "client": each(meter.of("client").both),
        }


def measure(case, contenders, sampler, mode, warmed_up):
    """Costs of sequential calls, by contender. The first calls fill caches, and do not count."""
    turns, count = WORK[mode]
    count = max(2, count // SLOW.get(case.key, 1))
    few = Costs(sampler, contenders)
    few.turn(case, contenders, min(3, count))
    warmed_up()
    costs = Costs(sampler, contenders)
    for _ in range(turns):
        costs.turn(case, contenders, count)
    return {name: costs.figures(name) for name in costs.meters}
