"""The emulated machine as seen from outside its cells: its servers, their cells, and health checks."""
import contextlib
import ctypes
import fcntl
import glob
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import time

HERE = "/usr/lib/vm"
RECORDED = "/run/recorded"
USER = 1000
MIB = 1 << 20
NAMESPACES_SLACK = 24
# Messages that a healthy kernel does not log. A cgroup that is out of memory is logged in other words.
BAD = re.compile(
    r"BUG:|WARNING: CPU|Oops|general protection|blocked for more than|\bstalls?\b|soft lockup|Kernel panic|refcount_t"
    r"|UBSAN|KASAN|corruption|\bOut of memory: Killed|waiting for .* to become free|Bad page|Modules linked in"
)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


def as_user(argv):
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *argv]


def system_call(number, what, *arguments):
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments):
        raise OSError(ctypes.get_errno(), f"cannot {what}")


def load_module(name):
    with open(f"{HERE}/{name}.ko", "rb") as module:
        system_call(313, f"load {name}.ko", module.fileno(), b"", 0)  # finit_module


def switch_swap_on(size):
    """Gives the machine swap space: a loop device over a file in memory, which is as good as a disk here."""
    load_module("loop")
    page = 4096
    header = bytearray(page)
    header[1024:1032] = struct.pack("<II", 1, size // page - 1)  # version, last page
    header[page - 10 :] = b"SWAPSPACE2"
    with open("/swap", "w+b") as file:
        file.write(header)
        file.truncate(size)
        file.flush()
        with open("/dev/loop0", "r+b") as device:
            fcntl.ioctl(device, 0x4C00, file.fileno())  # LOOP_SET_FD
            system_call(167, "swap to /dev/loop0", b"/dev/loop0", 0)  # swapon


def prepare():
    """Prepares a bare machine for servers, and makes its kernel report what it runs on behalf of programs."""
    # There is no init system here that would do this.
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 0x49))  # SIOCSIFFLAGS: up, loopback, running
    # Negative dentries are only cached on real file systems, which the initial one is not.
    load_module("overlay")
    os.makedirs("/overlay/upper")
    os.makedirs("/overlay/work")
    options = "lowerdir=/usr,upperdir=/overlay/upper,workdir=/overlay/work"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", "/usr"], check=True)
    switch_swap_on(600 * MIB)
    # The kernel runs both as root, outside cells.
    write("/proc/sys/kernel/core_pattern", f"|{HERE}/recorder core %e %P")
    write("/proc/sys/kernel/modprobe", f"{HERE}/recorder")
    write("/proc/sys/vm/nr_hugepages", "32")
    for path, value in {
        # An emulated machine on a busy host is slow, which alone is not a fault.
        "/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout": "90",
        "/proc/sys/kernel/hung_task_timeout_secs": "60",
        "/proc/sys/kernel/watchdog_thresh": "45",
    }.items():
        if os.path.exists(path):
            write(path, value)


class KernelLog:
    """What the kernel logs from now on."""

    def __init__(self):
        self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.file, 0, os.SEEK_END)
        # Prove that the check can fail.
        write("/dev/kmsg", "vm: this is not a BUG: only a test of the one who looks for it\n")
        if not self.bad():
            raise AssertionError("a fault in the kernel's log is not noticed")

    def bad(self):
        found = []
        while True:
            try:
                line = os.read(self.file, 8192).decode(errors="replace").partition(";")[2].split("\n")[0]
            except BlockingIOError:
                return found
            except BrokenPipeError:  # older messages were overwritten
                continue
            if BAD.search(line):
                found.append(line)


def recorded():
    """The helpers that the kernel has run on behalf of programs: crash handlers and module loaders.

    When a file of unknown format is executed, kernels before 6.14 request a module with that name. No syscall filter
    can see that, and only modules for binary formats have such names.
    """
    lines = read(RECORDED).splitlines() if os.path.exists(RECORDED) else []
    return [line for line in lines if "-- binfmt-" not in line]


def processes():
    """Processes, without kernel threads: the id, name and state of each."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = read(f"/proc/{pid}/stat")
        except OSError:
            continue
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        if not int(fields[6]) & 0x200000:  # PF_KTHREAD
            found[int(pid)] = (name, fields[0])
    return found


def memory():
    """Free memory, memory charged to cgroups, free huge pages, negative dentries, and bytes written to swap.

    Everything here is in memory, so there is no page cache that would distort it.
    """
    lines = dict(line.split(":") for line in read("/proc/meminfo").splitlines())
    of = lambda name: int(lines[name].split()[0])
    names = int(read("/proc/sys/fs/dentry-state").split()[0])
    groups = glob.glob("/sys/fs/cgroup/*/memory.current")
    counted = sum(int(read(group)) for group in groups)
    swapped = int(re.search(r"^pswpout (\d+)", read("/proc/vmstat"), re.MULTILINE)[1]) * 4096
    # Each processor keeps free pages at hand, which the kernel does not count as free.
    at_hand = sum(map(int, re.findall(r"^ +count: +(\d+)", read("/proc/zoneinfo"), re.MULTILINE))) * 4096
    free = (of("MemFree") << 10) + at_hand
    return {"free": free, "counted": counted, "huge": of("HugePages_Free"), "names": names, "swapped": swapped, "uses": uses()}


def uses():
    """What memory is used for, in bytes: each line of /proc/meminfo, and each kind of kernel object."""
    found = {}
    for line in read("/proc/meminfo").splitlines():
        name, value = line.split(":")
        if value.endswith("kB"):
            found[name] = int(value.split()[0]) << 10
    for line in read("/proc/slabinfo").splitlines()[2:]:
        name, _, _, _, _, pages, *rest = line.split()
        found[f"slab {name}"] = int(rest[rest.index("slabdata") + 2]) * int(pages) * 4096
    return found


def release_empty_slabs():
    """The kernel keeps some slabs without objects for later. That memory is not lost."""
    for path in glob.glob("/sys/kernel/slab/*/shrink"):
        with contextlib.suppress(OSError), open(path, "w") as file:
            file.write("1")


def counts():
    """Kernel objects of cells, which have to be gone after them."""
    mounts = sum(len(read(f"/proc/{pid}/mountinfo").splitlines()) for pid in keepers())
    return {
        "processes": len(processes()),
        "control groups": sum(len(directories) for _, directories, _ in os.walk("/sys/fs/cgroup")),
        "mounts": mounts + len(read("/proc/self/mountinfo").splitlines()),
    }


def objects(kind):
    """How many objects of a kind the kernel has."""
    found = re.search(rf"^{kind} +(\d+)", read("/proc/slabinfo"), re.MULTILINE)
    if not found:
        raise AssertionError(f"the kernel does not count objects of the kind {kind}")
    return int(found[1])


def keepers():
    """The processes that servers consist of, apart from cells: those that still have the machine's process ids."""
    own = os.readlink("/proc/self/ns/pid")
    found = []
    for pid, (name, _) in processes().items():
        try:
            if name.startswith("sandbox") and os.readlink(f"/proc/{pid}/ns/pid") == own:
                found.append(pid)
        except OSError:
            continue
    return found


class Server:
    """A server of root or of an ordinary user."""

    def __init__(self, name, port):
        self.name, self.port = name, port
        home = f"/home/{name}"
        os.makedirs(home)
        argv = [f"{HERE}/sandbox-server", "--zygotes", "0", "--log-level", "warn"]
        if name == "user":
            os.chown(home, USER, USER)
            argv = as_user(argv)
        settings = {"HTTP_HOST": "127.0.0.1", "HTTP_PORT": str(port), "HOME": home, "PATH": "/usr/bin:/usr/sbin"}
        settings |= {"SANDBOX_READY_CELLS": "2", "SANDBOX_PREPARE": "none", "SANDBOX_DATA_DIR": f"{home}/data"}
        # Attacks request as much as an operator would ever allow.
        settings |= {"SANDBOX_MAX_TIMEOUT": "1h", "SANDBOX_MAX_PROCESSES": "512", "SANDBOX_MAX_OPEN_FILES": "4096"}
        settings |= {"SANDBOX_MAX_MEMORY": "1g", "SANDBOX_MAX_CPUS": "2"}
        self.process = subprocess.Popen(argv, env=settings)
        deadline = time.monotonic() + 120
        while not self.answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"the server of {name} does not start")
            time.sleep(0.2)

    def answers(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def start(self, code, stream, timeout, **request):
        """Sends a program; returns the connection and its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        body = json.dumps({"language": "bash", "code": code, **request})
        path = "/execute?stream=true" if stream else "/execute"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise AssertionError(f"the server of {self.name} answers {answer.status}: {answer.read(2000)!r}")
        return connection, answer

    def run(self, code, timeout=60, **request):
        """Runs a program in a cell and returns its result."""
        connection, answer = self.start(code, False, timeout, **request)
        with connection.sock or answer:
            return json.loads(answer.read())

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Machine:
    """A machine with a server of root and one of an ordinary user, and its state at rest."""

    def __init__(self):
        prepare()
        self.log = KernelLog()
        self.servers = [Server("root", 8080), Server("user", 8081)]
        for server in self.servers:
            self.fresh_cell(server)
        time.sleep(3)
        self.rest = counts()
        self.namespaces = objects("net_namespace")
        self.keepers = set(keepers())
        self.before = memory()

    def fresh_cell(self, server):
        """Runs a small computation in a new cell."""
        result = server.run("echo $((6 * 7))", limits={"wall_time": "40s"})
        if result.get("verdict") != "ok" or result.get("stdout", "").strip() != "42":
            raise AssertionError(f"a new cell of {server.name} does not work: {json.dumps(result)[:500]}")

    def wait_for_rest(self, before=None, slack=32 * MIB, seconds=45):
        """Waits until nothing is left of earlier cells; returns what is left. Memory is compared with what it was before."""
        deadline = time.monotonic() + seconds
        while True:
            left = self.left(before or self.before, slack)
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.5)

    def left(self, before, slack):
        found = [f"{now - self.rest[what]} {what} left" for what, now in counts().items() if now > self.rest[what]]
        # The kernel counts objects by the slab, which holds several.
        namespaces = objects("net_namespace") - self.namespaces
        if namespaces > NAMESPACES_SLACK:
            found.append(f"{namespaces} network namespaces left")
        gone = before["free"] - memory()["free"]
        if gone > slack:
            release_empty_slabs()
            now = memory()
            gone = before["free"] - now["free"]
            grown = {what: bytes - before["uses"].get(what, 0) for what, bytes in now["uses"].items()}
            most = sorted(grown, key=grown.get, reverse=True)[:5]
        if gone > slack:
            most = ", ".join(f"{what} {grown[what] / MIB:.1f}" for what in most)
            found.append(f"{gone // MIB} MiB of memory left behind (grown most: {most})")
        busy = int(re.search(r"procs_running (\d+)", read("/proc/stat"))[1])
        stuck = [f"{name} ({pid})" for pid, (name, state) in processes().items() if state == "D"]
        if busy > 3:
            found.append(f"{busy} processes still run")
        if stuck:
            found.append(f"stuck in the kernel: {', '.join(stuck)}")
        return found

    def faults(self):
        """The faults of the machine, which should be at rest now."""
        found = self.wait_for_rest()
        found += [f"the kernel says: {line}" for line in self.log.bad()]
        if not self.keepers <= set(keepers()):
            found.append("a keeper has died")
        for server in self.servers:
            try:
                self.fresh_cell(server)
            except (AssertionError, OSError) as error:
                found.append(str(error))
        return found
