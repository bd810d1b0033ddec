// tries: gives each of many mappings a memory policy, which the kernel charges to no cgroup
// seen-in: general
// walls: seccomp
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    unsigned long nodes = 1;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // One is enough to see whether it can. 2 is MPOL_BIND.
    if (syscall(SYS_mbind, page, 4096, 2, &nodes, 8, 0) == 0) {
        puts("made a memory policy");
        return 99;
    }
    // A name is held in the same way.
    if (prctl(0x53564d41 /* PR_SET_VMA */, 0, page, 4096, "name") == 0) {
        puts("named a mapping");
        return 99;
    }
    puts("attempted");
}
