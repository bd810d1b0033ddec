"""The final look: waits until every acknowledged job has ended, and reads everything that the servers have about it."""

import concurrent.futures
import time
from collections.abc import Iterable

import api
from clients import Servers
from history import Event, Final, History, Json
from workload import TOKEN

READERS = 4


def wait_for_ends(history: History, servers: Servers, patience: float) -> None:
    """Waits for all jobs and their webhooks; those that take longer are found by the checker."""
    waiting = {task.id for task in history.tasks if task.id is not None}
    until = time.monotonic() + patience
    while waiting and time.monotonic() < until:
        for id in list(waiting):
            address = servers()[0][1]
            try:
                status, _, job = api.ask(address, "GET", f"/v1/execute/{id}?wait=1s")
            except api.Unanswered:
                continue
            webhook = job.get("webhook") or {}
            ended = job.get("status") in ("finished", "cancelled") and webhook.get("status") != "pending"
            if status == 404 or ended:
                waiting.discard(id)
            if time.monotonic() > until:
                return


def look(history: History, servers: Servers) -> None:
    """Reads jobs and streams at every server, and the list at the first."""
    acknowledged = {id for task in history.tasks for _, id in task.acknowledged}
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        for id, finals in zip(sorted(acknowledged), pool.map(lambda id: list(look_at(id, servers)), sorted(acknowledged))):
            history.finals[id] = finals
    history.listed = list(listed(servers()[0][1]))
    strangers = [id for id in set(history.listed) if id not in acknowledged]
    for id in strangers:
        job = api.ask(servers()[0][1], "GET", f"/v1/execute/{id}", patience=20)[2]
        found = TOKEN.search(str(job.get("request", {}).get("code", "")))
        history.strangers[id] = found[0] if found else "unknown"


def look_at(id: str, servers: Servers) -> Iterable[Final]:
    for name, address in servers():
        status, job, events = 0, None, list[Event]()
        for _ in range(3):
            try:
                status, _, job = api.ask(address, "GET", f"/v1/execute/{id}", patience=20)
                if status == 200 and job["status"] in ("finished", "cancelled"):
                    events = list(api.events(address, f"/v1/execute/{id}/events", patience=20))
                break
            except api.Refused as refused:
                status = refused.status
                break
            except api.Unanswered:
                time.sleep(0.5)
        yield Final(name, status, job if status == 200 else None, events)


def listed(address: api.Address) -> Iterable[str]:
    cursor = ""
    while True:
        status, _, page = api.ask(address, "GET", f"/v1/execute?limit=200{cursor}", patience=60)
        if status != 200:
            raise RuntimeError(f"the list of jobs was answered with {status}: {page}")
        jobs: list[Json] = page["jobs"]
        yield from (job["id"] for job in jobs)
        if not page.get("next"):
            return
        cursor = f"&cursor={page['next']}"
