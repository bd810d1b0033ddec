# tries: fills the disk
# seen-in: general
# walls: limits
# limits: disk=16m wall_time=8s
# expect: disk_limit
import os
for place in (os.getcwd(), os.environ["TMPDIR"], os.environ["HOME"], "/dev/shm"):
    with open(f"{place}/large", "wb") as file:
        for _ in range(32): file.write(b"x" * (1 << 20))
