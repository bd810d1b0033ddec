// tries: learns something from a neighbour by locks on a file that both can read
// seen-in: general
// walls: kernel
// known: two cells that want to can tell each other something by locks on files of the system, or by the load of the CPU
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/shared", getenv("SHOWN"));
    int fd = open(path, O_RDONLY);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        puts("a neighbour holds a lock");
        return 99;
    }
    puts("attempted");
}
