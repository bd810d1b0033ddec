# tries: stops its whole process group, including any process that enforces the deadline
# seen-in: Piston issue 196
# walls: keeper
# limits: wall_time=500ms
# expect: timeout
# alone: yes
import os, signal
os.kill(0, signal.SIGSTOP)
