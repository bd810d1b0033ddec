# tries: hides memory in files, shared memory and pipes
# seen-in: general
# walls: limits
# known-without: memory: without a cgroup, memory that no process has mapped, such as that of unnamed files, is not counted
# limits: memory=64m disk=512m file_size=512m wall_time=8s
# expect: memory_limit, disk_limit
# alone: yes
import os
block = b"x" * (1 << 20)
places = [open(os.path.join(os.environ["TMPDIR"], "b"), "wb"), os.fdopen(os.memfd_create("c"), "wb")]
try: places.append(open("/dev/shm/a", "wb"))
except OSError: pass
for _ in range(100):
    for place in places:
        place.write(block)
        place.flush()
os._exit(1)
