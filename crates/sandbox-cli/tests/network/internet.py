"""The servers of a small world: web servers that say who they are, and a resolver. See world.sh."""
import http.server
import os
import socket
import socketserver
import struct
import sys
import threading
import time

NAMES = {
    "api.example.com": ["203.0.113.80"],
    "www.example.com": ["203.0.113.80"],
    "evil.example.net": ["203.0.113.81"],
    "internal.example.com": ["10.9.9.9"],
    "self.example.com": ["203.0.113.1"],
    "loopback.example.com": ["127.0.0.1"],
    "metadata.example.com": ["169.254.169.254"],
    "both.example.com": ["10.9.9.9", "203.0.113.80"],
}
asked = {}


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://10.9.9.9/")
            self.end_headers()
            return
        body = f"I am {self.server.server_address[0]}, you want {self.headers.get('Host')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data.upper())


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    addresses = NAMES.get(name, [])
    if name == "rebind.example.com":
        # Public when it is asked for first, private from then on.
        asked[name] = asked.get(name, 0) + (kind == 1)
        addresses = ["203.0.113.80"] if asked[name] <= 1 else ["10.9.9.9"]
    known = addresses or name.endswith("example.com")
    addresses = addresses if kind == 1 else []
    head = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, len(addresses), 0, 0)
    records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(a) for a in addresses)
    return head + query[12 : at + 5] + records


def resolver(address):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 53))
    while True:
        query, client = sock.recvfrom(512)
        sock.sendto(answer(query), client)


def patiently(make):
    """The addresses come a moment later."""
    until = time.monotonic() + 60
    while True:
        try:
            return make()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def serve(kind, address, port):
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    server = patiently(lambda: Server((address, port), kind))
    threading.Thread(target=server.serve_forever, daemon=True).start()


directory, own = sys.argv[1], len(sys.argv) > 2
if own:
    serve(Web, "203.0.113.1", 80)
else:
    for address, port in [("203.0.113.80", 80), ("203.0.113.80", 8080), ("203.0.113.81", 80), ("10.9.9.9", 80)]:
        serve(Web, address, port)
    for address, port in [("203.0.113.80", 443), ("203.0.113.80", 5432), ("10.9.9.9", 5432)]:
        serve(Echo, address, port)
    patiently(lambda: threading.Thread(target=resolver, args=("203.0.113.53",), daemon=True).start())
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.settimeout(1)
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\1\0\1"
    patiently(lambda: (probe.sendto(query, ("203.0.113.53", 53)), probe.recv(512)))
open(os.path.join(directory, "own" if own else "internet"), "w").close()
while True:
    time.sleep(3600)
