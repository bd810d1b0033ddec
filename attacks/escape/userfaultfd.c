// tries: creates a userfaultfd, which helps to win races in the kernel
// seen-in: general
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
    result = syscall(323, 1 | O_CLOEXEC);
    if (result >= 0) {
        puts("the kernel agreed");
        return 99;
    }
    puts("attempted");
}
