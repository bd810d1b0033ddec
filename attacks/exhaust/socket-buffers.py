# tries: hides memory in the socket buffers of connections to itself
# seen-in: general
# walls: limits
# known-without: memory: without a cgroup, socket buffers are not charged to the program
# network: localhost
# limits: memory=48m wall_time=8s processes=32
# expect: ok, memory_limit, runtime_error
# alone: yes
import os, socket
server = socket.create_server(("127.0.0.1", 0), backlog=200)
block, ends = b"x" * (1 << 20), []
# Bounded: no more than 150 MiB are ever sent by either protocol.
sent = 0
while sent < 150 << 20 and len(ends) < 100:
    client = socket.create_connection(server.getsockname(), timeout=1)
    end, _ = server.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    client.setblocking(False)
    ends.append((end, client))
    try:
        for _ in range(64): sent += client.send(block)
    except OSError: pass
sent = 0
while sent < 150 << 20 and len(ends) < 200:
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    end.bind(("127.0.0.1", 0))
    ends.append((end, end))
    try:
        for _ in range(60): sent += end.sendto(block[:60000], socket.MSG_DONTWAIT, end.getsockname())
    except OSError: pass
# Data that can be read back really was in memory, all at the same time.
held = 0
for end, client in ends:
    end.setblocking(False)
    try:
        while data := end.recv(1 << 20): held += len(data)
    except OSError: pass
print(held >> 20, "MiB in", len(ends), "sockets", flush=True)
# More than twice the limit cannot be an accounting error.
if held > 96 << 20: os._exit(99)
