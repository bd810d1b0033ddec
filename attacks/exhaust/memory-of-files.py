# tries: hides memory in files, shared memory and pipes
# seen-in: general
# walls: limits
# limits: memory=64m disk=512m file_size=512m wall_time=8s
# expect: memory_limit, disk_limit
# alone: yes
import os
block = b"x" * (1 << 20)
places = [open("/dev/shm/a", "wb"), open("/tmp/b", "wb"), os.fdopen(os.memfd_create("c"), "wb")]
for _ in range(100):
    for place in places:
        place.write(block)
        place.flush()
os._exit(1)
