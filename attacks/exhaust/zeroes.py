# tries: reads an endless file into memory
# seen-in: general
# walls: memory, limits
# limits: memory=64m wall_time=8s
# expect: memory_limit, runtime_error
# alone: yes
import time
data = open("/dev/zero", "rb").read(400 << 20)
time.sleep(0.5)
print(len(data))
