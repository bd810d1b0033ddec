# tries: finds out the name of the host
# seen-in: general
# walls: uts
# known-without: uts: without a UTS namespace uname returns the host name, and no rule or filter changes that
import os, socket
for ask in (socket.gethostname, lambda: os.uname().nodename, lambda: open("/proc/sys/kernel/hostname").read().strip()):
    try: print(f"hostname={ask()}")
    except OSError: pass
print("attempted")
