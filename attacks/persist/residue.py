# tries: leaves files for its next run, wherever it can write
# seen-in: Piston issue 624
# walls: mount
# twice: yes
import os
name = os.environ["MARKER"]
places = [f"{place}/{name}" for place in (os.getcwd(), os.environ["TMPDIR"], os.environ["HOME"], "/tmp", "/var/tmp", "/dev/shm", "/sandbox", "/home/sandbox", "/run", "/run/result", "/opt", "/build", "/dev", "/mnt")]
found = [path for path in places if os.path.lexists(path)]
if found:
    print("found", found, flush=True)
    os._exit(99)
for path in places:
    try: open(path, "w").write("left")
    except OSError: pass
print("attempted")
