"""The report of a chaos run, for people and as JSON."""

import collections
import dataclasses
import statistics
from typing import Any

from checker import Wrong, notice_delay
from history import Event, History
from schedule import Fault

LOSSES = ("lost", "stuck", "not_listed")
DUPLICATES = ("two_jobs", "two_results", "listed_twice")
TIMES = ("created_at", "started_at", "finished_at")
# Allowed, but worth a figure: a job that has lost three servers may be given up.
ALLOWED = ("parked",)


@dataclasses.dataclass
class Report:
    """Figures and everything that is wrong."""

    seed: int
    store: str
    seconds: float
    faults: dict[str, int]
    kills: int
    jobs: int
    ended: int
    cancelled: int
    runs: int
    deliveries: int
    losses: int
    duplicates: int
    parked: int
    attempts: dict[int, int]
    ready_delay: float | None
    median_seconds: float | None
    wrong: list[Wrong]
    timeline: list[str]
    evidence: dict[str, list[str]]

    @property
    def failed(self) -> bool:
        return any(wrong.kind not in ALLOWED for wrong in self.wrong)

    def json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "failed": self.failed}

    def text(self) -> str:
        lines = [
            f"seed {self.seed}, {self.store} store, {self.seconds:.0f} s: "
            + (", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())) or "no faults"),
            f"kills {self.kills} · jobs acknowledged {self.jobs}, ended {self.ended}, cancelled {self.cancelled} · "
            f"runs {self.runs} · webhooks {self.deliveries}",
            f"losses {self.losses} · duplicates {self.duplicates} · parked {self.parked} · "
            f"attempts {', '.join(f'{n}: {count}' for n, count in sorted(self.attempts.items()))}"
            + (f" · /readyz noticed within {self.ready_delay:.1f} s" if self.ready_delay is not None else ""),
        ]
        for kind, some in grouped(self.wrong).items():
            lines.append(f"{'allowed' if kind in ALLOWED else 'WRONG'}: {kind}, {len(some)} times")
            lines += [f"    {wrong.subject}: {wrong.detail}"[:400] for wrong in some[:5]]
        lines.append("FAILED" if self.failed else "everything is right")
        return "\n".join(lines)


def evidence(history: History, wrong: list[Wrong]) -> dict[str, list[str]]:
    """For the first wrong jobs, what was seen of each, with the times of the run."""
    subjects, found = {one.subject for one in wrong}, {}
    for task in history.tasks:
        finals = history.finals.get(task.id or "", [])
        if task.id not in subjects or len(found) >= 40:
            continue
        lines = [f"{task.token}, {task.kind}, acknowledged {task.acknowledged}, cancelled {task.cancelled_at}"]
        for final in finals:
            job = final.job or {}
            times = {name: round(job[name] - history.started_at, 2) for name in TIMES if job.get(name)}
            lines.append(f"{final.server}: {final.status} {job.get('status')}, {job.get('attempts')} attempts, {times}")
            lines += [f"  {final.server}: {show(event)}" for event in final.events]
        lines += [f"  followed: {show(event)}" for event in task.followed]
        lines += [f"  seen by {seen.source} at {seen.at:.2f}: {seen.status} {str(seen.result)[:200]}" for seen in task.seen]
        found[task.id or ""] = lines
    return found


def show(event: Event) -> str:
    data = event.data.get("data")
    what = f"{len(data)} characters, {data[:20]!r}…{data[-20:]!r}" if data else str(event.data)[:120]
    return f"{event.number} {event.name}: {what}"


def grouped(wrong: list[Wrong]) -> dict[str, list[Wrong]]:
    groups: dict[str, list[Wrong]] = collections.defaultdict(list)
    for one in wrong:
        groups[one.kind].append(one)
    return groups


def make(seed: int, store: str, seconds: float, history: History, wrong: list[Wrong], plan: list[Fault]) -> Report:
    acknowledged = [task for task in history.tasks if task.id is not None]
    jobs = [finals[0].job for task in acknowledged if (finals := history.finals.get(task.id or "")) and finals[0].job]
    counts = collections.Counter(fault.kind for fault in history.faults)
    kinds = collections.Counter(one.kind for one in wrong)
    times = [seen.at - task.acknowledged[0][0] for task in acknowledged for seen in task.seen[:1]]
    happened = sorted(history.faults, key=lambda fault: fault.began)
    return Report(
        seed=seed,
        store=store,
        seconds=seconds,
        faults=dict(counts),
        kills=sum(count for kind, count in counts.items() if kind.endswith("-kill")),
        jobs=len(acknowledged),
        ended=sum(job["status"] in ("finished", "cancelled") for job in jobs),
        cancelled=sum(job["status"] == "cancelled" for job in jobs),
        runs=sum(run.status == 200 for run in history.runs),
        deliveries=len(history.deliveries),
        losses=sum(kinds[kind] for kind in LOSSES),
        duplicates=sum(kinds[kind] for kind in DUPLICATES),
        parked=kinds["parked"],
        attempts=dict(collections.Counter(job.get("attempts", 0) for job in jobs)),
        ready_delay=notice_delay(history),
        median_seconds=statistics.median(times) if times else None,
        wrong=wrong,
        evidence=evidence(history, wrong),
        timeline=[f"planned {fault.at:8.3f} {fault.kind} {fault.target} for {fault.lasts} s" for fault in plan]
        + [f"seen {fault.began:8.3f}–{fault.ended:.3f} {fault.kind} {fault.target}" for fault in happened],
    )
