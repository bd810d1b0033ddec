"""A seed reproduces its faults, links do what their mode says, and slow disks delay and let go."""

import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import processes
from cluster import SlowDisk
from link import Links
from processes import Nursery
from schedule import clock_offsets, plan


class Schedules(unittest.TestCase):
    def test_a_seed_reproduces_its_schedule(self) -> None:
        for seed in range(20):
            self.assertEqual(plan(seed, 60, 3, True, False), plan(seed, 60, 3, True, False))
        self.assertNotEqual(plan(1, 60, 3, True, False), plan(2, 60, 3, True, False))

    def test_faults_of_one_part_never_overlap(self) -> None:
        for seed in range(20):
            last: dict[tuple[str, str], float] = {}
            for fault in plan(seed, 300, 3, True, True):
                part = fault.kind.split("-")[0].replace("keeper", "server").replace("zygote", "server")
                lane = (fault.target, "redis" if fault.target == "redis" else part)
                self.assertGreaterEqual(fault.at, last.get(lane, 0.0))
                last[lane] = fault.at + fault.lasts

    def test_every_kind_happens(self) -> None:
        shared = {fault.kind for seed in range(10) for fault in plan(seed, 120, 2, True, True)}
        alone = {fault.kind for seed in range(10) for fault in plan(seed, 120, 1, False, True)}
        self.assertEqual((len(shared), len(alone), len(shared | alone)), (13, 7, 14))
        self.assertIn("disk-slow", shared & alone)

    def test_disks_are_broken_only_where_that_is_possible(self) -> None:
        kinds = {fault.kind for seed in range(10) for redis in (True, False) for fault in plan(seed, 120, 2, redis, False)}
        self.assertFalse({kind for kind in kinds if kind.startswith("disk")})

    def test_the_short_run_has_the_faults_that_matter(self) -> None:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../Makefile")) as file:
            seed = int(next(line.split("=")[1] for line in file if line.startswith("chaos-short: SEED =")))
        kinds = {fault.kind for fault in plan(seed, 30, 1, False, True) if fault.at < 27}
        self.assertLessEqual({"server-kill", "server-stop", "disk-slow", "disk-full"}, kinds)
        self.assertIn("disk-slow", {fault.kind for fault in plan(seed, 30, 2, True, True) if fault.at < 27})

    def test_clocks_are_off_by_minutes_as_the_seed_says(self) -> None:
        for seed in range(20):
            offsets = clock_offsets(seed, 3)
            self.assertEqual(offsets, clock_offsets(seed, 3))
            self.assertTrue(60 <= abs(offsets["server-0"]) <= 600, offsets)
        every = [offset for seed in range(20) for offset in clock_offsets(seed, 3).values()]
        self.assertTrue(min(every) < 0 < max(every) and 0 in every)

    def test_only_the_wanted_kinds_happen(self) -> None:
        faults = plan(1, 120, 2, True, True, frozenset({"server-kill"}))
        self.assertEqual({fault.kind for fault in faults}, {"server-kill"})


@unittest.skipUnless(os.geteuid() == 0, "needs root, as in a run")
class SlowDisks(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory, self.nursery = directory.name, Nursery()
        self.addCleanup(self.nursery.close)

    def start(self) -> "subprocess.Popen[bytes]":
        """A process that synchronises a file again and again, and counts."""
        path = os.path.join(self.directory, "file")
        code = "import os, sys\nfile = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\nwhile True:\n    os.write(file, b'.'); os.fdatasync(file)"
        return self.nursery.start([sys.executable, "-c", code, path], os.path.join(self.directory, "log"))

    def written(self) -> int:
        try:
            return os.stat(os.path.join(self.directory, "file")).st_size
        except FileNotFoundError:
            return 0

    def await_writes(self, more: int) -> None:
        before, until = self.written(), time.monotonic() + 60
        while self.written() < before + more:
            self.assertLess(time.monotonic(), until, "it does not go on")
            time.sleep(0.01)

    def test_a_slow_disk_delays_a_process_and_lets_it_go(self) -> None:
        process = self.start()
        self.await_writes(3)
        slow = SlowDisk(process.pid, 60_000, self.nursery, self.directory)
        self.assertTrue(slow.has_begun())
        before = self.written()
        slow.wait(threading.Event(), 1.0)
        self.assertLessEqual(self.written(), before + 2, "each write waits for a minute")
        slow.end()
        self.await_writes(3)
        self.assertIsNone(process.poll())

    def test_a_process_that_is_killed_meanwhile_ends_the_fault(self) -> None:
        process = self.start()
        self.await_writes(1)
        slow = SlowDisk(process.pid, 500, self.nursery, self.directory)
        self.assertTrue(slow.has_begun())
        process.kill()
        slow.wait(threading.Event(), 60.0)
        slow.end()
        process.wait(60)
        self.assertFalse(processes.is_alive(process.pid))


class LinkModes(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, "socket")

        class Echo(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(line)

        server = socketserver.ThreadingUnixStreamServer(path, Echo)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.links = Links(path, ["one"])
        self.addCleanup(self.links.close)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.links.links["one"].address, 10)
        self.addCleanup(connection.close)
        return connection

    def test_a_link_passes_bytes(self) -> None:
        connection = self.connect()
        connection.sendall(b"hello\n")
        self.assertEqual(connection.recv(100), b"hello\n")

    def test_a_cut_ends_connections_and_refuses_others(self) -> None:
        connection = self.connect()
        connection.sendall(b"hello\n")
        connection.recv(100)
        self.links.turn("one", "cut")
        self.assertEqual(connection.recv(100), b"")
        self.assertEqual(self.connect().recv(100), b"")
        self.links.turn("one", "pass")
        self.test_a_link_passes_bytes()

    def test_a_held_link_delivers_later(self) -> None:
        connection = self.connect()
        self.links.turn("one", "hold")
        connection.sendall(b"hello\n")
        connection.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            connection.recv(100)
        self.links.turn("one", "pass")
        connection.settimeout(10)
        self.assertEqual(connection.recv(100), b"hello\n")

    def test_a_deaf_link_loses_answers(self) -> None:
        connection = self.connect()
        self.links.turn("one", "deaf")
        connection.sendall(b"hello\n")
        connection.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            connection.recv(100)
        self.links.turn("one", "pass")
        connection.settimeout(10)
        self.assertEqual(connection.recv(100), b"")


if __name__ == "__main__":
    unittest.main()
