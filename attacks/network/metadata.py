# tries: requests credentials from the metadata services of cloud providers, in every encoding of their addresses
# seen-in: 0.1.0: 168.63.129.16 was taken for a public address
# walls: gateway
# network: full
import socket, sys
services = ["169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "168.63.129.16", "100.100.100.200",
            "192.0.0.192", "[fd00:ec2::254]", "[fd20:ce::254]", "[::ffff:168.63.129.16]", "[64:ff9b::a83f:8110]",
            "[2002:a83f:8110::1]", "[2001:db8::5efe:168.63.129.16]", "[2001:0:a83f:8110::1]",
            "metadata.google.internal", "METADATA.google.internal.", "instance-data.ec2.internal"]
def through_proxy(head):
    with socket.create_connection(("127.0.0.1", 3128), 2) as proxy:
        proxy.settimeout(30)
        proxy.sendall(head.encode())
        return proxy.makefile("rb").read().decode(errors="replace")
for service in services:
    for head in (f"CONNECT {service}:80 HTTP/1.1\r\n\r\n", f"GET http://{service}:32526/ HTTP/1.1\r\nHost: x\r\n\r\n"):
        try:
            said = through_proxy(head)
        except (ConnectionRefusedError, PermissionError):  # this host has no gateway, or no sockets
            continue
        # Any other answer means that the gateway tried to connect.
        if "public" not in said:
            print(service, said)
            sys.exit(99)
for service in services[:7]:
    try:
        with socket.create_connection((service, 80), 5) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            if client.recv(1):
                sys.exit(99)
    except OSError: pass
print("attempted")
