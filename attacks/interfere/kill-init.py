# tries: kills init and every process it can see
# seen-in: general
# walls: kernel, keeper
# expect: ok, runtime_error
import os, signal
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV):
    for target in {1, os.getppid() or 1}:
        try: os.kill(target, number)
        except OSError: pass
if os.fork() == 0:
    # In the cell's PID namespace this reaches no process outside.
    if os.getpid() < 100 and os.path.exists("/sandbox"):
        try: os.kill(-1, signal.SIGKILL)
        except OSError: pass
    os._exit(0)
os.wait()
print("attempted")
