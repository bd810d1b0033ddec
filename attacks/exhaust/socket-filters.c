// tries: makes the kernel create BPF programs, of which all users share one pool, and which can hang the host when many are freed
// seen-in: sandbox-run 0.1.0; Linux 6.12 and 6.18
// walls: seccomp
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif

// One of each kind is enough to see whether it can. Never try more on a host that is in use.
int main(void) {
    struct sock_filter accept_all = {BPF_RET | BPF_K, 0, 0, 0x7fff0000};
    struct sock_fprog program = {1, &accept_all};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    if (setsockopt(pair[0], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0) {
        puts("attached a filter to a socket");
        return 99;
    }
    int options[] = {SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, 52 /* SO_ATTACH_REUSEPORT_EBPF */};
    for (int i = 0; i < 3; i++)
        if (setsockopt(pair[0], SOL_SOCKET, options[i], &program, sizeof program) == 0) {
            printf("attached a filter by option %d\n", options[i]);
            return 99;
        }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) {
        puts("installed a syscall filter");
        return 99;
    }
    puts("attempted");
}
