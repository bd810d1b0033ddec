#!/usr/bin/env python3
"""Compares sandbox-run with bubblewrap and with no sandbox at all.

Everything is measured in one run, interleaved, so that whatever else the machine does falls on all alike; what counts
are the ratios. Prints a table, writes JSON if asked to, and fails if a bar is missed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HELLO = r"""
#include <unistd.h>
int main(void) { return write(1, "hello\n", 6) == 6 ? 0 : 1; }
"""

# Bubblewrap doing the same as far as it can: the same namespaces, mounts, masks, privileges and syscall filter. It has no
# control groups, no Landlock, no limits and no account of what was used.
BWRAP = """bwrap --seccomp {filter} --unshare-all --unshare-user --uid 1000 --gid 1000 --hostname sandbox --new-session --die-with-parent
    --cap-drop ALL --clearenv --setenv PATH /usr/bin:/bin --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin
    --symlink usr/lib /lib --symlink usr/lib64 /lib64 --ro-bind /etc/ld.so.cache /etc/ld.so.cache
    --ro-bind /etc/alternatives /etc/alternatives --ro-bind /etc/ssl/certs /etc/ssl/certs --proc /proc --dev /dev --tmpfs /tmp
    --tmpfs /dev/shm --tmpfs /home/sandbox --tmpfs /sandbox --chdir /sandbox""".split()
# The parts of /proc that cells hide too.
for name in ("cmdline", "kallsyms", "kcore", "keys", "locks"):
    if os.path.exists(f"/proc/{name}"):
        BWRAP += ["--ro-bind", "/dev/null", f"/proc/{name}"]
for name in ("acpi", "scsi"):
    if os.path.exists(f"/proc/{name}"):
        BWRAP += ["--tmpfs", f"/proc/{name}"]

PRINT = "print(2+2)"


def contenders(sandbox_run, hello):
    """Name → command, in groups of (what, bare, bubblewrap, sandbox-run)."""
    system_python = "/usr/bin/python3"
    bwrap_hello = BWRAP + ["--ro-bind", hello, "/opt/hello", "--remount-ro", "/", "/opt/hello"]
    bwrap_python = BWRAP + ["--remount-ro", "/", system_python, "-c", PRINT]
    return {
        "static binary": {
            "bare": [hello],
            "bubblewrap": bwrap_hello,
            "sandbox-run": [sandbox_run, "exec", "--quiet", "--", hello],
        },
        "Python": {
            "bare": [system_python, "-c", PRINT],
            "bubblewrap": bwrap_python,
            "sandbox-run": [sandbox_run, "--lang", "python", "--quiet", "--code", PRINT],
        },
    }


def once(command, environment, filter_file):
    """Milliseconds from start to end."""
    with open(filter_file, "rb") as descriptor:
        number = descriptor.fileno()
        command = [str(number) if word == "{filter}" else word for word in command]
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, pass_fds=[number])
        took = (time.perf_counter() - began) * 1000
    if done.returncode != 0 or not done.stdout:
        sys.exit(f"bench: {' '.join(command)} failed: {done.stderr.decode(errors='replace')}")
    return took


def measure(groups, rounds, environment, filter_file):
    times = {what: {name: [] for name in group} for what, group in groups.items()}
    for round_number in range(rounds + 3):
        for what, group in groups.items():
            for name, command in group.items():
                took = once(command, environment, filter_file)
                if round_number >= 3:  # the first ones fill caches
                    times[what][name].append(took)
    return times


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox-run", required=True, help="the binary to measure")
    parser.add_argument("--filter", required=True, help="the syscall filter of a cell, for bubblewrap")
    parser.add_argument("--rounds", type=int, default=200, help="how often each command is run")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    # Both sides use the system's interpreter.
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        hello = os.path.join(directory, "hello")
        subprocess.run(["cc", "-O2", "-static", "-x", "c", "-", "-o", hello], input=HELLO.encode(), check=True)
        groups = contenders(os.path.abspath(arguments.sandbox_run), hello)
        times = measure(groups, arguments.rounds, environment, arguments.filter)

    figures = {
        what: {name: {"p50": percentile(t, 0.5), "p95": percentile(t, 0.95)} for name, t in group.items()}
        for what, group in times.items()
    }
    print(f"{'cold start to end, ms':<22} {'bare':>14} {'bubblewrap':>14} {'sandbox-run':>14} {'of bubblewrap':>14}")
    for what, group in figures.items():
        cells = [f"{group[name]['p50']:.2f} ({group[name]['p95']:.2f})" for name in ("bare", "bubblewrap", "sandbox-run")]
        ratio = group["sandbox-run"]["p50"] / group["bubblewrap"]["p50"]
        print(f"{what:<22} {cells[0]:>14} {cells[1]:>14} {cells[2]:>14} {ratio:>14.2f}")
    print(f"median (95th percentile) of {arguments.rounds} runs each, interleaved")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(figures, out, indent=2)

    static = figures["static binary"]
    if static["sandbox-run"]["p50"] >= static["bubblewrap"]["p50"]:
        sys.exit("bench: missed the bar: a static binary takes no less than with bubblewrap")


if __name__ == "__main__":
    main()
