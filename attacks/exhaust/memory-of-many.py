# tries: uses more memory than allowed in many processes, each of which uses little
# seen-in: general
# walls: memory
# limits: memory=96m processes=32 wall_time=8s
# expect: memory_limit
# alone: yes
import os, time
children = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        part = bytearray(25 << 20)
        for at in range(0, len(part), 4096): part[at] = 1
        time.sleep(1)
        os._exit(0)
    children.append(child)
status = [os.waitpid(child, 0)[1] for child in children]
if any(status): os._exit(1)
print("used 250 MiB")
