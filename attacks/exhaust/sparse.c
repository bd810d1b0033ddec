// tries: creates files that seem larger than any disk, to be copied by the collector
// seen-in: snekbox
// walls: collector, limits
// collect: yes
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "sparse-%d", i);
        int fd = open(name, O_CREAT | O_RDWR, 0644);
        // As large as a single file may be, with nothing in it.
        for (long size = 1L << 42; size > 4096 && ftruncate(fd, size); size /= 2) {}
        close(fd);
    }
    puts("attempted");
}
