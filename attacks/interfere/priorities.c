// tries: takes CPU time and priority away from a process outside, and gives itself more
// seen-in: general
// walls: pid, kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(const char *what, long result) {
    if (result < 0) return;
    printf("%s was allowed\n", what);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    int victim = atoi(getenv("VICTIM"));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    struct sched_param real_time = {1}, none = {0};
    struct rlimit limit = {0, 0};
    check("setpriority of another", setpriority(PRIO_PROCESS, victim, 19));
    check("sched_setaffinity of another", sched_setaffinity(victim, sizeof one, &one));
    check("sched_setscheduler of another", sched_setscheduler(victim, SCHED_IDLE, &none));
    check("ioprio_set of another", syscall(SYS_ioprio_set, 1, victim, 3 << 13));
    check("prlimit of another", prlimit(victim, RLIMIT_CPU, &limit, NULL));
    check("migrate_pages of another", syscall(SYS_migrate_pages, victim, 0, NULL, NULL));
    check("a higher priority", setpriority(PRIO_PROCESS, 0, -5));
    check("real time", sched_setscheduler(0, SCHED_FIFO, &real_time));
    check("real time for disks", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
    check("protection from the out-of-memory killer", open("/proc/self/oom_score_adj", O_WRONLY));
    puts("attempted");
}
