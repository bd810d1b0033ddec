// tries: opens a performance counter of the kernel
// seen-in: CVE-2013-2094 Linux
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    long result;
    unsigned long long attributes[16] = {(112ull << 32)}; result = syscall(298, attributes, 0, -1, -1, 0);
    if (result >= 0) {
        puts("the kernel agreed");
        return 99;
    }
    puts("attempted");
}
