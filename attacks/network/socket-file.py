# tries: connects to a socket in the host's file system, such as that of a container engine
# seen-in: general
# walls: mount
import os, socket
for path in (os.environ["SOCKET"], "/proc/self/root" + os.environ["SOCKET"]):
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0.3)
            client.connect(path)
            print("connected")
    except OSError: pass
print("attempted")
