// tries: reads and controls the memory of init, the trusted program in the cell
// seen-in: general
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void check(const char *what, long result) {
    if (result < 0) return;
    printf("%s was allowed\n", what);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    int others[] = {1, getppid(), atoi(getenv("VICTIM")), atoi(getenv("SUITE"))};
    const char *files[] = {"mem", "maps", "environ", "auxv", "stack", "syscall", "clear_refs", "pagemap", "fd", "map_files"};
    for (int i = 0; i < 4; i++) {
        char buffer[16], path[64];
        struct iovec here = {buffer, 16}, there = {(void *)0x400000, 16};
        check("ptrace", ptrace(PTRACE_ATTACH, others[i], 0, 0));
        check("ptrace", ptrace(PTRACE_SEIZE, others[i], 0, 0));
        check("process_vm_readv", process_vm_readv(others[i], &here, 1, &there, 1, 0));
        check("process_vm_writev", process_vm_writev(others[i], &here, 1, &there, 1, 0));
        long handle = syscall(434, others[i], 0);
        for (int fd = 0; fd < 20; fd++) check("pidfd_getfd", syscall(438, handle, fd, 0));
        struct rlimit limit = {0, 0};
        check("prlimit", prlimit(others[i], RLIMIT_NOFILE, NULL, &limit));
        check("kcmp", syscall(SYS_kcmp, getpid(), others[i], 2, 0, 0));
        for (int j = 0; j < 10; j++) {
            snprintf(path, sizeof path, "/proc/%d/%s", others[i], files[j]);
            check(path, open(path, O_RDONLY));
        }
    }
    puts("attempted");
}
