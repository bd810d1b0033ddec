// tries: makes the kernel load modules, through calls that need no privilege
// seen-in: general
// walls: seccomp
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    // On any socket: the kernel loads a module to handle the call. If the call reaches the kernel, the error is another one.
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    unsigned long calls[] = {0x89a0 /* SIOCBRADDBR */, 0x8983 /* SIOCSIFVLAN */};
    for (int i = 0; i < 2; i++) {
        char name[IFNAMSIZ] = "attack0";
        if (ioctl(pair[0], calls[i], name) == 0 || errno != ENOTTY) {
            printf("the kernel was asked: %s\n", strerror(errno));
            return 99;
        }
    }
    puts("attempted");
}
