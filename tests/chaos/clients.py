"""Clients: they create jobs, cancel, follow and run, keep trying where that is safe, and write down what they were told."""

import dataclasses
import random
import threading
import time
from collections.abc import Callable

import api
from history import History, Json, Refusal, Run, Task
from workload import Program, program

Servers = Callable[[], list[tuple[str, api.Address]]]


@dataclasses.dataclass
class Counters:
    """For the line of progress."""

    acknowledged: int = 0
    ended: int = 0
    runs: int = 0
    unanswered: int = 0
    refused: int = 0


class Clients:
    """A few threads, each doing one thing after the other. They share the sequence of programs."""

    def __init__(self, seed: int, history: History, servers: Servers, hooks: int, count: int = 8, most: int = 0) -> None:
        self.seed, self.history, self.servers, self.hooks, self.most = seed, history, servers, hooks, most
        self.counters = Counters()
        self.over = threading.Event()
        self.given_up = threading.Event()
        self.next = 0
        self.secrets: dict[int, str] = {}
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(count)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self, patience: float) -> None:
        """No new programs; those under way may take so long."""
        self.over.set()
        until = time.monotonic() + patience
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
        self.given_up.set()
        for thread in self.threads:
            thread.join(15)

    def secret(self, number: int) -> str | None:
        return self.secrets.get(number)

    def work(self, number: int) -> None:
        source = random.Random(f"{self.seed}/client/{number}")
        while not self.over.is_set():
            with self.history.lock:
                if self.most and self.next >= self.most:
                    return
                todo = program(self.seed, self.next)
                self.next += 1
            {"job": self.job, "run": self.run, "batch": self.batch}[todo.face](todo, source)

    def pick(self, source: random.Random) -> tuple[str, api.Address] | None:
        """Any server, as behind a balancer that does not look."""
        while not self.given_up.is_set():
            if known := self.servers():
                return source.choice(known)
            time.sleep(0.05)
        return None

    def call(self, source: random.Random, method: str, path: str, body: Json | None = None, headers: dict[str, str] | None = None) -> tuple[str, int, Json]:
        """One request to one server; status 0 if there was no answer."""
        picked = self.pick(source)
        if picked is None:
            return "", 0, {}
        name, address = picked
        try:
            status, fields, answer = api.ask(address, method, path, body, headers)
        except api.Unanswered:
            self.counters.unanswered += 1
            return name, 0, {}
        if status >= 500:
            self.counters.refused += 1
            what = f"{method} {path.partition('?')[0][:11]}"
            detail = str(answer.get("detail") or answer.get("title") or "")
            self.history.add(self.history.refusals, Refusal(self.history.now(), what, status, "retry-after" in fields, detail))
        return name, status, answer

    def job(self, todo: Program, source: random.Random) -> None:
        task = Task(todo.number, todo.token, todo.kind, todo.expected)
        headers, body = {}, dict(todo.request)
        if todo.keyed:
            task.key = headers["Idempotency-Key"] = f"key-{todo.token}"
        if todo.webhook:
            task.secret = self.secrets[todo.number] = f"secret of {todo.token}"
            body["webhook"] = {"url": f"http://127.0.0.1:{self.hooks}/{todo.number}", "secret": task.secret}
        self.history.add(self.history.tasks, task)
        # With a key it is safe to send it again, and always done once.
        sends = 2 if todo.keyed else 1
        while sends > 0 and not self.given_up.is_set():
            task.sends += 1
            _, status, answer = self.call(source, "POST", "/v1/execute", body, headers)
            if status == 202:
                self.history.add(task.acknowledged, (self.history.now(), answer["id"]))
                sends -= 1
            elif not todo.keyed:
                if status == 429:
                    task.sends -= 1  # nothing was created; after a 503 there may be a job
                time.sleep(0.2)
                break
            else:
                time.sleep(0.2)
        if task.id is None:
            return
        self.counters.acknowledged += 1
        if todo.cancel_after is not None:
            self.cancel(task, todo.cancel_after, source)
        if todo.followed:
            self.follow(task, source)
        else:
            self.wait(task, source)

    def cancel(self, task: Task, after: float, source: random.Random) -> None:
        self.given_up.wait(after)
        while not self.given_up.is_set():
            _, status, job = self.call(source, "DELETE", f"/v1/execute/{task.id}")
            if status == 200:
                if job["status"] != "finished":
                    task.cancelled_at = self.history.now()
                return
            if status == 404:
                return  # the final look says whether it is lost
            time.sleep(0.2)

    def wait(self, task: Task, source: random.Random) -> None:
        """Waits for the job's end."""
        while not self.given_up.is_set():
            name, status, job = self.call(source, "GET", f"/v1/execute/{task.id}?wait=2s")
            if status == 404:
                return
            if status == 200 and job["status"] in ("finished", "cancelled"):
                self.counters.ended += 1
                return self.history.see(task, name, job)
            if status != 200:
                time.sleep(0.2)

    def follow(self, task: Task, source: random.Random) -> None:
        """Reads the job's stream to its end, resuming it at any server where it breaks."""
        while not self.given_up.is_set():
            picked = self.pick(source)
            if picked is None:
                return
            last = task.followed[-1].number if task.followed else 0
            try:
                for event in api.events(picked[1], f"/v1/execute/{task.id}/events", after=last):
                    if event.number == 0:
                        continue  # not of the job but of the server, such as its end
                    task.followed.append(event)
                    if event.name in ("result", "cancelled"):
                        task.followed_to_end = True
                        self.counters.ended += 1
                        return
                    if self.given_up.is_set():
                        return
            except api.Refused as refused:
                if refused.status == 404:
                    return
            except api.Unanswered:
                self.counters.unanswered += 1
            time.sleep(0.1)

    def run(self, todo: Program, source: random.Random) -> None:
        began = self.history.now()
        picked = self.pick(source)
        if picked is None:
            return
        try:
            status, _, answer = api.ask(picked[1], "POST", "/execute", todo.request, patience=30)
        except api.Unanswered:
            status, answer = 0, None
            self.counters.unanswered += 1
        self.counters.runs += status == 200
        self.history.add(self.history.runs, Run(todo.token, began, self.history.now(), status, answer, todo.expected))
        if status != 200:
            time.sleep(0.2)

    def batch(self, todo: Program, source: random.Random) -> None:
        began, picked = self.history.now(), self.pick(source)
        if picked is None:
            return
        texts = [todo.request["stdin"].strip() + f" {number}" for number in range(3)]
        request = {name: value for name, value in todo.request.items() if name != "stdin"}
        body = {"request": request, "inputs": [{"stdin": text + "\n"} for text in texts]}
        indexes, runs = [], []
        try:
            for event in api.events(picked[1], "/v1/batch", body, patience=30):
                if event.name == "result" and "result" in event.data:
                    index = event.data["index"]
                    indexes.append(index)
                    expected = dataclasses.replace(todo.expected, stdout=texts[index][::-1] + "\n")
                    runs.append(Run(todo.token, began, self.history.now(), 200, event.data["result"], expected))
                elif event.name == "error":
                    indexes.append(event.data["index"])
                    status = event.data["problem"].get("status", 500)
                    runs.append(Run(todo.token, began, self.history.now(), status, event.data["problem"], todo.expected))
                elif event.name == "end":
                    self.history.add(self.history.batches, (len(texts), indexes))
        except (api.Unanswered, api.Refused):
            self.counters.unanswered += 1
            time.sleep(0.2)
        for run in runs:
            self.history.add(self.history.runs, run)
        self.counters.runs += sum(run.status == 200 for run in runs)
