// tries: communicates with a neighbour through locks on a file that both can read
// seen-in: general
// walls: kernel
// known: two cooperating cells can communicate through locks on system files, or through the CPU load
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
