// tries: looks up names that do not exist, each of which the kernel caches
// seen-in: sandbox-run 0.1.0
// walls: memory
// limits: memory=16m wall_time=8s
// expect: ok, memory_limit
// known-without: memory: without a cgroup, cached names are not charged to the program
// alone: yes
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long negative(void) {
    long all = 0, unused = 0, age = 0, want = 0, negative = 0;
    FILE *state = fopen("/proc/sys/fs/dentry-state", "r");
    if (!state || fscanf(state, "%ld %ld %ld %ld %ld", &all, &unused, &age, &want, &negative) != 5) return -1;
    fclose(state);
    return negative;
}

int main(void) {
    char name[300];
    // Names that no earlier run has looked up.
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long before = negative();
    for (long i = 0; i < 150000; i++) {
        // Long names are not kept in the entry itself, but beside it.
        snprintf(name, sizeof name, "/usr/lib/%ld-%ld-%0180ld", (long)now.tv_sec, now.tv_nsec, i);
        access(name, F_OK);
    }
    // 150,000 of them are 75 MiB. In 16 MiB there is room for a fifth.
    long left = negative() - before;
    printf("%ld names are remembered\n", left);
    fflush(stdout);
    // Where that is not visible, nothing shows that it was stopped.
    return before < 0 || left > 100000 ? 99 : 0;
}
