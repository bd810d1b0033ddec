"""A job server that runs nothing and knows every answer. It can be told to do one thing wrong, for tests of the checker."""

import http.server
import json
import threading
import urllib.request
import uuid
from typing import Any

from history import Json
from receiver import signature
from workload import TOKEN, program

WRONGS = (
    "forge-ack",  # acknowledges a job that does not exist
    "lose-job",  # forgets a job that has ended
    "change-result",  # answers later with another result
    "wrong-output",
    "give-up",  # ends a job with internal_error
    "stick",  # never ends a job
    "lose-event",
    "swap-events",
    "repeat-event",  # a resumed stream begins too early
    "cut-character",
    "lose-webhook",
    "forge-webhook",
    "undo-cancel",
    "forget-key",  # a retry with the same key makes another job
    "list-twice",
    "bare-500",
)


class FakeServer:
    """The server. Every third job that a wrong fits to suffers from it."""

    def __init__(self, seed: int, wrong: str | None) -> None:
        self.seed, self.wrong = seed, wrong
        self.jobs: dict[str, Json] = {}
        self.keys: dict[str, str] = {}
        self.victims: set[str] = set()
        self.suited = 0
        self.lock = threading.Lock()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            wbufsize = 1 << 20

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                fake.create(self, body, self.headers.get("idempotency-key"))

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path == "/readyz":
                    answer(self, 200, {})
                elif path == "/v1/execute":
                    fake.list(self)
                elif path.endswith("/events"):
                    fake.events(self, path.split("/")[3], int(self.headers.get("last-event-id", "0")))
                else:
                    fake.get(self, path.split("/")[3], bool(query))

            def do_DELETE(self) -> None:
                fake.cancel(self, self.path.split("/")[3])

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address: tuple[str, int] = ("127.0.0.1", self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def does(self, wrong: str, id: str) -> bool:
        """Whether this job suffers from this wrong."""
        if wrong != self.wrong:
            return False
        with self.lock:
            if id not in self.victims:
                self.suited += 1
                if self.suited % 3 == 1:
                    self.victims.add(id)
            return id in self.victims

    def create(self, handler: Any, body: Json, key: str | None) -> None:
        if handler.path == "/execute":
            return answer(handler, 200, self.result(body))
        if handler.path == "/v1/batch":
            return self.batch(handler, body)
        if self.does("bare-500", str(uuid.uuid4())):
            return answer(handler, 500, {"detail": "the store failed"})
        id = self.keys.get(key or "")
        if id is None or self.does("forget-key", id):
            id = str(uuid.uuid4())
            if not self.does("forge-ack", id):
                webhook = body.pop("webhook", None)
                job = {"id": id, "status": "running", "request": body, "attempts": 1, "result": None}
                self.jobs[id] = job
                if "while True" not in body["code"] and not self.does("stick", id):
                    self.finish(job, webhook)
                elif webhook:
                    job["hook"] = webhook
            if key:
                self.keys[key] = id
        answer(handler, 202, {"id": id, "status": "queued"})

    def result(self, request: Json) -> Json:
        found = TOKEN.search(request["code"])
        number = int(found[0].rsplit("-", 1)[1]) if found else 0
        expected = program(self.seed, number).expected
        stdout = request["stdin"].strip()[::-1] + "\n" if "stdin" in request else expected.stdout
        return {"verdict": expected.verdict, "stdout": stdout, "stderr": expected.stderr, "exit_code": expected.exit_code, "error": None}

    def finish(self, job: Json, webhook: Json | None, status: str = "finished") -> None:
        job["result"] = self.result(job["request"]) if status == "finished" else None
        if status == "finished" and self.does("wrong-output", job["id"]):
            job["result"]["stdout"] += "more"
        if status == "finished" and self.does("give-up", job["id"]):
            job["result"] = {"verdict": "internal_error", "error": "the server died 3 times", "stdout": "", "stderr": ""}
        job["status"] = status
        if webhook and not self.does("lose-webhook", job["id"]):
            threading.Thread(target=self.call, args=(dict(job), webhook), daemon=True).start()

    def call(self, job: Json, webhook: Json) -> None:
        """Delivers a webhook, twice if it is refused."""
        body = json.dumps({"type": "job.ended", "data": job}).encode()
        secret = webhook["secret"] + ("!" if self.does("forge-webhook", job["id"]) else "")
        headers = {"webhook-id": job["id"], "webhook-timestamp": "1", "content-type": "application/json"}
        headers["webhook-signature"] = signature(secret, job["id"], "1", body)
        for _ in range(2):
            try:
                urllib.request.urlopen(urllib.request.Request(webhook["url"], body, headers), timeout=10).close()
                return
            except OSError:
                continue

    def get(self, handler: Any, id: str, waits: bool) -> None:
        job = self.jobs.get(id)
        if job is None or (not waits and self.does("lose-job", id)):
            return answer(handler, 404, {})
        if waits and job["status"] == "running":
            threading.Event().wait(0.05)
        shown = dict(job)
        if not waits and job["status"] == "finished" and self.does("change-result", id):
            shown["result"] = {**shown["result"], "execution_time": 2}
        answer(handler, 200, shown)

    def cancel(self, handler: Any, id: str) -> None:
        job = self.jobs.get(id)
        if job is None:
            return answer(handler, 404, {})
        if job["status"] == "running":
            shown = {**job}
            self.finish(job, job.pop("hook", None), "finished" if self.does("undo-cancel", id) else "cancelled")
            return answer(handler, 200, shown)
        answer(handler, 200, job)

    def list(self, handler: Any) -> None:
        ids = [id for id in self.jobs for _ in range(2 if self.does("list-twice", id) else 1)]
        answer(handler, 200, {"jobs": [{"id": id} for id in ids]})

    def events(self, handler: Any, id: str, after: int) -> None:
        job = self.jobs.get(id)
        if job is None:
            return answer(handler, 404, {})
        while job["status"] == "running":
            threading.Event().wait(0.05)
        last = {"event": "cancelled"} if job["result"] is None else {"event": "result", "result": job["result"]}
        text = (job["result"] or {}).get("stdout", "")
        pieces = [text[: len(text) // 2], text[len(text) // 2 :]] if len(text) > 1 else [text]
        stream = [{"event": "start"}, *({"event": "stdout", "data": piece} for piece in pieces if piece)]
        if job["result"] and job["result"].get("stderr"):
            stream.append({"event": "stderr", "data": job["result"]["stderr"]})
        stream.append(last)
        numbered = list(enumerate(stream, 1))
        if len(pieces) == 2 and pieces[0] != pieces[1]:
            if self.does("lose-event", id):
                del numbered[1]
            if self.does("swap-events", id):
                numbered[1], numbered[2] = numbered[2], numbered[1]
            if self.does("cut-character", id):
                numbered[1] = (2, {"event": "stdout", "data": pieces[0][:-1] + "\ufffd"})
            if self.does("repeat-event", id):
                after = max(0, after - 1)
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        for number, event in numbered:
            if number > after:
                handler.wfile.write(f"id: {number}\nevent: {event['event']}\ndata: {json.dumps(event)}\n\n".encode())
                if number == 2 and after == 0 and self.wrong == "repeat-event":
                    return  # the stream breaks, and the client resumes it

    def batch(self, handler: Any, body: Json) -> None:
        handler.send_response(200)
        handler.end_headers()
        for index, one in enumerate(body["inputs"]):
            event = {"event": "result", "index": index, "result": self.result({**body["request"], **one})}
            handler.wfile.write(f"event: result\ndata: {json.dumps(event)}\n\n".encode())
        handler.wfile.write(b'event: end\ndata: {"event": "end"}\n\n')


def answer(handler: Any, status: int, body: Json) -> None:
    content = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
