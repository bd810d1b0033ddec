# tries: creates files where the host would run or read them
# seen-in: general
# walls: mount, kernel
import os
for place in ("/", "/etc", "/etc/cron.d", "/root", "/home", "/opt", "/srv", "/run", "/usr/bin", "/usr/lib", "/var"):
    for make in (lambda path: open(path, "w").close(), os.mkdir, lambda path: os.symlink("/etc/passwd", path)):
        try: make(f"{place}/{os.environ['MARKER']}")
        except OSError: pass
print("attempted")
