"""Asks every server's /readyz again and again, and writes the answers down."""

import threading
import time

import api
from clients import Servers
from history import History, Probe


class Prober:
    """One thread for each server."""

    def __init__(self, names: list[str], history: History, servers: Servers) -> None:
        self.history, self.servers = history, servers
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.probe, args=(name,), daemon=True) for name in names]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def probe(self, name: str) -> None:
        while not self.over.wait(0.2):
            address = dict(self.servers()).get(name)
            if address is not None:
                asked = self.history.now()
                status = ready(address)
                self.history.add(self.history.probes, Probe(name, asked, self.history.now(), status))

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(5)


def ready(address: api.Address, patience: float = 3.0) -> int:
    try:
        return api.ask(address, "GET", "/readyz", patience=patience)[0]
    except api.Unanswered:
        return 0


def await_ready(name: str, servers: Servers, patience: float) -> bool:
    """Whether a server says that it is ready, within a time."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        address = dict(servers()).get(name)
        if address is not None and ready(address) == 200:
            return True
        time.sleep(0.1)
    return False
