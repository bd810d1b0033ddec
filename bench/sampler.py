"""CPU time by process: the one way in which the benchmark measures it.

The kernel interrupts every CPU at a fixed period and notes which process runs, and whether in user or kernel mode
(`perf_event_open` with a CPU clock). Unlike the counters of processes and cgroups, this covers everything in the same
way: processes that live for a millisecond, the work of the kernel after they have ended, kernel threads, and contenders
that create cgroups elsewhere. Forks are noted too, so each sample can be attributed to a family of processes, and other
work on the machine is not mistaken for theirs. An interrupt takes about a microsecond, which all contenders pay alike.
"""

import ctypes
import dataclasses
import mmap
import os
import struct
import time

from measure import Failed
from processes import Family

# Not a divisor of the kernel's tick, so that work that a tick starts is neither missed nor always hit.
PERIOD = 241_313  # ns
PAGES = 1 << 10  # of each CPU's buffer; a power of two. A minute of samples, or some 80,000 forks.
IDLE = 0  # the process that runs when no other does
OWN = ("caller", "keeper", "init", "zygote", "helper", "program", "peer")  # the roles of a contender's processes

CALL = {"x86_64": 298, "aarch64": 241}
SOFTWARE, CPU_CLOCK, TID = 1, 0, 2  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_TID
DISABLED, TASK = 1 << 0, 1 << 13  # bits of perf_event_attr
ENABLE, DISABLE = 0x2400, 0x2401  # PERF_EVENT_IOC_*
CLOSE_ON_EXEC = 8
LOST, FORK, SAMPLE = 2, 7, 9  # PERF_RECORD_*
USER_MODE, MODES = 2, 7  # of a record's misc
HEAD, TAIL = 1024, 1032  # of the buffer's first page


class NoSampling(Exception):
    """Why CPU time cannot be sampled here."""


@dataclasses.dataclass(frozen=True)
class Spent:
    """CPU seconds in user and kernel mode."""

    user: float = 0.0
    system: float = 0.0

    @property
    def both(self):
        return self.user + self.system

    def __add__(self, other):
        return Spent(self.user + other.user, self.system + other.system)

    def __mul__(self, factor):
        return Spent(self.user * factor, self.system * factor)


class Meter:
    """The CPU time of one contender's calls by role, over any number of turns: `with meter: …`.

    Also that of the client, of kernel threads, and of everything else on the machine.
    """

    def __init__(self, sampler, contender):
        self.sampler, self.contender = sampler, contender
        self.roles, self.seconds = {}, 0.0

    def __enter__(self):
        self.family = Family.now(self.contender)
        self.began = time.perf_counter()
        self.sampler.start()
        return self

    def __exit__(self, failure, *_):
        spent, parents = self.sampler.stop()
        self.seconds += time.perf_counter() - self.began
        role = self.family.roles(parents)
        for pid, one in spent.items():
            name = role(pid)
            self.roles[name] = self.roles.get(name, Spent()) + one

    def of(self, *roles):
        return sum((self.roles.get(role, Spent()) for role in roles), Spent())

    @property
    def own(self):
        """The CPU time of the contender's own processes."""
        return self.of(*OWN)

    @property
    def machine(self):
        """The CPU time of everything but the client."""
        return self.of(*OWN, "kernel", "other")


class Sampler:
    """Samples all CPUs between `start` and `stop`. Nothing is read in between, so it costs the client nothing."""

    def __init__(self, period=PERIOD):
        self.period, self.buffers = period, []
        number = CALL.get(os.uname().machine)
        if number is None:
            raise NoSampling(f"the number of perf_event_open on {os.uname().machine} is unknown")
        libc = ctypes.CDLL(None, use_errno=True)
        # struct perf_event_attr, in the size of its first version; the kernel takes the rest as zero.
        attributes = struct.pack("=IIQQQQQIIQ", SOFTWARE, 64, CPU_CLOCK, period, TID, 0, DISABLED | TASK, 0, 0, 0)
        try:
            for cpu in online():
                descriptor = libc.syscall(number, attributes, -1, cpu, -1, ctypes.c_ulong(CLOSE_ON_EXEC))
                if descriptor < 0:
                    raise NoSampling(f"perf_event_open failed: {os.strerror(ctypes.get_errno())}")
                try:
                    memory = mmap.mmap(descriptor, (1 + PAGES) * mmap.PAGESIZE)
                except OSError as error:
                    os.close(descriptor)
                    raise NoSampling(f"the buffer of perf_event_open cannot be mapped: {error.strerror}") from error
                self.buffers.append((descriptor, memory))
        except BaseException:
            self.close()
            raise
        self.ioctl = libc.ioctl

    def start(self):
        for descriptor, memory in self.buffers:
            memory[TAIL : TAIL + 8] = memory[HEAD : HEAD + 8]
            self.ioctl(descriptor, ENABLE, 0)

    def stop(self):
        """CPU time of each process since `start`, and the parents of those that were forked."""
        for descriptor, _ in self.buffers:
            self.ioctl(descriptor, DISABLE, 0)
        counts, parents = {}, {}
        for _, memory in self.buffers:
            for kind, misc, body in records(memory):
                if kind == SAMPLE:
                    pid, _ = struct.unpack_from("=II", body)
                    count = counts.setdefault(pid, [0, 0])
                    count[misc & MODES != USER_MODE] += 1
                elif kind == FORK:
                    pid, parent = struct.unpack_from("=II", body)
                    if pid != parent:  # not a thread
                        parents[pid] = parent
                elif kind == LOST:
                    raise Failed("samples of CPU time were lost: the measurement takes too long for the buffer")
        second = self.period / 1e9
        spent = {pid: Spent(user * second, system * second) for pid, (user, system) in counts.items()}
        spent.pop(IDLE, None)
        return spent, parents

    def close(self):
        for descriptor, memory in self.buffers:
            memory.close()
            os.close(descriptor)
        self.buffers = []


def records(memory):
    """The records of a buffer: kind, misc, and body."""
    head, tail = (int.from_bytes(memory[at : at + 8], "little") for at in (HEAD, TAIL))
    size = PAGES * mmap.PAGESIZE
    content = memory[mmap.PAGESIZE :]
    start = tail % size
    content = (content[start:] + content[:start])[: head - tail]
    at = 0
    while at < len(content):
        kind, misc, length = struct.unpack_from("=IHH", content, at)
        yield kind, misc, content[at + 8 : at + length]
        at += length


def online():
    with open("/sys/devices/system/cpu/online") as file:
        ranges = [part.split("-") for part in file.read().strip().split(",")]
    return [cpu for one in ranges for cpu in range(int(one[0]), int(one[-1]) + 1)]
