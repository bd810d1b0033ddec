"""Processes: those that a run starts, their children, and the orphans that must not be left."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Makes this process the parent of every orphan below it, so that none goes unseen."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def own_mounts() -> bool:
    """Enters a mount namespace of its own; False if this needs more privileges."""
    if LIBC.unshare(CLONE_NEWNS) != 0:
        return False
    return LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


def mount_tmpfs(path: str, size: int) -> None:
    """A small disk, in the mount namespace of this process."""
    os.makedirs(path, exist_ok=True)
    if LIBC.mount(b"tmpfs", path.encode(), b"tmpfs", 0, f"size={size},mode=755".encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount a tmpfs at {path}")


def unmount(path: str) -> None:
    LIBC.umount2(path.encode(), 2)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(word) for word in file.read().split()]
    return found


def name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return ""


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; the first is the state."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []


def parent(pid: int) -> int:
    """The parent's id, or 0 if there is no such process."""
    found = fields(pid)
    return int(found[1]) if len(found) > 1 else 0


def start_time(pid: int) -> str:
    found = fields(pid)
    return found[19] if len(found) > 19 else ""


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    return fields(pid)[:1] not in ([], ["Z"], ["X"])


def tracers(pid: int) -> set[int]:
    """The processes that trace the threads of a process; 0 for threads that none does."""
    found = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/status") as file:
                found |= {int(line.split()[1]) for line in file if line.startswith("TracerPid:")}
    return found


def resident(pid: int) -> int:
    """Memory of a process in bytes: its share of what it uses, or 0 if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def descriptors(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def signal_child(parent: int, child: int, expected: str, number: signal.Signals) -> bool:
    """Sends a signal to a child with this name, and to no other process that may have got its number."""
    try:
        handle = os.pidfd_open(child)
    except OSError:
        return False
    try:
        found = fields(child)
        if len(found) < 2 or int(found[1]) != parent or name(child) != expected:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


class Nursery:
    """Starts processes, and reaps orphans that came to this one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.own: dict[int, subprocess.Popen[bytes]] = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.reap, daemon=True)
        self.thread.start()

    def start(self, command: list[str], log: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
        with self.lock, open(log, "ab") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            self.own[process.pid] = process
            return process

    def forget(self, process: "subprocess.Popen[bytes]") -> None:
        with self.lock:
            self.own.pop(process.pid, None)

    def orphans(self) -> list[int]:
        """Children of this process that it did not start."""
        with self.lock:
            return [pid for pid in children(os.getpid()) if pid not in self.own]

    def reap(self) -> None:
        while not self.over.wait(0.2):
            for pid in self.orphans():
                if fields(pid)[:1] == ["Z"]:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)

    def left(self, patience: float) -> list[int]:
        """Orphans that are still there after a while."""
        until = time.monotonic() + patience
        while (found := self.orphans()) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def close(self) -> None:
        """Ends whatever is left."""
        for process in list(self.own.values()):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            self.forget(process)
        for pid in self.orphans():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.left(3)
        self.over.set()
        self.thread.join(2)
