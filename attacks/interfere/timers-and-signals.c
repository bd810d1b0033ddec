// tries: takes all timers and queued signals of the host user
// seen-in: sandbox-run 0.1.0
// walls: limits
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_SIGPENDING, &all);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN;
    int timers = 0, signals = 0;
    timer_t timer;
    while (timers < 3000 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timers++;
    sigset_t blocked;
    sigfillset(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    while (signals < 3000 && sigqueue(getpid(), SIGRTMIN + 1, (union sigval){0}) == 0) signals++;
    printf("%d timers, %d signals\n", timers, signals);
    if (timers + signals > 1500) return 99;
    puts("attempted");
}
