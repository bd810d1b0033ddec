"""Which faults happen when. The seed decides, and nothing else: the same seed gives the same schedule."""

import dataclasses
import random


@dataclasses.dataclass(frozen=True, order=True)
class Fault:
    """A fault: when it begins, in seconds, how long it lasts, and what it is done to."""

    at: float
    kind: str
    target: str
    lasts: float


# What can happen to each part, how often, and how long it may last in seconds.
SERVER = (
    ("server-kill", 10, (0.0, 2.0)),
    ("server-stop", 4, (0.3, 9.0)),
    ("server-restart", 3, (0.0, 1.0)),
    ("keeper-kill", 4, (0.0, 0.0)),
    ("zygote-kill", 3, (0.0, 0.0)),
)
REDIS = (
    ("redis-kill", 6, (0.0, 6.0)),
    ("redis-stop", 4, (0.3, 6.0)),
    ("redis-full", 2, (1.0, 4.0)),
)
SLOW_DISK = (("disk-slow", 3, (1.0, 6.0)),)
LINK = (
    ("link-cut", 4, (0.1, 5.0)),
    ("link-hold", 4, (0.5, 8.0)),
    ("link-deaf", 3, (0.5, 5.0)),
    ("link-slow", 3, (1.0, 5.0)),
)
DISK = (("disk-full", 2, (1.0, 4.0)), *SLOW_DISK)

# How far a server's clock may be off, in seconds.
CLOCKS = (60, 600)

# Seconds between the end of a fault and the next one of the same part, on average.
GAPS = {"server": 2.5, "shared-server": 7.0, "redis": 12.0, "link": 14.0, "disk": 8.0}


def plan(seed: int, seconds: float, servers: int, redis: bool, disk: bool, only: frozenset[str] = frozenset()) -> list[Fault]:
    """The faults of a run, by time. Faults of one part never overlap; those of different parts do.

    `disk` is whether the disk of the store can be broken: that of the only server, or of Redis.
    """
    names = [f"server-{number}" for number in range(servers)]
    lanes = [(name, "shared-server" if redis else "server", SERVER) for name in names]
    if redis:
        lanes.append(("redis", "redis", (*REDIS, *SLOW_DISK) if disk else REDIS))
        lanes += [(name, "link", LINK) for name in names]
    elif disk:
        lanes.append(("disk", "disk", DISK))
    faults = []
    for target, part, all_kinds in lanes:
        kinds = [kind for kind in all_kinds if not only or kind[0] in only]
        if not kinds:
            continue
        source = random.Random(f"{seed}/{part}/{target}")
        at = 2.0 + source.expovariate(1 / GAPS[part])
        while at < seconds:
            kind, _, (least, most) = source.choices(kinds, [weight for _, weight, _ in kinds])[0]
            # Short ones are more frequent, so that work gets done in between.
            lasts = min(least + (most - least) * source.random() ** 2, max(0.0, seconds - at))
            faults.append(Fault(round(at, 3), kind, target, round(lasts, 3)))
            at += lasts + 0.5 + source.expovariate(1 / GAPS[part])
    return sorted(faults)


def clock_offsets(seed: int, servers: int) -> dict[str, int]:
    """By how many seconds the clocks of servers are off: the first one's, about half of the others', ahead or behind."""
    offsets = {}
    for number in range(servers):
        source = random.Random(f"{seed}/clock/{number}")
        wrong = number == 0 or source.random() < 0.5
        seconds = source.randint(*CLOCKS) * source.choice((-1, 1))
        offsets[f"server-{number}"] = seconds if wrong else 0
    return offsets


def delay_of_disk(fault: Fault) -> int:
    """By how many milliseconds a slow disk delays each synchronisation."""
    return 20 + int(fault.at * 1000) % 480
