// tries: sets up an io_uring, whose requests bypass the syscall filter
// seen-in: isolate 2.6, CVE-2022-29582 Linux
// walls: seccomp
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    long result;
    char parameters[120]; memset(parameters, 0, sizeof parameters); result = syscall(425, 4, parameters);
    if (result >= 0) {
        puts("the kernel agreed");
        return 99;
    }
    puts("attempted");
}
