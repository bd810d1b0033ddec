# tries: leaves directories deeper and more numerous than anybody can walk
# seen-in: snekbox
# walls: collector, limits
# collect: yes
# expect: ok, disk_limit
import os
top = os.getcwd()
for _ in range(3000):
    try: os.mkdir("d" * 100); os.chdir("d" * 100)
    except OSError: break
open("deepest", "w").write("deep")
os.chdir(top)
os.mkdir("wide")
for n in range(8000):
    try: open(f"wide/{n}", "w").write("x")
    except OSError: break
for n in range(50):
    try: os.symlink("..", f"wide/link{n}"); os.symlink(top, f"loop{n}")
    except OSError: break
print("attempted")
