// tries: reserves a terabyte, then touches it page by page
// seen-in: general
// walls: memory, limits
// limits: memory=64m wall_time=5s
// expect: memory_limit, runtime_error
// alone: yes
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    size_t size = 1ul << 40;
    volatile char *part = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (part == MAP_FAILED) return 1;
    for (size_t at = 0; at < 300ul << 20; at += 4096) part[at] = 1;
    // Stays alive, so that a periodic check sees it.
    for (int i = 0; i < 200; i++)
        for (size_t at = 0; at < 300ul << 20; at += 4096) part[at]++;
    puts("used 300 MiB");
}
