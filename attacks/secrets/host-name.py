# tries: finds out on which host it is
# seen-in: general
# walls: uts
import os, socket
for name in {socket.gethostname(), os.uname().nodename, open("/proc/sys/kernel/hostname").read().strip()}:
    print(f"hostname={name}")
print("attempted")
