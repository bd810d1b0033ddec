# tries: leaves files that are hard to read, name, open or finish: closed directories, pipes, sparse files, very long names
# seen-in: snekbox
# walls: collector
# collect: yes
# expect: ok, disk_limit
import os, socket
def attempt(action, *arguments):
    try: action(*arguments)
    except OSError: pass
def make(path, text=b"x"):
    with open(path, "wb") as file: file.write(text)
attempt(os.mkfifo, "fifo")
attempt(lambda: socket.socket(socket.AF_UNIX).bind("socket"))
for name in (b"\xff\xfe", b"new\nline", b"\x1b]0;owned\x07", b"\x1b[2J", "‮".encode(), b"n" * 255):
    attempt(make, name)
    attempt(os.symlink, b"/etc/passwd", b"link-" + name[:200])
attempt(make, "hole")
attempt(os.truncate, "hole", 1 << 40)
attempt(os.truncate, "hole", 1 << 25)
top = os.getcwd()
for n in range(1000):
    try: os.mkdir("d" * 255); os.chdir("d" * 255)
    except OSError: break
attempt(make, "bottom")
os.chdir(top)
attempt(os.makedirs, "closed/inner")
attempt(make, "closed/file")
attempt(make, "unreadable")
attempt(os.chmod, "unreadable", 0)
attempt(os.chmod, "closed/inner", 0)
attempt(os.chmod, "closed", 0)
attempt(os.rename, top, top + "-moved")
attempt(os.rmdir, top)
attempt(os.chmod, top, 0)
print("attempted", flush=True)
