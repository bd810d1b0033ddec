// tries: locks memory, which the kernel then cannot reclaim
// seen-in: general
// walls: limits
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all);
    size_t size = 1 << 20;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mlock(memory, size) == 0 || mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0) {
        puts("locked memory");
        return 99;
    }
#ifdef SYS_memfd_secret
    if (syscall(SYS_memfd_secret, 0) >= 0) {
        puts("has memory that even the kernel does not map");
        return 99;
    }
#endif
    puts("attempted");
}
