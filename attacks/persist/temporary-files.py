# tries: creates a file in the host's temporary directories
# seen-in: CVE-2024-28185 Judge0
# walls: mount
import os
for place in ("/tmp", "/dev/shm", os.environ["WORLD"]):
    try: open(f"{place}/{os.environ['MARKER']}", "w").write("planted")
    except OSError: pass
print("attempted")
