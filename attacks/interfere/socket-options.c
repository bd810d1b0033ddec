// tries: switches code paths of the whole kernel and takes IPv6 flow labels, which all users share, through socket options
// seen-in: general
// walls: seccomp
// network: localhost
#include <arpa/inet.h>
#include <linux/in6.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

// One socket at a time, so that the switches are off again when the program ends.
static int accepted(int type, int level, int option, const void *value, socklen_t length) {
    int fd = socket(level == IPPROTO_IPV6 ? AF_INET6 : AF_INET, type, 0);
    int ok = fd >= 0 && setsockopt(fd, level, option, value, length) == 0;
    close(fd);
    return ok;
}

int main(void) {
    int one = 1, software = 1 << 4 /* SOF_TIMESTAMPING_SOFTWARE */ | 1 << 3 /* …_RX_SOFTWARE */;
    int stamps[] = {SO_TIMESTAMP, SO_TIMESTAMPNS, 63 /* SO_TIMESTAMP_NEW */, 64 /* SO_TIMESTAMPNS_NEW */};
    for (unsigned i = 0; i < sizeof stamps / sizeof *stamps; i++)
        if (accepted(SOCK_DGRAM, SOL_SOCKET, stamps[i], &one, sizeof one)) {
            printf("every packet of the host has a time stamp because of option %d\n", stamps[i]);
            return 99;
        }
    if (accepted(SOCK_DGRAM, SOL_SOCKET, SO_TIMESTAMPING, &software, sizeof software)) {
        puts("every packet of the host has a time stamp");
        return 99;
    }
    if (accepted(SOCK_STREAM, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one)) {
        puts("pages of the program can be locked for sending");
        return 99;
    }
    struct in6_flowlabel_req label;
    memset(&label, 0, sizeof label);
    inet_pton(AF_INET6, "::1", &label.flr_dst);
    label.flr_action = IPV6_FL_A_GET;
    label.flr_share = IPV6_FL_S_EXCL;
    label.flr_flags = IPV6_FL_F_CREATE;
    if (accepted(SOCK_DGRAM, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &label, sizeof label)) {
        puts("took a flow label");
        return 99;
    }
    puts("attempted");
}
