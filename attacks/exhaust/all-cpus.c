// tries: uses every CPU in many threads, with a share of a tenth of one
// seen-in: general
// walls: cpu
// needs: cpu
// limits: cpus=0.1 wall_time=5s
// alone: yes
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *spin(void *until) {
    while (now(CLOCK_MONOTONIC) < *(double *)until) {}
    return NULL;
}

int main(void) {
    double began = now(CLOCK_MONOTONIC), until = began + 1.0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, spin, &until);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    double used = now(CLOCK_PROCESS_CPUTIME_ID) / (now(CLOCK_MONOTONIC) - began);
    printf("used %.2f CPUs\n", used);
    puts("attempted");
    return used > 0.2 ? 99 : 0;
}
