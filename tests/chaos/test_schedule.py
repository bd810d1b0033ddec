"""A seed reproduces its faults, and links do what their mode says."""

import os
import socket
import socketserver
import tempfile
import threading
import unittest

from link import Links
from schedule import plan


class Schedules(unittest.TestCase):
    def test_a_seed_reproduces_its_schedule(self) -> None:
        for seed in range(20):
            self.assertEqual(plan(seed, 60, 3, True, False), plan(seed, 60, 3, True, False))
        self.assertNotEqual(plan(1, 60, 3, True, False), plan(2, 60, 3, True, False))

    def test_faults_of_one_part_never_overlap(self) -> None:
        for seed in range(20):
            last: dict[tuple[str, str], float] = {}
            for fault in plan(seed, 300, 3, True, True):
                lane = (fault.target, fault.kind.split("-")[0].replace("keeper", "server").replace("zygote", "server"))
                self.assertGreaterEqual(fault.at, last.get(lane, 0.0))
                last[lane] = fault.at + fault.lasts

    def test_every_kind_happens(self) -> None:
        kinds = {fault.kind for seed in range(10) for fault in plan(seed, 120, 2, True, True)}
        self.assertEqual(len(kinds), 13)

    def test_only_the_wanted_kinds_happen(self) -> None:
        faults = plan(1, 120, 2, True, True, frozenset({"server-kill"}))
        self.assertEqual({fault.kind for fault in faults}, {"server-kill"})


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
