# tries: reads the arguments of every process on the host
# seen-in: dify-sandbox issues 225 and 253
# walls: pid
import os
for pid in {int(name) for name in os.listdir("/proc") if name.isdigit()} | {int(os.environ["VICTIM"])}:
    try: print(open(f"/proc/{pid}/cmdline", "rb").read())
    except OSError: pass
print("attempted")
