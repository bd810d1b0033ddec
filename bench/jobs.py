"""Measures jobs on both stores, against synchronous runs where that is the question."""

import contextlib
import itertools
import json
import socket
import time
import urllib.request

from measure import Contender, Failed, Request, at_once, percentile
from product import Server
from redis_server import Redis

CODE = "print('x' * 8)"
PRINTED = "x" * 8 + "\n"
# The request of a stored job is as large as this.
PADDED = CODE + "#" * (1024 - len(CODE))
CLIENTS = 32
# Work that is measured, by mode: created jobs, runs at a time and in all, rounds for the first output.
WORK = {"full": (20_000, 2_500, 60), "quick": (4_000, 200, 20), "smoke": (64, 8, 2)}


def programs(source, printed):
    return itertools.repeat((source, printed))


def creates(servers, source):
    """A contender that creates jobs that do not start, on each server in turn."""
    turns = itertools.cycle(servers)
    encode = lambda code: {"code": code, "delay": "1h"}  # noqa: E731
    slot = lambda: Request(next(turns).address, "/v1/execute", encode, lambda job: job["status"], 202)  # noqa: E731
    return Contender("jobs", slot), programs(source, "queued")


def created(servers, count):
    """Jobs created a second, with as many clients as in the bar."""
    contender, wanted = creates(servers, PADDED)
    at_once(contender, wanted, CLIENTS, max(CLIENTS, count // 20))
    return count / at_once(contender, wanted, CLIENTS, count)[1]


def carried_out(server, count, source=CODE):
    """Seconds until so many jobs are created and have ended. The results are checked afterwards."""
    identities = []

    def status(job):
        identities.append(job["id"])
        return job["status"]

    contender = Contender("jobs", lambda: Request(server.address, "/v1/execute", lambda code: {"code": code}, status, 202))
    began = time.perf_counter()
    at_once(contender, programs(source, "queued"), CLIENTS, count)
    # Jobs start in the order of their ids, so that the last ones to end are among these.
    for identity in sorted(identities)[-16:]:
        ask(server, f"/v1/execute/{identity}?wait=60s")
    took = time.perf_counter() - began
    for identity in identities:
        job = ask(server, f"/v1/execute/{identity}")
        if not job.get("result") or job["result"]["stdout"] != PRINTED:
            raise Failed(f"a job did not end as it should: {job}")
    return took


def ask(server, path):
    with urllib.request.urlopen(f"http://{server.address[0]}:{server.address[1]}{path}", timeout=70) as answer:
        return json.load(answer)


def first_output(address, stream):
    """Milliseconds from a request to the first output that the client sees: of a run, or of a job that it follows."""
    host = f"{address[0]}:{address[1]}"
    body = '{"code": "print(1)"}'
    post = f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"

    def read(connection, end):
        received = b""
        while end not in received:
            chunk = connection.recv(65536)
            if not chunk:
                raise Failed(f"the connection was closed after {received!r}")
            received += chunk
        return received

    with socket.create_connection(address, 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        if stream:
            connection.sendall(f"POST /execute?stream=true HTTP/1.1\r\n{post}".encode())
        else:
            connection.sendall(f"POST /v1/execute HTTP/1.1\r\n{post}".encode())
            answer = read(connection, b"}")
            identity = answer[answer.index(b'"id":"') + 6 :].split(b'"')[0].decode()
            connection.sendall(f"GET /v1/execute/{identity}/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        read(connection, b"event: stdout")
        return (time.perf_counter() - began) * 1000


def measure(program, workshop, cores, mode, say):
    """Everything about jobs; every server and Redis is ended."""
    jobs, runs, rounds = WORK[mode]
    large = {"SANDBOX_QUEUE": "1000000", "SANDBOX_QUEUE_PER_KEY": "1000000", "SANDBOX_JOB_STORAGE": "10g"}
    figures = {}
    with contextlib.ExitStack() as stack:
        say("bench: jobs, embedded store")
        server = Server(program, workshop, cores, name="embedded", settings=large)
        stack.callback(server.stop)
        figures["created_embedded"] = created([server], jobs // 2)
    with contextlib.ExitStack() as stack:
        redis = Redis(workshop)
        stack.callback(redis.stop)
        shared = {**large, "REDIS_URL": f"redis://127.0.0.1:{redis.port}"}
        say("bench: jobs, Redis, created on two servers")
        both = []
        for name in ("first", "second"):
            both.append(Server(program, workshop, cores, name=name, settings=shared))
            stack.callback(both[-1].stop)
        figures["created_redis"] = created(both, jobs)
    with contextlib.ExitStack() as stack:
        redis = Redis(workshop)
        stack.callback(redis.stop)
        shared = {**large, "REDIS_URL": f"redis://127.0.0.1:{redis.port}"}
        server = Server(program, workshop, 4 * cores, name="alone", settings=shared)
        stack.callback(server.stop)
        say("bench: jobs, Redis, an idle server")
        time.sleep(5)
        seconds = 2 if mode == "smoke" else 20
        figures["idle_commands"] = redis.commands(seconds) / seconds
        say("bench: jobs, Redis, against synchronous runs")
        encode, decode = lambda code: {"code": code}, lambda result: result["stdout"]
        direct = Contender("runs", lambda: Request(server.address, "/execute", encode, decode))
        each = max(runs // 5, 4 * cores)
        spent = {"runs": 0.0, "jobs": 0.0}
        for turn in range(6):
            warm_up = turn == 0
            took = {"runs": at_once(direct, programs(CODE, PRINTED), 4 * cores, each)[1], "jobs": carried_out(server, each)}
            for side, seconds in took.items():
                spent[side] += 0.0 if warm_up else seconds
        figures["throughput"] = {side: 5 * each / seconds for side, seconds in spent.items()}
        times = {True: [], False: []}
        for number in range(-3, rounds):
            for stream, values in times.items():
                took = first_output(server.address, stream)
                if number >= 0:
                    values.append(took)
                time.sleep(0.02)
        figures["first_output"] = {"run": percentile(times[True], 0.5), "job": percentile(times[False], 0.5)}
        say("bench: jobs, Redis, memory of finished ones")
        before = redis.info()["bytes"]
        carried_out(server, runs, PADDED)
        figures["finished_bytes"] = (redis.info()["bytes"] - before) / runs
    return figures
