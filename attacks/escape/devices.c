// tries: creates or opens devices: memory, disks, the console
// seen-in: general
// walls: kernel, keeper
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void won(const char *how) {
    puts(how);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    const int devices[][3] = {{S_IFCHR, 1, 1}, {S_IFCHR, 1, 2}, {S_IFCHR, 1, 11}, {S_IFBLK, 8, 0}, {S_IFBLK, 254, 0},
                              {S_IFBLK, 259, 0}, {S_IFCHR, 5, 1}, {S_IFCHR, 10, 229}, {S_IFCHR, 10, 200}};
    for (int i = 0; i < 9; i++) {
        unlink("device");
        if (mknod("device", devices[i][0] | 0666, makedev(devices[i][1], devices[i][2])) == 0)
            if (open("device", O_RDONLY | O_NONBLOCK) >= 0) won("made and opened a device");
    }
    const char *known[] = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm", ".", ".."};
    DIR *dev = opendir("/dev");
    for (struct dirent *entry; dev && (entry = readdir(dev));) {
        int expected = 0;
        for (int i = 0; i < 12; i++) expected |= strcmp(entry->d_name, known[i]) == 0;
        if (!expected) won(entry->d_name);
    }
    puts("attempted");
}
