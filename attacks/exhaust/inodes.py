# tries: creates files until the inodes are used up
# seen-in: general
# walls: limits
# limits: inodes=500 wall_time=8s
# expect: disk_limit
import os
for n in range(5000):
    open(os.path.join(os.environ["TMPDIR"], str(n)), "w").close()
