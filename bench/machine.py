"""A description of the host on which figures were measured, without anything that identifies it."""

import os
import time


def describe(cores):
    kernel = os.uname().release.split("-")[0]
    return {
        "cores": cores,
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": kernel,
        "system": system(),
        "cgroups": "v2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "v1",
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
        "load_before": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def system():
    try:
        with open("/etc/os-release") as file:
            lines = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    except OSError:
        return "Linux"
    return lines.get("PRETTY_NAME", "Linux").strip('"')
