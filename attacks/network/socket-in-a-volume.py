# tries: connects to a socket in a read-only mount, such as that of a container engine
# seen-in: sandbox-run 0.1.0
# walls: kernel
import os, socket
path = os.environ["SHOWN"] + "/socket"
if not os.path.exists(path):
    raise SystemExit("there is no socket")
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    try:
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(0.3)
            client.connect(path)
            print("connected")
    except OSError as error:
        print(error)
# Unconnected sockets can send to a name without a separate call.
try:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].sendto(b"x", path)
    print("sent")
except OSError as error:
    print(error)
print("attempted")
