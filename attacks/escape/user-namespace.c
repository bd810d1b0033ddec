// tries: becomes root in a new user namespace
// seen-in: general
// walls: seccomp, user
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void won(const char *how) {
    puts(how);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    struct { unsigned long long flags, rest[10]; } args;
    memset(&args, 0, sizeof args);
    args.flags = CLONE_NEWUSER;
    args.rest[3] = SIGCHLD;
    long child = syscall(435, &args, 64);
    if (child == 0) _exit(0);
    if (child > 0) won("clone3 made a user namespace");
    child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child > 0) won("clone made a user namespace");
    // The high half of the flags is ignored by the kernel, and must be by the filter.
    child = syscall(SYS_clone, 0xffffffff00000000ul | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child > 0) won("clone made a user namespace");
    if (unshare(CLONE_NEWUSER) == 0) won("unshare made a user namespace");
    puts("attempted");
}
