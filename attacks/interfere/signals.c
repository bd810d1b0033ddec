// tries: stops and kills a process outside
// seen-in: dify-sandbox issues 225 and 253
// walls: pid, kernel
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    int victim = atoi(getenv("VICTIM"));
    const int signals[] = {SIGSTOP, SIGTERM, SIGKILL};
    for (int i = 0; i < 3; i++) {
        kill(victim, signals[i]);
        syscall(SYS_tgkill, victim, victim, signals[i]);
        syscall(SYS_tkill, victim, signals[i]);
        siginfo_t info = {.si_signo = signals[i], .si_code = SI_QUEUE};
        syscall(SYS_rt_sigqueueinfo, victim, signals[i], &info);
        long handle = syscall(434, victim, 0);
        syscall(424, handle, signals[i], NULL, 0);
    }
    puts("attempted");
}
