// tries: takes huge pages, which no memory limit counts
// seen-in: general
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

int main(void) {
    size_t size = 2 << 20;
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (pages != MAP_FAILED) {
        puts("mapped a huge page");
        return 99;
    }
    int fd = memfd_create("huge", MFD_HUGETLB);
    if (fd >= 0) {
        puts("made a file of huge pages");
        return 99;
    }
    if (shmget(IPC_PRIVATE, size, IPC_CREAT | SHM_HUGETLB | 0600) >= 0) {
        puts("made a segment of huge pages");
        return 99;
    }
    puts("attempted");
}
