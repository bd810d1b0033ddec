# tries: leaves a daemon behind that holds its output open
# seen-in: general
# walls: keeper
# limits: wall_time=5s
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    for n in (0, 2): os.close(n)
    time.sleep(60)
    os._exit(0)
print("attempted")
