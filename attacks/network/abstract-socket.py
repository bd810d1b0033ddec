# tries: connects to an abstract socket of the host, which no file system protects
# seen-in: CVE-2020-15257 containerd
# walls: net, landlock
import os, socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    try:
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(0.3)
            client.connect("\0" + os.environ["MARKER"])
            print("connected")
    except OSError: pass
print("attempted")
