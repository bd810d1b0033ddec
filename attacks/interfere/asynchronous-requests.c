// tries: takes all asynchronous requests of the host, whose number is limited for all users together
// seen-in: general
// walls: seccomp
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    unsigned long context = 0;
    // A few are enough to see whether it can.
    if (syscall(SYS_io_setup, 8, &context) == 0) {
        puts("took some of the machine's requests");
        return 99;
    }
    puts("attempted");
}
