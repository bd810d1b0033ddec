"""The servers, their store, and what can be done to them."""

import contextlib
import datetime
import glob
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import processes
from link import Links
from processes import Nursery

STARTS_WITHIN = 60.0  # seconds, for a machine with much to do
STOPS_WITHIN = 40.0
KEEPER_WITHIN = 10.0  # seconds until a killed keeper has to be replaced


def keepers_of(launcher: int) -> list[int]:
    return [pid for pid in processes.children(launcher) if processes.name(pid) == "sandbox-keeper"]


class Server:
    """A sandbox-server that is started again whenever it ends."""

    def __init__(self, name: str, program: str, work: str, data: str, nursery: Nursery, options: list[str], environment: dict[str, str] | None = None) -> None:
        self.environment = environment or {}
        self.name, self.program, self.data, self.nursery, self.options = name, program, data, nursery, options
        self.logs = os.path.join(work, f"{name}.log")
        self.temporary = os.path.join(work, f"{name}.tmp")
        self.home = os.path.join(work, f"{name}.home")  # toolchains write here as they please
        for directory in (self.temporary, self.home):
            os.makedirs(directory)
            os.chmod(directory, 0o1777)
        self.lock = threading.RLock()  # held by whatever is done to the server
        self.process: subprocess.Popen[bytes] | None = None
        self.address: tuple[str, int] | None = None
        self.keepers: set[str] = set()  # "PID-START" of every keeper that it had
        self.starts = 0
        self.failed_starts = 0
        self.wanted = False
        self.died: list[str] = []  # ends that nobody asked for

    def start(self) -> bool:
        """Starts the server; False if it did not come up, as with a store that is away."""
        with self.lock:
            log = f"{self.logs}.{self.starts}"
            self.starts += 1
            environment = {
                "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
                "HOME": self.home,
                "TMPDIR": self.temporary,
                "SANDBOX_DATA_DIR": self.data,
                "SANDBOX_PREPARE": "none",
                **self.environment,
            }
            command = [self.program, "--http-host", "127.0.0.1", "--http-port", "0", "--log-format", "json", *self.options]
            self.wanted, self.address = True, None
            self.process = process = self.nursery.start(command, log, environment)
            until = time.monotonic() + STARTS_WITHIN
            while time.monotonic() < until and process.poll() is None:
                if address := address_in(log):
                    self.address = address
                    self.note_keeper()
                    return True
                time.sleep(0.02)
            self.failed_starts += 1
            self.end(signal.SIGKILL)
            self.wanted = True
            return False

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def is_up(self) -> bool:
        return self.address is not None and self.process is not None and self.process.poll() is None

    def keeper(self) -> int | None:
        """The keeper's id. The server has started a launcher, and that the keeper."""
        return next((pid for launcher in processes.children(self.pid) for pid in keepers_of(launcher)), None)

    def note_keeper(self) -> None:
        keeper = self.keeper()
        if keeper is not None:
            self.keepers.add(f"{keeper}-{processes.start_time(keeper)}")

    def end(self, number: signal.Signals) -> None:
        """Ends the server and waits for it."""
        with self.lock:
            self.wanted, self.address = False, None
            process = self.process
            if process is None:
                return
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            try:
                process.wait(STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                self.died.append(f"did not end within {STOPS_WITHIN:.0f} s of {number.name}")
                process.kill()
                process.wait()
            self.nursery.forget(process)
            self.process = None

    def nurse(self) -> None:
        """Starts the server again if it has ended by itself."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.wanted and self.process is not None and (code := self.process.poll()) is not None:
                self.died.append(f"ended by itself with {code}: {tail(f'{self.logs}.{self.starts - 1}')}")
                self.end(signal.SIGKILL)
                self.wanted = True
            if self.wanted and self.process is None:
                self.start()
        finally:
            self.lock.release()

    def kill_keeper(self) -> tuple[bool, str | None]:
        """Kills the keeper. Whether there was one, and what is wrong if there is no other one soon."""
        with self.lock:
            keeper = self.keeper()
            if keeper is None or not processes.signal_child(processes.parent(keeper), keeper, "sandbox-keeper", signal.SIGKILL):
                return False, None
            until = time.monotonic() + KEEPER_WITHIN
            while time.monotonic() < until:
                if not self.is_up():
                    return True, None  # the server has ended too, and is started again
                other = self.keeper()
                if other not in (None, keeper):
                    self.note_keeper()
                    return True, None
                time.sleep(0.05)
            self.end(signal.SIGKILL)
            self.wanted = True
            return True, f"{self.name}: its keeper was killed and not replaced within {KEEPER_WITHIN:.0f} s"

    def kill_zygote(self, choice: int) -> bool:
        keeper = self.keeper()
        if keeper is None:
            return False
        zygotes = sorted(pid for pid in processes.children(keeper) if processes.name(pid) == "sandbox-zygotes")
        return bool(zygotes) and processes.signal_child(keeper, zygotes[choice % len(zygotes)], "sandbox-zygotes", signal.SIGKILL)


class Redis:
    """A Redis that writes everything to its file, on a socket in a directory."""

    def __init__(self, directory: str, nursery: Nursery) -> None:
        self.directory, self.nursery = directory, nursery
        self.socket = os.path.join(directory, "redis.sock")
        self.lock = threading.RLock()
        self.process: subprocess.Popen[bytes] | None = None
        os.makedirs(directory, exist_ok=True)

    def start(self) -> None:
        with self.lock:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.socket)
            command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.directory, "--save", ""]
            command += ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
            self.process = self.nursery.start(command, os.path.join(self.directory, "redis.log"))
            until = time.monotonic() + STARTS_WITHIN
            while time.monotonic() < until:
                with contextlib.suppress(OSError):
                    if self.command("PING").startswith(b"+PONG"):
                        return
                time.sleep(0.05)
            raise RuntimeError(f"redis-server does not start: {tail(os.path.join(self.directory, 'redis.log'))}")

    def command(self, *words: str) -> bytes:
        """Sends one command; the beginning of the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(self.socket)
            connection.sendall(b"".join([f"*{len(words)}\r\n".encode(), *(f"${len(w.encode())}\r\n{w}\r\n".encode() for w in words)]))
            return connection.recv(4096)

    def end(self, number: signal.Signals) -> None:
        with self.lock:
            if self.process is None:
                return
            self.process.send_signal(number)
            self.process.wait(STOPS_WITHIN)
            self.nursery.forget(self.process)
            self.process = None


class Clocks:
    """Clocks of servers that are off: a dynamically linked server, with the library of faketime."""

    def __init__(self, program: str, offsets: dict[str, int]) -> None:
        self.program, self.offsets = program, offsets
        found = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
        if not found:
            raise RuntimeError("libfaketimeMT.so.1 is missing; install the package faketime")
        self.library = found[0]

    def environment(self, offset: int) -> dict[str, str]:
        """Moves the time of day, and nothing else: time limits go by another clock, and files keep their times."""
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME": f"{offset:+d}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "NO_FAKE_STAT": "1",
        }


class SlowDisk:
    """Delays the synchronisations of a process with the disk, as a tracer that holds their system calls back."""

    ATTACHES_WITHIN = 20.0

    def __init__(self, pid: int, milliseconds: int, nursery: Nursery, work: str) -> None:
        self.pid, self.nursery = pid, nursery
        self.log = os.path.join(work, "strace.log")
        calls = "fsync,fdatasync,msync,sync_file_range"
        command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}", "-e", "signal=none"]
        command += ["-e", f"inject={calls}:delay_enter={milliseconds}ms", "-p", str(pid)]
        self.tracer = nursery.start(command, self.log)

    def has_begun(self) -> bool:
        """Waits until every thread is traced; False if the process has ended before."""
        until = time.monotonic() + self.ATTACHES_WITHIN
        while time.monotonic() < until and self.tracer.poll() is None:
            if (tracers := processes.tracers(self.pid)) and tracers == {self.tracer.pid}:
                return True
            time.sleep(0.02)
        if not processes.is_alive(self.pid):
            return False
        raise RuntimeError(f"cannot trace process {self.pid}: {tail(self.log)}")

    def wait(self, over: threading.Event, seconds: float) -> None:
        """Waits until the fault or the process ends."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and processes.is_alive(self.pid) and not over.wait(0.05):
            pass

    def end(self) -> None:
        """Lets the process go on; raises if it does not."""
        # The kernel lets go of what a dead tracer traced. Asked to end, strace 6.1 may wait for a thread that was killed.
        self.tracer.kill()
        self.tracer.wait()
        self.nursery.forget(self.tracer)
        # Threads of a process that is ending are let go of one by one.
        until = time.monotonic() + self.ATTACHES_WITHIN
        while processes.tracers(self.pid) - {0} and processes.is_alive(self.pid):
            if time.monotonic() > until:
                raise RuntimeError(f"process {self.pid} is still traced")
            time.sleep(0.02)


class Cluster:
    """One server on its own store, or several on one Redis."""

    def __init__(
        self, program: str, work: str, disk: str, servers: int, redis: bool, hooks: int, nursery: Nursery, clocks: Clocks | None = None
    ) -> None:
        self.work, self.disk, self.nursery, self.clocks = work, disk, nursery, clocks
        names = [f"server-{number}" for number in range(servers)]
        self.redis: Redis | None = None
        self.links: Links | None = None
        if redis:
            self.redis = Redis(os.path.join(work, "redis"), nursery)
            self.redis.start()
            self.links = Links(self.redis.socket, names)
        self.servers: list[Server] = []
        for name in names:
            options = ["--capacity", "2", "--ready-cells", "2", "--zygotes", "1"]
            options += ["--webhook-allow", f"127.0.0.1:{hooks}", "--webhook-retry", "300ms", "--http-shutdown-timeout", "3s"]
            if self.links is not None:
                options += ["--redis-addr", self.links.address(name)]
            offset = clocks.offsets.get(name, 0) if clocks else 0
            start, environment = (clocks.program, clocks.environment(offset)) if clocks and offset else (program, {})
            self.servers.append(Server(name, start, work, os.path.join(disk, name), nursery, options, environment))
        self.over = threading.Event()
        self.nurse = threading.Thread(target=self.watch, daemon=True)

    def start(self) -> None:
        for server in self.servers:
            asked = time.time()
            if not server.start():
                raise RuntimeError(f"{server.name} does not start: {tail(f'{server.logs}.0')}")
            wanted = self.clocks.offsets.get(server.name, 0) if self.clocks else 0
            found = (clock_in(f"{server.logs}.0") or 0.0) - asked
            if abs(found - wanted) > STARTS_WITHIN / 2:
                raise RuntimeError(f"the clock of {server.name} is off by {found:.0f} s instead of {wanted} s; is the program static?")
        self.nurse.start()

    def watch(self) -> None:
        while not self.over.wait(0.3):
            for server in self.servers:
                server.nurse()

    def server(self, name: str) -> Server:
        return next(server for server in self.servers if server.name == name)

    def addresses(self) -> list[tuple[str, tuple[str, int]]]:
        """The servers that have been started and not ended; one may be stopped."""
        return [(server.name, server.address) for server in self.servers if server.address is not None]

    def stop(self) -> None:
        """Ends everything in an orderly way."""
        self.over.set()
        self.nurse.join(STARTS_WITHIN + 5)
        for server in self.servers:
            server.note_keeper()
            server.end(signal.SIGTERM)
        if self.links is not None:
            self.links.close()
        if self.redis is not None:
            self.redis.end(signal.SIGTERM)

    def fill_disk(self) -> None:
        """Leaves no room on the small disk."""
        with open(os.path.join(self.disk, "filler"), "wb", buffering=0) as file:
            size = 1 << 20
            while size >= 512:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2

    def empty_disk(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.disk, "filler"))


def copy_data(source: str, target: str) -> None:
    """Copies a data directory without the sockets in it."""

    def sockets(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if stat.S_ISSOCK(os.lstat(os.path.join(directory, name)).st_mode)]

    shutil.copytree(source, target, ignore=sockets)


def roll_back(server: Server, older: str) -> None:
    """Replaces a server's data by an older copy while it is down: what a store leaves that acknowledges before it is durable."""
    shutil.rmtree(server.data)
    copy_data(older, server.data)
    status = os.stat(older)
    for directory, _, files in os.walk(server.data):
        for path in [directory, *(os.path.join(directory, file) for file in files)]:
            os.chown(path, status.st_uid, status.st_gid)


def clock_in(log: str) -> float | None:
    """The time of the last complete line that a server wrote into its log."""
    found = None
    with contextlib.suppress(OSError, ValueError, KeyError), open(log) as file:
        for line in file:
            if line.startswith("{") and line.endswith("}\n"):
                found = datetime.datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
    return found


def address_in(log: str) -> tuple[str, int] | None:
    """The address that a server wrote into its log."""
    with contextlib.suppress(OSError, ValueError), open(log) as file:
        for line in file:
            if '"address"' in line and line.endswith("}\n"):
                host, port = json.loads(line)["fields"]["address"].rsplit(":", 1)
                return host, int(port)
    return None


def tail(log: str, size: int = 600) -> str:
    with contextlib.suppress(OSError), open(log, errors="replace") as file:
        return file.read()[-size:].strip()
    return ""
