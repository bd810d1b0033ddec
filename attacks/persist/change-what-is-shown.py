# tries: changes read-only mounts, by name, by link and through descriptors
# seen-in: CVE-2026-46695 BoxLite, CVE-2024-28189 Judge0
# walls: keeper, landlock
import ctypes, mmap, os
place = os.environ["SHOWN"]
def attempt(action):
    try: action()
    except (OSError, ValueError): pass
file = f"{place}/shared"
handle = os.open(file, os.O_RDONLY)
attempt(lambda: open(file, "w").write("changed"))
attempt(lambda: open(f"/proc/self/fd/{handle}", "w").write("changed"))
attempt(lambda: os.truncate(file, 0))
attempt(lambda: os.ftruncate(handle, 0))
attempt(lambda: os.chmod(file, 0o777))
attempt(lambda: os.chown(file, os.getuid(), os.getgid()))
attempt(lambda: os.link(file, "link"))
attempt(lambda: os.link(f"/proc/self/fd/{handle}", "link2", follow_symlinks=True))
attempt(lambda: os.rename(file, f"{place}/renamed"))
attempt(lambda: os.unlink(file))
attempt(lambda: open(f"{place}/new", "w").close())
attempt(lambda: os.setxattr(file, "user.mark", b"x"))
attempt(lambda: mmap.mmap(handle, 10, prot=mmap.PROT_READ | mmap.PROT_WRITE).write(b"changed"))
attempt(lambda: os.utime(file, (0, 0)))
attempt(lambda: os.posix_fallocate(handle, 0, 1 << 20))
print("attempted")
