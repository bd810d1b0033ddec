// tries: has the kernel load modules, by calls that need no privilege for it
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
    // On any socket: the call is passed on to the module, which is loaded for it. A kernel that was asked answers otherwise.
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
