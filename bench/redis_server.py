"""A Redis for measurements."""

import contextlib
import os
import random
import re
import socket
import subprocess
import time

from measure import Failed


class Redis:
    """A Redis without persistence, on a Unix socket beside a port of loopback that it chooses."""

    def __init__(self, workshop):
        self.socket = os.path.join(workshop.directory, "redis.sock")
        # Redis cannot choose a free port; it ends at once if the port is taken.
        for _ in range(50):
            self.port = random.randrange(20_000, 32_000)
            command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket]
            self.process = subprocess.Popen([*command, "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL)
            for _ in range(100):
                if self.process.poll() is not None or os.path.exists(self.socket):
                    break
                time.sleep(0.05)
            if self.process.poll() is None:
                return
        raise Failed("Redis did not start")

    def ask(self, *words):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(
                b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)
            )
            data = b""
            while b"\r\n" not in data or (
                data[:1] == b"$" and len(data) < int(data[1 : data.index(b"\r\n")]) + data.index(b"\r\n") + 4
            ):
                data += connection.recv(65536)
            return data.decode()

    def commands(self, seconds):
        """How many commands clients send in so many seconds. Those that their scripts call are not sent."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(b"*1\r\n$7\r\nMONITOR\r\n")
            until, data = time.monotonic() + seconds, b""
            while (left := until - time.monotonic()) > 0:
                connection.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    data += connection.recv(65536)
        # The first line is the answer to the question.
        return sum(b" lua] " not in line for line in data.splitlines()[1:])

    def info(self):
        text = self.ask("INFO", "all")
        number = lambda name: float(re.search(rf"^{name}:([\d.]+)", text, re.M)[1])  # noqa: E731
        return {
            "bytes": number("used_memory"),
            # With those that scripts call.
            "commands": number("total_commands_processed"),
            "cpu": number("used_cpu_sys") + number("used_cpu_user"),
        }

    def stop(self):
        self.process.terminate()
        self.process.wait()
