// tries: makes the host flush all its disks, again and again, which slows every other process down
// seen-in: general
// walls: seccomp
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    // Once is enough to see whether it can.
    if (syscall(SYS_sync) == 0 || syscall(SYS_syncfs, open("/usr", O_RDONLY)) == 0) {
        puts("the host's disks were written out");
        return 99;
    }
    puts("attempted");
}
