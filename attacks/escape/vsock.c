// tries: opens a socket to the hypervisor
// seen-in: isolate 2.6
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
    result = socket(40, SOCK_STREAM, 0);
    if (result >= 0) {
        puts("the kernel agreed");
        return 99;
    }
    puts("attempted");
}
