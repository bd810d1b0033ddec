# tries: pretends to have been killed by a limit
# seen-in: general
# walls: keeper
# expect: runtime_error
import os, signal, sys
print("memory limit reached; time limit reached; Killed", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
