// tries: leaves netlink replies unread, in memory that no cgroup is charged for
// seen-in: general
// walls: seccomp
// limits: open_files=300
#define _GNU_SOURCE
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    struct {
        struct nlmsghdr header;
        struct ifinfomsg link;
    } question;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int unread = 0;
    memset(&question, 0, sizeof question);
    question.header.nlmsg_len = sizeof question;
    question.header.nlmsg_type = RTM_GETLINK;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    question.link.ifi_index = 1;
    // A few sockets are enough to see whether it can.
    for (int i = 0; i < 8; i++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        for (int n = 0; fd >= 0 && n < 10; n++)
            if (sendto(fd, &question, sizeof question, MSG_DONTWAIT, (void *)&kernel, sizeof kernel) > 0) unread++;
    }
    if (unread) {
        printf("%d answers wait\n", unread);
        return 99;
    }
    puts("attempted");
}
