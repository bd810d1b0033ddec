# tries: finds out on which host it is
# seen-in: general
# walls: uts
# known-without: uts: the name of the host is what uname says, and no rule or filter changes that
import os, socket
for ask in (socket.gethostname, lambda: os.uname().nodename, lambda: open("/proc/sys/kernel/hostname").read().strip()):
    try: print(f"hostname={ask()}")
    except OSError: pass
print("attempted")
