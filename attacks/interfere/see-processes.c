// tries: finds out whether a process exists outside
// seen-in: dify-sandbox issues 225 and 253
// walls: pid
// known-without: pid: without a PID namespace the process list is shared, and a refused signal reveals that a process exists
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    const char *names[] = {"VICTIM", "SUITE"};
    for (int i = 0; i < 2; i++) {
        int pid = atoi(getenv(names[i]));
        errno = 0;
        int there = (kill(pid, 0) == 0 || errno == EPERM) || getpgid(pid) >= 0 || getsid(pid) >= 0 || sched_getscheduler(pid) >= 0 ||
                    syscall(434, pid, 0) >= 0;
        if (there && pid > 64) {
            printf("process %d is there\n", pid);
            return 99;
        }
    }
    puts("attempted");
}
