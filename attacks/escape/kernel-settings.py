# tries: opens the kernel's settings and triggers for writing, also while others cover and uncover them
# seen-in: CVE-2025-31133, CVE-2025-52565, CVE-2025-52881 runc
# walls: mount, kernel
import os, threading
places = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger",
          "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/ns_last_pid",
          "/proc/sys/user/max_user_namespaces", "/proc/1/oom_score_adj", "/proc/self/oom_score_adj", "/proc/self/uid_map",
          "/proc/irq/default_smp_affinity", "/proc/bus/pci/00/00.0", "/proc/acpi/wakeup", "/proc/mtrr", "/proc/kcore",
          "/proc/self/attr/exec", "/proc/self/../sys/kernel/core_pattern", "/proc/thread-self/../../../sys/kernel/core_pattern"]
won = []
def attempt():
    for _ in range(20):
        for place in places:
            # Opening is enough; nothing is written.
            for flags in (os.O_WRONLY, os.O_RDWR):
                try:
                    os.close(os.open(place, flags))
                    won.append(place)
                except OSError: pass
threads = [threading.Thread(target=attempt) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
# Masks must show nothing, whatever name they are reached by.
for mask in ("/proc/kcore", "/proc/keys", "/proc/kallsyms", "/proc/self/../kallsyms", "/proc/cmdline"):
    try:
        if open(mask, "rb").read(1): won.append(mask)
    except OSError: pass
if won:
    print("opened", sorted(set(won)), flush=True)
    os._exit(99)
print("attempted")
