"""Which process is whose: the processes of a contender by role, from the process tree and from forks seen since.

The product's processes have roles: the caller (a server, or the command `sandbox-run`), keeper, init, zygote, program.
Compilers are programs, and so is every process below a program. A server's launcher, and the processes that create the
inits of a zygote's children, count as keeper.
"""

import os

INIT, KEEPER = "sandbox-init", "sandbox-keeper"
LAUNCHER, ZYGOTES = "sandbox-launche", "sandbox-zygotes"  # the kernel keeps 15 characters
KTHREADD = 2

# The role of a process that a process with this role forks. For those below the client, see Family.
BELOW = {
    "caller": "keeper",
    "keeper": "init",
    "init": "program",
    "zygote": "program",
    "helper": "program",
    "program": "program",
    "peer": "peer",
    "kernel": "kernel",
}


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += [int(word) for word in file.read().split()]
    return found


def command_name(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def descendants(pid):
    found, left = [], children(pid)
    while left:
        child = left.pop()
        found.append(child)
        try:
            left += children(child)
        except OSError:  # it has ended
            pass
    return found


def pid_namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has ended
        return None


def of_server(server):
    """The existing processes of a server. Zygotes share a PID namespace with the process that creates their inits."""
    names = {pid: command_name(pid) for pid in descendants(server.pid)}
    holders = {pid_namespace(pid) for pid, name in names.items() if name == ZYGOTES}
    roles = {server.pid: "caller"}
    for pid, name in names.items():
        if name in (KEEPER, LAUNCHER, ZYGOTES):
            roles[pid] = "keeper"
        elif name == INIT:
            roles[pid] = "init"
        else:
            roles[pid] = "zygote" if pid_namespace(pid) in holders else "program"
    return roles


def of_peer(pid):
    """The existing processes of another sandbox's server; they have no roles of ours."""
    return dict.fromkeys([pid, *descendants(pid)], "peer")


def kernel_threads():
    found = {KTHREADD: "kernel"}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
            if parent == KTHREADD:
                found[int(name)] = "kernel"
    return found


class Family:
    """The roles of existing processes, and of those that they fork."""

    def __init__(self, living, started="program"):
        self.living = living
        self.below = {**BELOW, "client": started}  # what the client starts

    @classmethod
    def now(cls, contender):
        """A contender's processes, the client, and the kernel's threads at this moment."""
        own = {**kernel_threads(), os.getpid(): "client", **contender.living()}
        return cls(own, contender.started)

    def roles(self, parents):
        """A function from a process to its role; `parents` maps each new process to the one that forked it."""
        forked, known = set(parents.values()), {}

        def role(pid):
            if pid not in known:
                known[pid] = "other"  # for its descendants, should reused process ids make a circle
                known[pid] = found(pid)
            return known[pid]

        def found(pid):
            # A fork that was seen is newer than the process that had the same id before.
            if pid not in parents:
                return self.living.get(pid, "other")
            above = role(parents[pid])
            if above == "zygote" and pid in forked:
                return "helper"  # forks the program into its cell, and ends
            return self.below.get(above, "other")

        return role
