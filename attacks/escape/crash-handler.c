// tries: crashes so that the kernel runs the host's crash handler as root, with the program's memory as its input
// seen-in: sandbox-run 0.1.0
// walls: seccomp
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// At a limit of 1 the kernel runs no handler; at 0 it does, though it would write no file.
static int handler_runs(void) {
    struct rlimit now = {0, 0};
    getrlimit(RLIMIT_CORE, &now);
    return now.rlim_cur != 1;
}

int main(void) {
    struct rlimit zero = {0, 1}, none = {0, 0}, before;
    if (handler_runs()) {
        puts("the limit is not 1");
        return 99;
    }
    setrlimit(RLIMIT_CORE, &zero);
    prlimit(0, RLIMIT_CORE, &zero, &before);
    prlimit(getpid(), RLIMIT_CORE, &zero, NULL);
    syscall(SYS_setrlimit, RLIMIT_CORE, &zero);
    syscall(SYS_prlimit64, 0, RLIMIT_CORE | 1L << 32, &zero, NULL);
    syscall(SYS_prlimit64, 1L << 32, RLIMIT_CORE, &none, NULL);
    if (handler_runs()) {
        puts("changed the limit");
        return 99;
    }
    puts("attempted");
}
