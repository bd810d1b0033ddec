// tries: has the kernel load a seldom used protocol, by asking for a socket of it
// seen-in: CVE-2017-6074 DCCP, CVE-2021-23133 SCTP
// walls: seccomp
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void) {
    // Multipath TCP, which is part of the kernel or not there at all: asking for it loads nothing.
    const int harmless = 262;
    int reached = socket(AF_INET, SOCK_STREAM, harmless) >= 0;
    // Type and protocol that no kernel has. Its own answer tells that it was asked, and would have loaded what it needs; the
    // filter's answers are others.
    errno = 0;
    reached |= socket(AF_INET, SOCK_STREAM, 254) < 0 && errno != EAFNOSUPPORT && errno != EACCES;
    errno = 0;
    reached |= socket(AF_INET, 7, 0) < 0 && errno != EAFNOSUPPORT && errno != EACCES;
    errno = 0;
    reached |= socket(AF_INET6, SOCK_DGRAM, 254) < 0 && errno != EAFNOSUPPORT && errno != EACCES;
    if (reached) {
        puts("the kernel was asked");
        return 99;
    }
    puts("attempted");
}
