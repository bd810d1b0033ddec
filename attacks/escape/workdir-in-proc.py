# tries: starts in a directory that is one of init's descriptors
# seen-in: CVE-2024-21626 runc
# walls: keeper
# expect: refused
# workdir: /proc/self/fd/6
import os
print("started in", os.getcwd(), os.listdir("."))
os._exit(99)
