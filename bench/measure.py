"""Measures commands and HTTP requests through one small interface, sequentially or concurrently.

A *slot* does one call at a time, again and again: `prepare` (not measured), `begin`, then `feed` whenever its
descriptor is readable, until that returns the raw output. `stdout` decodes it after the clock has stopped.

The client shares the CPUs with what it measures, so it does little: it prepares messages and arguments once for each
source, and its connections stay registered with epoll. (A slot is `watched` while its descriptor is.)
"""

import gc
import json
import os
import re
import select
import signal
import socket
import time

# Stands for the source among the arguments of a command; an object, because any text could be an argument by accident.
CODE = object()


LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Failed(Exception):
    """A contender failed, or gave a wrong answer."""


class Command:
    """Sequential commands, started by `posix_spawn` (vfork and exec); the output of the last one counts."""

    lasting = False  # each command has a new pipe

    def __init__(self, steps, environment, log, source_file=None, extra=()):
        self.steps = steps  # argument lists; CODE stands for the source, and a function for its result
        # As bytes: strings would be encoded for each process.
        self.environment = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        self.source_file = source_file
        self.log = log
        self.actions = [
            (os.POSIX_SPAWN_DUP2, self.log, 2),
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            *extra,
        ]
        self.pid = self.source = None
        self.watched = False
        # Without a function among the arguments, the same source has the same commands.
        self.constant = not any(callable(word) for step in steps for word in step)

    def prepare(self, source):
        if self.constant and source == self.source:
            return
        self.source = source
        if self.source_file:
            with open(self.source_file, "w") as file:
                file.write(source)
        self.commands = [
            [source if word is CODE else word() if callable(word) else word for word in step] for step in self.steps
        ]

    def begin(self):
        self.left = iter(self.commands)
        self._spawn(next(self.left))

    def _spawn(self, argv):
        self.read_end, write_end = os.pipe()
        # First, because the others may open files at the numbers of these descriptors.
        actions = [(os.POSIX_SPAWN_DUP2, write_end, 1), *self.actions]
        try:
            self.pid = os.posix_spawn(argv[0], argv, self.environment, file_actions=actions)
        finally:
            os.close(write_end)
        self.chunks = []

    def fileno(self):
        return self.read_end

    def feed(self):
        chunk = os.read(self.read_end, 65536)
        if chunk:
            self.chunks.append(chunk)
            return None
        os.close(self.read_end)
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        if status != 0:
            return b"".join(self.chunks), status
        following = next(self.left, None)
        if following is None:
            return b"".join(self.chunks), 0
        self._spawn(following)
        return None

    def stdout(self, answer):
        output, status = answer
        if status != 0:
            raise Failed(f"{self.commands[0][0]} ended with {os.waitstatus_to_exitcode(status)} and said {output!r}")
        return output.decode(errors="replace")

    def close(self):
        """Ends a call in progress, if the measurement was aborted."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.read_end)
            self.pid = None


class Request:
    """A POST over a persistent connection. No library, because its overhead would be charged to the server."""

    lasting = True

    def __init__(self, address, path, encode, decode, status=200):
        self.encode, self.decode, self.status = encode, decode, status
        self.address, self.source = address, None
        self._connect()
        host = f"{address[0]}:{address[1]}"
        self.head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "

    def _connect(self):
        self.socket = socket.create_connection(self.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.used = time.monotonic()
        self.watched = False

    def prepare(self, source):
        # Servers close idle connections, for example while other contenders run.
        if time.monotonic() - self.used > 2:
            self.socket.close()
            self._connect()
        if source != self.source:
            self.source = source
            body = json.dumps(self.encode(source)).encode()
            self.message = f"{self.head}{len(body)}\r\n\r\n".encode() + body

    def begin(self):
        self.used = time.monotonic()
        self.received = b""
        self.body = None
        self.socket.sendall(self.message)

    def fileno(self):
        return self.socket.fileno()

    def feed(self):
        chunk = self.socket.recv(65536)
        if not chunk:
            raise Failed(f"the connection was closed after {self.received!r}")
        self.received += chunk
        if self.body is None:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return None
            self.body = end + 4
            length = LENGTH.search(self.received, 0, end)
            self.length = int(length[1]) if length else None
        if self.length is not None:
            return self.received if len(self.received) >= self.body + self.length else None
        # Chunked encoding. This sequence cannot occur within JSON.
        return self.received if self.received.endswith(b"\r\n0\r\n\r\n") else None

    def json(self, answer, status=None):
        """The body of an answer with the expected status."""
        body = answer[self.body :]
        if self.length is None:
            chunks = []
            while (line := body.index(b"\r\n")) and (size := int(body[:line], 16)):
                chunks.append(body[line + 2 : line + 2 + size])
                body = body[line + 4 + size :]
            body = b"".join(chunks)
        if not answer.startswith(b"HTTP/1.1 %d " % (status or self.status)):
            raise Failed(f"the answer was {answer[9:12].decode()}: {body[:500]!r}")
        return json.loads(body)

    def stdout(self, answer):
        return self.decode(self.json(answer))

    def close(self):
        self.socket.close()


class Contender:
    """A contender in a case: how to create slots, and which processes do its work."""

    def __init__(self, name, new_slot, every=1, living=dict, started="program"):
        self.name = name
        self.new_slot = new_slot
        self.every = every  # takes part in each round, or in every second, … if it is slow
        self.living = living  # its running processes → their roles (processes.py)
        self.started = started  # the role of the processes that its slots start


def check(slot, answer, expected):
    output = slot.stdout(answer)
    if output != expected:
        raise Failed(f"printed {output!r} instead of {expected!r}")


def once(slot, source, expected):
    """Milliseconds from start to end."""
    slot.prepare(source)
    began = time.perf_counter()
    slot.begin()
    while (answer := slot.feed()) is None:
        pass
    took = (time.perf_counter() - began) * 1000
    check(slot, answer, expected)
    return took


def interleaved(contenders, programs, rounds, warm_up=3):
    """Times of each contender. They take turns, so that other load on the host affects all of them equally."""
    slots = {contender.name: contender.new_slot() for contender in contenders}
    times = {contender.name: [] for contender in contenders}
    with no_garbage_collection():
        try:
            for number in range(-warm_up, rounds):  # the first ones fill caches
                for contender in contenders:
                    if number > 0 and number % contender.every != 0:
                        continue
                    try:
                        took = once(slots[contender.name], *next(programs))
                    except (Failed, OSError) as failure:
                        raise Failed(f"{contender.name}: {failure}") from failure
                    if number >= 0:
                        times[contender.name].append(took)
        finally:
            for slot in slots.values():
                slot.close()
    return times


def at_once(contender, programs, concurrency, count, ready=lambda: None):
    """Times of `count` calls, `concurrency` of them at a time, and the total time in seconds.

    `ready` is called when connections are open and the first call is about to begin.
    """
    slots, times, began_at, expected = {}, [], {}, {}
    poll = select.epoll()
    left = count

    def begin(slot):
        nonlocal left
        left -= 1
        source, expected[slot] = next(programs)
        slot.prepare(source)
        began_at[slot] = time.perf_counter()
        slot.begin()
        watch(slot)

    def watch(slot):
        if not slot.watched:
            slot.watched = True
            slots[slot.fileno()] = slot
            poll.register(slot.fileno(), select.EPOLLIN)

    with no_garbage_collection():
        all_slots = [contender.new_slot() for _ in range(min(concurrency, count))]
        try:
            ready()
            started = time.perf_counter()
            for slot in all_slots:
                begin(slot)
            while len(times) < count:
                for descriptor, _ in poll.poll():
                    slot = slots[descriptor]
                    if not slot.lasting:
                        # Closing it is not enough: a process that is just being started has a copy.
                        slot.watched = False
                        poll.unregister(descriptor)
                    answer = slot.feed()
                    if answer is None:
                        watch(slot)
                        continue
                    times.append((time.perf_counter() - began_at[slot]) * 1000)
                    check(slot, answer, expected[slot])
                    if left > 0:
                        begin(slot)
                    else:
                        slot.close()  # or the server closes it, which would look like an answer
            return times, time.perf_counter() - started
        except (Failed, OSError) as failure:
            raise Failed(f"{contender.name}, {concurrency} at once: {failure}") from failure
        finally:
            for slot in all_slots:
                slot.close()
            poll.close()


class no_garbage_collection:
    """Garbage collection during a measurement would distort the slowest calls."""

    def __enter__(self):
        gc.collect()
        gc.disable()

    def __exit__(self, *_):
        gc.enable()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def summary(times):
    return {"n": len(times), **{name: round(percentile(times, share), 4) for name, share in SHARES.items()}}


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
