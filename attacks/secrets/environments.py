# tries: reads the environments and arguments of all processes
# seen-in: general
# walls: pid, kernel
import os
print(dict(os.environ))
pids = set(range(1, 400)) | {int(os.environ["VICTIM"]), int(os.environ["SUITE"]), os.getppid()}
try: pids |= {int(p) for p in os.listdir("/proc") if p.isdigit()}
except OSError: pass
for pid in pids - {os.getpid()}:
    for name in ("environ", "cmdline", "comm", "task/%d/environ" % pid, "stack", "cwd", "exe"):
        try:
            path = f"/proc/{pid}/{name}"
            print(os.readlink(path) if name in ("cwd", "exe") else open(path, "rb").read())
        except OSError: pass
print("attempted")
