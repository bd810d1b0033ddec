"""The bars: required and desired results, as ratios and differences of figures from one run."""

import dataclasses
from typing import Callable, Optional

from cases import CASES

SERVER, CLI = "sandbox-server", "sandbox-run"


@dataclasses.dataclass(frozen=True)
class Bar:
    what: str
    unit: str
    must: float
    aim: Optional[float]
    value: Callable[[dict], Optional[float]]
    more: bool = False  # more is better

    def judge(self, result):
        try:
            value = self.value(result)
        except (KeyError, ZeroDivisionError):  # that part, or that contender, was not measured, or for too short a time
            value = None
        return {
            "what": self.what,
            "value": value,
            "unit": self.unit,
            "must": self.must,
            "aim": self.aim,
            "more": self.more,
            "verdict": self._verdict(value),
        }

    def _verdict(self, value):
        if value is None:
            return "not measured"
        if not self._reaches(value, self.must):
            return "MISSED"
        return "aim" if self.aim is not None and self._reaches(value, self.aim) else "must"

    def _reaches(self, value, bar):
        return value >= bar if self.more else value <= bar


def median(result, case, name):
    return result["cases"][case]["contenders"][name]["p50"]


def of(case, name=SERVER, other="bare"):
    return lambda result: median(result, case, name) / median(result, case, other)


def over(case, name=SERVER):
    return lambda result: median(result, case, name) - median(result, case, "bare")


def tail(case):
    def value(result):
        figures = result["cases"][case]["at_once"]["contenders"][SERVER]
        return figures["p99"] / figures["p50"]

    return value


def crowd(case):
    """The median with as many clients as cores, against the median alone."""

    def value(result):
        together = result["cases"][case]["at_once"]["contenders"][SERVER]["p50"]
        return together / median(result, case, SERVER)

    return value


def throughput(case, other="bare"):
    """The best of all concurrencies, each side at its own."""

    def value(result):
        levels = result["throughput"][case]["levels"].values()
        best = lambda name: max(figures[name]["rate"] for figures in levels)  # noqa: E731
        return best(SERVER) / best(other)

    return value


def cost(case, start):
    """CPU time of a run, with the kernel threads that it keeps busy."""

    def value(result):
        figures = result["costs"][case]["contenders"]
        return figures[f"{SERVER} {start}"]["total"] / figures["bare"]["total"]

    return value


def ready_cell(result):
    size = result["memory"]["ready_cell_pss"]
    return None if size is None else size / 1024


def of_jobs(figure, factor=1):
    return lambda result: result["jobs"][figure] * factor


def jobs_to_runs(result):
    figures = result["jobs"]["throughput"]
    return figures["jobs"] / figures["runs"]


def first_output(result):
    figures = result["jobs"]["first_output"]
    return figures["job"] - figures["run"]


TITLES = {case.key: case.title for case in CASES}

BARS = [
    Bar(TITLES["static"], "ms over bare", 1, 0.5, over("static")),
    Bar(TITLES["python"], "× bare", 0.35, 0.15, of("python")),
    Bar(TITLES["pandas"], "× bare", 0.03, 0.01, of("pandas")),
    Bar(TITLES["javascript"], "× bare", 0.10, 0.04, of("javascript")),
    Bar(TITLES["java"], "× bare", 0.20, 0.10, of("java")),
    Bar(TITLES["go"], "× bare", 0.65, 0.5, of("go")),
    Bar(TITLES["rust"], "× bare", 1.0, 0.7, of("rust")),
    Bar(TITLES["c-seen"], "ms over bare", 3, 1, over("c-seen")),
    Bar(TITLES["go-seen"], "ms over bare", 3, 1, over("go-seen")),
    Bar(TITLES["rust-seen"], "ms over bare", 3, 1, over("rust-seen")),
    *(
        Bar(f"{title}: p99 with as many at once as cores", "× its p50", 3, 2, tail(case))
        for case, title in TITLES.items()
    ),
    Bar("Python: p50 with as many at once as cores", "× p50 alone", 1.5, 1.2, crowd("python")),
    Bar("CPU of a warm Python run", "× bare", 0.5, 0.25, cost("python", "warm")),
    Bar("Python throughput", "× bare", 2, 4, throughput("python"), more=True),
    Bar("Python throughput", "× go-judge", 3, 6, throughput("python", "go-judge"), more=True),
    Bar("JavaScript throughput", "× bare", 4, 8, throughput("javascript"), more=True),
    Bar("Java throughput, new sources", "× bare", 3, 6, throughput("java"), more=True),
    Bar("sandbox-run, cold, static binary", "ms over bare", 5, 2, over("static", CLI)),
    Bar("sandbox-run, cold, static binary", "× bubblewrap", 1, 0.7, of("static", CLI, "bubblewrap")),
    Bar("sandbox-run, cold, Python", "ms over bare", 5, 2, over("python", CLI)),
    Bar("sandbox-run, cold, Python", "× bubblewrap", 1, 0.7, of("python", CLI, "bubblewrap")),
    Bar("memory of a ready cell", "KiB", 1024, 300, ready_cell),
    Bar("jobs created, embedded store", "a second", 2000, None, of_jobs("created_embedded"), more=True),
    Bar("jobs created, Redis, two servers", "a second", 3000, None, of_jobs("created_redis"), more=True),
    Bar("runs as jobs, Redis", "× synchronous runs", 0.95, None, jobs_to_runs, more=True),
    Bar("first output of a job, Redis", "ms over a run", 5, None, first_output),
    Bar("an idle server, Redis", "commands a second", 1, None, of_jobs("idle_commands")),
    Bar("10,000 finished jobs of 1 KB, Redis", "MB", 40, None, of_jobs("finished_bytes", 10_000 / 1e6)),
]


def judge(result):
    return [bar.judge(result) for bar in BARS]
