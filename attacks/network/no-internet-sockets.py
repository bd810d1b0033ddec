# tries: creates sockets for a network that its cell does not have
# seen-in: general
# walls: seccomp
import socket, sys
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(family, kind)
        except OSError:
            continue
        print("made", family, kind)
        sys.exit(99)
print("attempted")
