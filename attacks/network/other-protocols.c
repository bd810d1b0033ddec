// tries: makes the kernel load a rarely used protocol, by creating a socket for it
// seen-in: CVE-2017-6074 DCCP, CVE-2021-23133 SCTP
// walls: seccomp
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void) {
    // Multipath TCP is built into the kernel or missing: requesting it loads nothing.
    const int harmless = 262;
    int reached = socket(AF_INET, SOCK_STREAM, harmless) >= 0;
    // A type and protocol that no kernel has. The kernel's error shows that the call reached it, and that it would have
    // loaded a module; the filter's errors are others.
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
