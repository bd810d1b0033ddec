# tries: connects to services on the host from a cell with a private loopback
# seen-in: CVE-2024-29021 Judge0
# walls: net
# network: localhost
import os, socket
port = int(os.environ["PORT"])
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.1.2.3"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
    try:
        with socket.socket(family) as client:
            client.settimeout(0.3)
            client.connect((address, port))
            print("connected to", address)
    except OSError: pass
print("attempted")
