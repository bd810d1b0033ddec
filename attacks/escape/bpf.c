// tries: loads a program into the kernel
// seen-in: CVE-2021-3490 Linux
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
    unsigned long long attributes[16] = {2 | (4ull << 32), 4 | (1ull << 32)}; result = syscall(321, 0, attributes, sizeof attributes);
    if (result >= 0) {
        puts("the kernel agreed");
        return 99;
    }
    puts("attempted");
}
