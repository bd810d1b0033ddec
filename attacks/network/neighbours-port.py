# tries: connects to a neighbour's port on its loopback, and to its abstract socket
# seen-in: dify-sandbox issues 225 and 253
# walls: net, neighbour
# network: localhost
import os, socket
for family, address in ((socket.AF_INET, ("127.0.0.1", int(os.environ["NEIGHBOUR_PORT"]))), (socket.AF_UNIX, "\0" + os.environ["NEIGHBOUR_SOCKET"])):
    try:
        with socket.socket(family) as client:
            client.settimeout(0.3)
            client.connect(address)
            print(client.recv(100))
    except OSError: pass
print("attempted")
