"""What a server uses while it works, sampled every few seconds, and whether it stays flat."""

import contextlib
import dataclasses
import os
import threading
import time

import processes
from cluster import Server
from leftovers import groups_of

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Sample:
    """One look. Memory and disk are in bytes."""

    at: float
    phase: str
    done: int
    server_memory: int
    keeper_memory: int
    server_descriptors: int
    keeper_descriptors: int
    groups: int
    disk: int


# How much more the last third of a phase may use than the first: a share of it, and a constant.
BOUNDS: dict[str, tuple[float, int]] = {
    "server_memory": (0.10, 16 * MIB),
    "keeper_memory": (0.10, 8 * MIB),
    "server_descriptors": (0.10, 32),
    "keeper_descriptors": (0.10, 32),
    "groups": (0.0, 16),
    "disk": (0.25, 32 * MIB),
}


def growth(samples: list[Sample]) -> list[str]:
    """What has grown beyond its bound: the largest value of the first third against that of the last."""
    third = len(samples) // 3
    if third == 0:
        return [f"{len(samples)} samples are too few to judge"]
    wrong = []
    for name, (share, constant) in BOUNDS.items():
        early = max(getattr(sample, name) for sample in samples[:third])
        late = max(getattr(sample, name) for sample in samples[-third:])
        if late > early * (1 + share) + constant:
            wrong.append(f"{name} has grown from {early} in the first third to {late} in the last")
    return wrong


def size_of(directory: str) -> int:
    """Bytes on disk below a directory."""
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


class Sampler:
    """Looks at a server every few seconds, in a thread of its own."""

    def __init__(self, server: Server, every: float) -> None:
        self.server, self.every = server, every
        self.samples: list[Sample] = []
        self.began = time.monotonic()
        self.phase, self.done = "start", 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.over.wait(self.every):
            self.samples.append(self.look())

    def look(self) -> Sample:
        server, keeper = self.server.pid, self.server.keeper() or 0
        return Sample(
            at=round(time.monotonic() - self.began, 2),
            phase=self.phase,
            done=self.done,
            server_memory=processes.resident(server),
            keeper_memory=processes.resident(keeper),
            server_descriptors=processes.descriptors(server),
            keeper_descriptors=processes.descriptors(keeper),
            groups=len(groups_of(self.server.keepers)),
            disk=size_of(self.server.data),
        )

    def stop(self) -> None:
        self.over.set()
        self.thread.join(10)
