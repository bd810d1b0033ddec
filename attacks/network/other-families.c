// tries: opens sockets of families that programs do not need
// seen-in: CVE-2016-8655, CVE-2017-7308 Linux
// walls: seccomp, kernel
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    for (int family = 0; family < 50; family++)
        for (int type = 1; type < 8; type++)
            for (int protocol = 0; protocol < 22; protocol++) {
                int fd = socket(family, type, protocol);
                // Local, IPv4, IPv6, and the part of netlink that lists addresses. Not raw.
                int harmless = family == AF_UNIX || ((family == AF_INET || family == AF_INET6) && type != SOCK_RAW) ||
                               (family == AF_NETLINK && protocol == 0);
                if (fd >= 0 && !harmless) {
                    printf("opened family %d type %d protocol %d\n", family, type, protocol);
                    return 99;
                }
                if (fd >= 0) close(fd);
            }
    puts("attempted");
}
