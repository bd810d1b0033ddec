"""What a run has left on the machine, of what belongs to it: processes, control groups, mounts, files."""

import contextlib
import os

import processes
from cluster import Cluster
from processes import Nursery

# What a data directory may hold when no server uses it.
KNOWN = ("builds", "environments", "images", "volumes", "caches", "runtimes.json")
DESCRIPTORS = 24  # how many more open files are not growth: idle connections and threads' own


def mounts() -> set[str]:
    with open("/proc/self/mountinfo") as file:
        return {line.split()[4] for line in file}


def groups() -> list[str]:
    """The control groups of all cells on this machine."""
    found = []
    for directory, below, _ in os.walk("/sys/fs/cgroup"):
        cells = [name for name in below if name.startswith("sandbox-run-")]
        found += [os.path.join(directory, name) for name in cells]
        below[:] = [name for name in below if name not in cells]
    return found


def groups_of(keepers: set[str]) -> list[str]:
    names = tuple(f"sandbox-run-{keeper}" for keeper in keepers)
    return [path for path in groups() if os.path.basename(path).startswith(names)] if names else []


def files(cluster: Cluster) -> list[str]:
    """Files that nobody needs: in the servers' temporary directories, and temporary ones among their data."""
    found = []
    for server in cluster.servers:
        found += [os.path.join(server.temporary, name) for name in os.listdir(server.temporary)]
        if not os.path.isdir(server.data):
            continue
        for name in os.listdir(server.data):
            path = os.path.join(server.data, name)
            if name in KNOWN and os.path.isdir(path):
                found += [os.path.join(path, entry) for entry in os.listdir(path) if is_temporary(entry)]
            elif is_temporary(name):
                found.append(path)
    return found


def is_temporary(name: str) -> bool:
    return name.startswith((".", "tmp")) or name.endswith((".tmp", ".new", ".partial"))


def look(cluster: Cluster, nursery: Nursery, before: set[str]) -> list[str]:
    """Everything that is left once all servers have ended."""
    left = [f"process {pid} ({processes.name(pid)})" for pid in nursery.left(10)]
    keepers = set().union(*(server.keepers for server in cluster.servers))
    left += [f"control group {path}" for path in groups_of(keepers)]
    left += [f"mount {path}" for path in sorted(mounts() - before)]
    with contextlib.suppress(FileNotFoundError):
        left += [f"file {path}" for path in files(cluster)]
    return left
