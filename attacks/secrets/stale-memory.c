// tries: finds data that others left in memory, pipes and new files
// seen-in: general
// walls: kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(const char *what, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) {
            printf("%s is not empty\n", what);
            fflush(stdout);
            _exit(99);
        }
}

int main(void) {
    size_t size = 16 << 20;
    check("memory", mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), size);
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, size) == 0) check("a file", mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0), size);
    int memory = memfd_create("memory", 0);
    if (ftruncate(memory, size) == 0) check("a memory file", mmap(NULL, size, PROT_READ, MAP_SHARED, memory, 0), size);
    puts("attempted");
}
