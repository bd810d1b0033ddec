"""What a chaos run saw: the record that clients write and the checker reads."""

import dataclasses
import threading
import time
from typing import Any

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Expected:
    """The only right answer of a program."""

    stdout: str
    exit_code: int = 0
    stderr: str = ""
    verdict: str = "ok"


@dataclasses.dataclass
class Event:
    """A server-sent event: its id, its name and its data."""

    number: int
    name: str
    data: Json


@dataclasses.dataclass
class Seen:
    """A job in a final state, as one source showed it."""

    source: str
    at: float
    status: str
    result: Json | None


@dataclasses.dataclass
class Task:
    """A job that a client tried to create, and everything that clients saw of it."""

    number: int
    token: str
    kind: str
    expected: Expected
    key: str | None = None
    secret: str | None = None
    sends: int = 0  # requests that may have created a job
    acknowledged: list[tuple[float, str]] = dataclasses.field(default_factory=list)  # (time, job id)
    cancelled_at: float | None = None  # a cancel was acknowledged before the job had ended
    seen: list[Seen] = dataclasses.field(default_factory=list)
    followed: list[Event] = dataclasses.field(default_factory=list)  # one stream, resumed where it broke
    followed_to_end: bool = False

    @property
    def id(self) -> str | None:
        return self.acknowledged[0][1] if self.acknowledged else None


@dataclasses.dataclass
class Final:
    """A job after everything has settled, as one server shows it."""

    server: str
    status: int  # of HTTP
    job: Json | None
    events: list[Event]


@dataclasses.dataclass
class Run:
    """A synchronous run, or one input of a batch."""

    token: str
    began: float
    ended: float
    status: int
    result: Json | None
    expected: Expected


@dataclasses.dataclass
class Delivery:
    """A webhook that the receiver got."""

    at: float
    job: str
    valid: bool  # the signature
    accepted: bool  # the receiver answered with 2xx
    body: Json


@dataclasses.dataclass(frozen=True)
class Happened:
    """A fault that was injected, with the times at which it really began, was being undone, and was over."""

    kind: str
    target: str
    began: float
    ended: float
    lifted: float | None = None

    def holds_until(self) -> float:
        """What was away may be back from here on, before that is noticed."""
        return self.ended if self.lifted is None else self.lifted


@dataclasses.dataclass(frozen=True)
class Probe:
    """An answer of /readyz; the status is 0 if there was none."""

    server: str
    asked: float
    answered: float
    status: int


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An answer of the job API that is neither a success nor the client's fault."""

    at: float
    what: str
    status: int
    retry_after: bool
    detail: str


class History:
    """Everything that was seen. Threads add to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begin()
        self.tasks: list[Task] = []
        self.runs: list[Run] = []
        self.batches: list[tuple[int, list[int]]] = []  # inputs, and the indexes of results up to `end`
        self.deliveries: list[Delivery] = []
        self.faults: list[Happened] = []
        self.probes: list[Probe] = []
        self.refusals: list[Refusal] = []
        self.finals: dict[str, list[Final]] = {}  # by job id
        self.listed: list[str] = []  # every id that listing returned, in order
        self.strangers: dict[str, str] = {}  # listed, never acknowledged: id → token in its program
        self.leftovers: list[str] = []
        self.not_recovered: list[str] = []
        self.forgotten_at: float | None = None  # when the store was emptied on purpose

    def begin(self) -> None:
        """The time from which on all times are counted."""
        self.started, self.started_at = time.monotonic(), time.time()

    def now(self) -> float:
        return time.monotonic() - self.started

    def add(self, where: list[Any], what: Any) -> None:
        with self.lock:
            where.append(what)

    def see(self, task: Task, source: str, job: Json) -> None:
        """Notes a job that has ended; others are ignored."""
        if job.get("status") in ("finished", "cancelled"):
            self.add(task.seen, Seen(source, self.now(), job["status"], job.get("result")))
