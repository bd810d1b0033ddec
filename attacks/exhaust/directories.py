# tries: leaves directories that are too deep and too many to walk
# seen-in: snekbox
# walls: collector, limits
# collect: yes
# limits: wall_time=30s
# expect: ok, disk_limit
import os, time
# It has to end by itself, or its files are not collected: on a slow host it leaves less.
top, enough = os.getcwd(), time.monotonic() + 4
def in_time(count):
    return (n for n in range(count) if time.monotonic() < enough)
for _ in in_time(3000):
    try: os.mkdir("d" * 100); os.chdir("d" * 100)
    except OSError: break
open("deepest", "w").write("deep")
os.chdir(top)
os.mkdir("wide")
enough += 4
for n in in_time(8000):
    try: open(f"wide/{n}", "w").write("x")
    except OSError: break
for n in range(50):
    try: os.symlink("..", f"wide/link{n}"); os.symlink(top, f"loop{n}")
    except OSError: break
print("attempted")
