"""Carries a schedule out: does to servers, Redis, links and disk what it says, and writes down when it really happened."""

import contextlib
import signal
import threading
import time

from cluster import Cluster, SlowDisk
from history import Happened, History
from schedule import Fault, delay_of_disk


class Injector:
    """One thread for each fault, so that faults of different parts overlap as planned."""

    def __init__(self, cluster: Cluster, history: History, faults: list[Fault]) -> None:
        self.cluster, self.history, self.faults = cluster, history, faults
        self.over = threading.Event()
        self.last = ""
        self.began: dict[Fault, float] = {}
        self.lifted: dict[Fault, float] = {}
        self.done: dict[str, int] = {}
        self.skipped = 0
        self.broken: list[str] = []
        self.threads: list[threading.Thread] = []
        self.main = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self.main.start()

    def run(self) -> None:
        for fault in self.faults:
            if self.over.wait(max(0.0, fault.at - self.history.now())):
                return
            thread = threading.Thread(target=self.inject, args=(fault,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """No more faults; waits for those under way, which then end at once."""
        self.over.set()
        self.main.join(10)
        for thread in self.threads:
            thread.join(150)
            if thread.is_alive():
                self.broken.append("a fault does not end")

    def inject(self, fault: Fault) -> None:
        self.began[fault] = self.history.now()
        try:
            was_injected = getattr(self, fault.kind.replace("-", "_"))(fault)
        except (OSError, RuntimeError) as error:
            self.broken.append(f"{fault.kind} of {fault.target} at {fault.at}: {error}")
            return
        if not was_injected:
            self.skipped += 1
            return
        happened = Happened(fault.kind, fault.target, self.began[fault], self.history.now(), self.lifted.get(fault))
        self.history.add(self.history.faults, happened)
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1

    def say(self, fault: Fault) -> None:
        """It happens now: whatever the fault had to wait for is over."""
        self.began[fault] = self.history.now()
        self.last = f"{fault.kind} {fault.target} {fault.lasts:.1f}s"

    def pause(self, fault: Fault) -> None:
        self.over.wait(fault.lasts)
        self.lifted[fault] = self.history.now()

    def server_kill(self, fault: Fault) -> bool:
        return self.end_server(fault, signal.SIGKILL)

    def server_restart(self, fault: Fault) -> bool:
        return self.end_server(fault, signal.SIGTERM)

    def end_server(self, fault: Fault, number: signal.Signals) -> bool:
        server = self.cluster.server(fault.target)
        with server.lock:
            if not server.is_up():
                return False
            self.say(fault)
            server.note_keeper()
            server.end(number)
            self.pause(fault)
            server.start()  # or the nurse does it later, if the store is away
        return True

    def server_stop(self, fault: Fault) -> bool:
        server = self.cluster.server(fault.target)
        with server.lock:
            if not server.is_up() or server.process is None:
                return False
            self.say(fault)
            server.process.send_signal(signal.SIGSTOP)
            self.pause(fault)
            server.process.send_signal(signal.SIGCONT)
        return True

    def keeper_kill(self, fault: Fault) -> bool:
        server = self.cluster.server(fault.target)
        if not server.is_up():
            return False
        self.say(fault)
        killed, wrong = server.kill_keeper()
        if wrong:
            self.history.add(self.history.not_recovered, wrong)
        return killed

    def zygote_kill(self, fault: Fault) -> bool:
        server = self.cluster.server(fault.target)
        if not server.is_up():
            return False
        self.say(fault)
        return server.kill_zygote(int(fault.at * 1000))

    def redis_kill(self, fault: Fault) -> bool:
        redis = self.cluster.redis
        assert redis is not None
        with redis.lock:
            self.say(fault)
            redis.end(signal.SIGKILL)
            self.pause(fault)
            redis.start()
        return True

    def redis_stop(self, fault: Fault) -> bool:
        redis = self.cluster.redis
        assert redis is not None
        with redis.lock:
            if redis.process is None:
                return False
            self.say(fault)
            redis.process.send_signal(signal.SIGSTOP)
            self.pause(fault)
            redis.process.send_signal(signal.SIGCONT)
        return True

    def redis_full(self, fault: Fault) -> bool:
        redis = self.cluster.redis
        assert redis is not None
        with redis.lock:
            self.say(fault)
            redis.command("CONFIG", "SET", "maxmemory", "1")
            self.pause(fault)
            redis.command("CONFIG", "SET", "maxmemory", "0")
        return True

    def redis_forget(self, fault: Fault) -> bool:
        """Redis comes back without its data."""
        redis = self.cluster.redis
        assert redis is not None
        with redis.lock:
            self.say(fault)
            redis.command("FLUSHALL")
            self.history.forgotten_at = self.history.now()
        return True

    def link_cut(self, fault: Fault) -> bool:
        return self.turn(fault, "cut")

    def link_hold(self, fault: Fault) -> bool:
        return self.turn(fault, "hold")

    def link_deaf(self, fault: Fault) -> bool:
        return self.turn(fault, "deaf")

    def link_slow(self, fault: Fault) -> bool:
        return self.turn(fault, "slow")

    def turn(self, fault: Fault, mode: str) -> bool:
        links = self.cluster.links
        assert links is not None
        self.say(fault)
        links.turn(fault.target, mode)
        try:
            self.pause(fault)
        finally:
            links.turn(fault.target, "pass")
        return True

    def disk_full(self, fault: Fault) -> bool:
        self.say(fault)
        self.cluster.fill_disk()
        try:
            self.pause(fault)
        finally:
            with contextlib.suppress(OSError):
                self.cluster.empty_disk()
        return True

    def disk_slow(self, fault: Fault) -> bool:
        """Delays whatever waits for the disk. If the process is killed meanwhile, its successor has a fast one."""
        process = (self.cluster.redis or self.cluster.servers[0]).process
        if process is None or process.poll() is not None:
            return False
        slow = SlowDisk(process.pid, delay_of_disk(fault), self.cluster.nursery, self.cluster.work)
        try:
            if not slow.has_begun():
                return False
            self.say(fault)
            slow.wait(self.over, fault.lasts)
        finally:
            slow.end()
        return True


def settle(cluster: Cluster, patience: float) -> list[str]:
    """Waits until every server has been started; the names of those that were not."""
    until = time.monotonic() + patience
    while time.monotonic() < until and not all(server.is_up() for server in cluster.servers):
        time.sleep(0.1)
    return [server.name for server in cluster.servers if not server.is_up()]
