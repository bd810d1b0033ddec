// tries: creates or enters mount, network, process and other namespaces, and changes its root
// seen-in: general
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(const char *what, long result) {
    if (result != 0) return;
    printf("%s was allowed\n", what);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    const int flags[] = {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET, 0x80};
    for (int i = 0; i < 7; i++) check("unshare", unshare(flags[i]));
    const char *names[] = {"mnt", "net", "pid", "ipc", "uts", "user", "cgroup"};
    char path[64];
    for (int pid = 0; pid < 3; pid++)
        for (int i = 0; i < 7; i++) {
            snprintf(path, sizeof path, "/proc/%s%.0d/ns/%s", pid ? "" : "self", pid, names[i]);
            int fd = open(path, O_RDONLY);
            if (fd >= 0) {
                check("setns", setns(fd, 0));
                close(fd);
            }
        }
    check("setns of a process", setns(syscall(434, 1, 0), CLONE_NEWNS | CLONE_NEWPID));
    check("chroot", chroot("."));
    check("pivot_root", syscall(SYS_pivot_root, ".", "."));
    puts("attempted");
}
