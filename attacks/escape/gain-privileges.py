# tries: becomes root through set-user-id programs, capabilities and changes of id
# seen-in: general
# walls: kernel, keeper
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
won = []
for name in ("setuid", "setgid", "seteuid"):
    if getattr(libc, name)(0) == 0: won.append(name)
if libc.setgroups(1, (ctypes.c_uint * 1)(0)) == 0: won.append("setgroups")
# PR_CAP_AMBIENT raise, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS 0
for arguments in ((47, 2, 21, 0, 0), (28, 1, 0, 0, 0), (38, 0, 0, 0, 0)):
    if libc.prctl(*arguments) == 0: won.append(f"prctl {arguments}")
class Header(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
header, data = Header(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)
if libc.capset(ctypes.byref(header), data) == 0: won.append("capset")
for tool in (["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["mount", "--version"], ["newuidmap", "0", "0", "0", "1"], ["pkexec", "id", "-u"]):
    try:
        out = subprocess.run(tool, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=3).stdout
        if out.strip() == "0": won.append(tool[0])
    except (OSError, subprocess.TimeoutExpired): pass
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
    if int(status[name], 16): won.append(name)
if status["NoNewPrivs"].strip() != "1" or 0 in map(int, status["Uid"].split()): won.append("status")
if won:
    print("gained", won, flush=True)
    os._exit(99)
print("attempted")
