# tries: learns the host's addresses and neighbours
# seen-in: general
# walls: net
import array, fcntl, os, socket, struct
def ask():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        buffer = array.array("B", bytes(4096))
        size = struct.unpack("iL", fcntl.ioctl(probe, 0x8912, struct.pack("iL", 4096, buffer.buffer_info()[0])))[0]
        for at in range(0, size, 40):
            print("address=" + socket.inet_ntoa(bytes(buffer[at + 20:at + 24])))
def read(path):
    for line in open(path):
        print(line.rstrip())
        if "|-- " in line: print("address=" + line.split("|-- ")[1].strip())
def attempt(action, *arguments):
    try: action(*arguments)
    except OSError: pass
attempt(ask)
for name in ("fib_trie", "arp", "tcp", "udp", "unix", "route", "if_inet6"):
    for place in ("/proc/net", f"/proc/{os.getpid()}/net", "/proc/1/net"): attempt(read, f"{place}/{name}")
attempt(lambda: print(socket.if_nameindex()))
print("attempted")
