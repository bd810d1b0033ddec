# tries: fills the memory with file names, so that none is left to collect the files
# seen-in: sandbox-run 0.1.0
# walls: collector, limits
# collect: yes
# limits: memory=48m inodes=400000 wall_time=8s
# expect: memory_limit, disk_limit, ok, timeout
# alone: yes
import os, time
# It may end by itself: its files are a problem either way.
enough = time.monotonic() + 5
n = 0
while time.monotonic() < enough:
    try: os.close(os.open(f"{n:06}" + "n" * 240, os.O_CREAT | os.O_WRONLY))
    except OSError: break
    n += 1
os._exit(0)
