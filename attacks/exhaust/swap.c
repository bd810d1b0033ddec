// tries: moves its memory to the host's swap, where a limit on resident memory does not see it
// seen-in: sandbox-run 0.1.0, without a control group
// walls: seccomp
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif

int main(void) {
    // A small area is enough to see whether it can.
    const size_t size = 1 << 20;
    char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return 1;
    memset(area, 1, size);
    if (madvise(area, size, MADV_PAGEOUT) == 0) {
        puts("the kernel writes the program's pages to swap");
        return 99;
    }
    if (madvise(area, size, MADV_COLD) == 0) {
        puts("the kernel takes the program's pages for unused");
        return 99;
    }
    puts("attempted");
}
