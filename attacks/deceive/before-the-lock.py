# tries: runs code before the cell is locked, through modules and settings that interpreters load first
# seen-in: CVE-2025-3466, issue 96 dify-sandbox
# walls: keeper
# --- sitecustomize.py
import os
os._exit(99)
# --- usercustomize.py
import os
os._exit(99)
# --- encodings.py
import os
os._exit(99)
# --- main.py
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
# All code in this process runs after exec, and so after the lock: the filter is active, and there are no privileges.
if status["Seccomp"].strip() != "2" or status["NoNewPrivs"].strip() != "1" or int(status["CapEff"], 16) or os.getuid() == 0:
    print("not locked", flush=True)
    os._exit(99)
print("attempted", flush=True)
# The first function that later code would call.
import builtins
builtins.str = builtins.repr = builtins.open = lambda *_: os._exit(99)
