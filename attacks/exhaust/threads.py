# tries: creates more threads than allowed
# seen-in: general
# walls: pids
# limits: processes=32 wall_time=5s memory=256m
# expect: process_limit, runtime_error
# alone: yes
import threading, time
threading.stack_size(64 << 10)
for _ in range(300):
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
# Where the limit is enforced by sampling, threads that are gone at once are not noticed, and do no harm.
time.sleep(1)
print("made 300 threads")
