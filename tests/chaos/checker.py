"""The judge: from what was seen to what is wrong. It starts nothing and asks nobody, so that tests can feed it anything."""

import collections
import dataclasses
import json

from history import Event, Final, Happened, History, Json, Task

READY_WITHIN = 2.0  # seconds in which /readyz has to tell of a fault
SLACK = 1.0  # more seconds, for a machine with more to do than processors
RECOVERED_WITHIN = 15.0  # seconds in which /readyz has to tell of the fault's end
DEATHS_TO_PARK = 3  # a job may be given up after it has lost so many servers
AWAY = ("redis-kill", "redis-stop", "link-cut", "link-hold", "link-deaf")
DEADLY = ("server-kill", "server-stop", "server-restart", "keeper-kill", "redis-kill", "redis-stop")


@dataclasses.dataclass(frozen=True)
class Wrong:
    """Something that must not be."""

    kind: str
    subject: str
    detail: str


def check(history: History) -> list[Wrong]:
    """Everything that is wrong, in a fixed order."""
    wrong: list[Wrong] = []
    for task in history.tasks:
        if task.id is not None:
            wrong += check_task(history, task)
    wrong += check_listing(history)
    wrong += check_deliveries(history)
    wrong += check_runs(history)
    wrong += check_refusals(history)
    wrong += check_readiness(history)
    wrong += [Wrong("left", "", what) for what in history.leftovers]
    wrong += [Wrong("not_recovered", "", what) for what in history.not_recovered]
    return wrong


def check_task(history: History, task: Task) -> list[Wrong]:
    """One acknowledged job."""
    wrong: list[Wrong] = []
    identity = task.id or ""
    ids = {id for _, id in task.acknowledged}
    if len(ids) > 1:
        wrong.append(Wrong("two_jobs", task.token, f"one idempotency key was answered with {sorted(ids)}"))
    finals = history.finals.get(identity, [])
    if forgotten(history, task):
        return wrong
    good = [final for final in finals if final.status == 200 and final.job is not None]
    if not good:
        statuses = [final.status for final in finals] or "never"
        return [*wrong, Wrong("lost", identity, f"{task.token} was acknowledged, and answered with {statuses} in the end")]
    if len(good) < len(finals):
        wrong.append(Wrong("lost", identity, f"{task.token} is known to some servers only"))
    job = good[0].job or {}
    if job["status"] not in ("finished", "cancelled"):
        return [*wrong, Wrong("stuck", identity, f"{task.token} is {job['status']} after {job.get('attempts')} attempts")]
    wrong += check_one_result(task, good)
    if task.cancelled_at is not None:
        if job["status"] != "cancelled":
            wrong.append(Wrong("cancel_undone", identity, f"{task.token} was cancelled, and ended as {job['status']}"))
    elif job["status"] == "cancelled":
        wrong.append(Wrong("wrong", identity, f"{task.token} is cancelled, and nobody asked for it"))
    else:
        wrong += check_result(history, task, job)
    for final in good:
        wrong += [Wrong(kind, identity, f"{task.token}, stream of {final.server}: {what}") for kind, what in check_events(final)]
    if task.followed_to_end:
        whole = [key(event) for event in good[0].events]
        ids_seen = [event.number for event in task.followed]
        if ids_seen != sorted(set(ids_seen)):
            wrong.append(Wrong("events", identity, f"{task.token}: a resumed stream has the ids {ids_seen[:50]}"))
        elif output(task.followed) != output(good[0].events) or key(task.followed[-1]) != whole[-1]:
            wrong.append(Wrong("events", identity, f"{task.token}: a resumed stream differs from the whole one"))
    return wrong


def forgotten(history: History, task: Task) -> bool:
    """Whether the store was emptied on purpose after the job was acknowledged."""
    return history.forgotten_at is not None and task.acknowledged[0][0] <= history.forgotten_at


def same(value: Json | None) -> str:
    return json.dumps(value, sort_keys=True)


def key(event: Event) -> tuple[int, str, str]:
    return event.number, event.name, same(event.data)


def check_one_result(task: Task, finals: list[Final]) -> list[Wrong]:
    """Whoever looked at the ended job, whenever and wherever, saw the same."""
    sights = [(seen.source, seen.at, seen.status, same(seen.result)) for seen in task.seen]
    sights += [(final.server, float("inf"), final.job["status"], same(final.job.get("result"))) for final in finals if final.job]
    if len({(status, result) for _, _, status, result in sights}) <= 1:
        return []
    shown = "; ".join(f"{source} at {at:.1f} s: {status} {result[:120]}" for source, at, status, result in sights[:4])
    return [Wrong("two_results", task.id or "", f"{task.token}: {shown}")]


def differences(result: Json, expected: Json) -> str:
    return ", ".join(
        f"{name} is {str(result.get(name))[:80]!r}, not {str(value)[:80]!r}"
        for name, value in expected.items()
        if result.get(name) != value
    )


def check_result(history: History, task: Task, job: Json) -> list[Wrong]:
    result = job.get("result") or {}
    if result.get("verdict") == "internal_error":
        deaths = deaths_during(history, task)
        kind = "parked" if deaths >= DEATHS_TO_PARK and job.get("attempts", 0) >= DEATHS_TO_PARK else "given_up"
        detail = f"{task.token}, {job.get('attempts')} attempts, {deaths} deaths: {result.get('error')}"
        return [Wrong(kind, job["id"], detail)]
    if task.kind == "endless":
        # Its cancel was not acknowledged: it may have been cancelled or run into its time limit.
        return [] if result.get("verdict") == "timeout" else [Wrong("wrong", job["id"], f"{task.token}: {result}")]
    found = differences(result, dataclasses.asdict(task.expected))
    return [Wrong("wrong", job["id"], f"{task.token}: {found}")] if found else []


def deaths_during(history: History, task: Task) -> int:
    """How many faults fell into the life of a job that could end its run."""
    began = task.acknowledged[0][0]
    ended = min((seen.at for seen in task.seen), default=float("inf"))
    return sum(fault.kind in DEADLY and began - 1 <= fault.ended and fault.began <= ended for fault in history.faults)


def output(events: list[Event]) -> dict[str, str]:
    """What a client that follows the stream has in the end: a new attempt begins again."""
    text = {"stdout": "", "stderr": ""}
    for event in events:
        if event.name in ("restarted", "start"):
            text = {"stdout": "", "stderr": ""}
        elif event.name in text:
            text[event.name] += event.data.get("data", "")
    return text


def check_events(final: Final) -> list[tuple[str, str]]:
    """The whole stream of an ended job."""
    job, events = final.job or {}, final.events
    numbers = [event.number for event in events]
    if numbers != sorted(set(numbers)):
        return [("events", f"ids out of order: {numbers[:50]}")]
    last = [event for event in events if event.name in ("result", "cancelled")]
    if len(last) != 1 or events[-1] is not last[0]:
        return [("events", f"ends with {[event.name for event in events[-3:]]}, {len(last)} final events")]
    result = job.get("result")
    if last[0].name == "result" and same(last[0].data.get("result")) != same(result):
        return [("two_results", "the event `result` differs from the job's result")]
    if result is None or result.get("verdict") == "internal_error":
        return []
    text = output(events)
    return [
        ("events", f"{name} of {len(text[name])} characters differs from the result's {len(result.get(name, ''))}")
        for name in text
        if text[name] != result.get(name, "")
    ]


def check_listing(history: History) -> list[Wrong]:
    """Each acknowledged job is listed once; jobs that nobody acknowledged are no more than requests without an answer."""
    wrong = [
        Wrong("listed_twice", id, f"listed {count} times")
        for id, count in collections.Counter(history.listed).items()
        if count > 1
    ]
    listed, tasks = set(history.listed), {task.token: task for task in history.tasks}
    for task in history.tasks:
        if task.id is not None and task.id not in listed and not forgotten(history, task):
            wrong.append(Wrong("not_listed", task.id, f"{task.token} is missing in the list"))
    for token, count in collections.Counter(history.strangers.values()).items():
        task = tasks.get(token)
        acknowledged = len({id for _, id in task.acknowledged}) if task else 0
        most = 0 if task is None else 1 if task.key else task.sends
        if acknowledged + count > most:
            wrong.append(Wrong("two_jobs", token, f"{acknowledged + count} jobs for a request that may have made {most}"))
    return wrong


def check_deliveries(history: History) -> list[Wrong]:
    wrong, accepted = [], collections.defaultdict(list)
    for delivery in history.deliveries:
        if not delivery.valid:
            wrong.append(Wrong("webhook_signature", delivery.job, "the signature of a webhook is wrong"))
        elif delivery.accepted:
            accepted[delivery.job].append(delivery)
    for task in history.tasks:
        if task.id is None or task.secret is None or forgotten(history, task):
            continue
        good = [final.job for final in history.finals.get(task.id, []) if final.status == 200 and final.job]
        if not good or good[0]["status"] not in ("finished", "cancelled"):
            continue  # said elsewhere
        if not accepted[task.id]:
            wrong.append(Wrong("webhook_missing", task.id, f"{task.token}: {good[0].get('webhook')}"))
        for delivery in accepted[task.id]:
            sent = delivery.body.get("data", {})
            if (sent.get("status"), same(sent.get("result"))) != (good[0]["status"], same(good[0].get("result"))):
                wrong.append(Wrong("two_results", task.id, f"{task.token}: a webhook tells of {sent.get('status')}, another result"))
    return wrong


def check_runs(history: History) -> list[Wrong]:
    """Synchronous runs: a right answer, or a failure that a fault explains."""
    wrong = []
    for run in history.runs:
        if run.status == 200 and run.result is not None and run.result.get("verdict") != "internal_error":
            found = differences(run.result, dataclasses.asdict(run.expected))
            if found:
                wrong.append(Wrong("wrong", run.token, f"a synchronous run: {found}"))
        elif run.status in (0, 429, 503):
            continue
        elif not explained(history.faults, run.began, run.ended):
            what = (run.result or {}).get("error") or (run.result or {}).get("detail")
            wrong.append(Wrong("failed_without_fault", run.token, f"a synchronous run: {run.status} {what}"))
    for inputs, indexes in history.batches:
        if sorted(indexes) != list(range(inputs)):
            wrong.append(Wrong("wrong", "batch", f"{inputs} inputs were answered by the results {sorted(indexes)}"))
    return wrong


def explained(faults: list[Happened], began: float, ended: float, grace: float = 5.0) -> bool:
    """Whether a fault was on at the time, or a moment before."""
    return any(fault.began <= ended and began <= fault.ended + grace for fault in faults)


def check_refusals(history: History) -> list[Wrong]:
    """While something is away, the job API answers 503 or 507 and never a bare 500. One line for each kind of answer."""
    groups: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for refusal in history.refusals:
        if refusal.status not in (503, 507):
            groups["bad_status", f"{refusal.what}: {refusal.status} {refusal.detail[:160]}"].append(refusal.at)
        elif not refusal.retry_after:
            groups["bad_status", f"{refusal.what}: {refusal.status} without Retry-After"].append(refusal.at)
        elif not explained(history.faults, refusal.at, refusal.at, RECOVERED_WITHIN):
            groups["refused_without_fault", f"{refusal.what}: {refusal.status} {refusal.detail[:160]}"].append(refusal.at)
    return [Wrong(kind, what, f"{len(times)} times, first at {times[0]:.1f} s") for (kind, what), times in groups.items()]


def check_readiness(history: History) -> list[Wrong]:
    """A server whose store is away says so in time, and says so too when the store is back."""
    wrong = []
    for fault in history.faults:
        if fault.kind in AWAY:
            lies = [
                probe
                for probe in history.probes
                if probe.status == 200
                and fault.target in ("redis", probe.server)
                and probe.asked > fault.began + READY_WITHIN + SLACK
                and probe.answered < fault.holds_until()
            ]
            if lies:
                delay = lies[-1].asked - fault.began
                wrong.append(Wrong("ready_lie", lies[0].server, f"/readyz was 200 {delay:.1f} s into {fault.kind} at {fault.began:.1f} s"))
    for server in sorted({probe.server for probe in history.probes}):
        since = None
        for probe in history.probes:
            if probe.server != server:
                continue
            if probe.status != 503 or explained(history.faults, probe.asked, probe.answered, RECOVERED_WITHIN):
                since = None
                continue
            # A disk that other work keeps busy for a second is a reason too, but it is over in time.
            since = since if since is not None else probe.asked
            if probe.answered > since + READY_WITHIN + SLACK:
                wrong.append(Wrong("unready_lie", server, f"/readyz was 503 from {since:.1f} s on, long after the last fault"))
                break
    return wrong


def notice_delay(history: History) -> float | None:
    """The longest time that /readyz took to tell of a store that was away."""
    delays = []
    for fault in history.faults:
        if fault.kind not in AWAY:
            continue
        for server in {probe.server for probe in history.probes}:
            if fault.target not in ("redis", server):
                continue
            told = [p.answered for p in history.probes if p.server == server and p.status == 503 and fault.began <= p.asked <= fault.ended]
            if told:
                delays.append(told[0] - fault.began)
    return max(delays, default=None)
