// tries: finds a leaked descriptor, or a working directory that leads out of the cell
// seen-in: CVE-2024-21626 runc, go-judge before 1.1.5
// walls: keeper
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void won(const char *how) {
    puts(how);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) != -1) won("a descriptor above 2 is open");
    char target[512];
    for (int fd = 0; fd < 3; fd++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        struct stat meta;
        if (fstat(fd, &meta) == 0 && (S_ISDIR(meta.st_mode) || S_ISSOCK(meta.st_mode))) won("a standard stream leads elsewhere");
        snprintf(path, sizeof path, "/proc/self/fd/%d/../../..", fd);
        if (open(path, O_PATH) >= 0) won("a way through a standard stream");
    }
    // Up and out: the parent of the root is the root.
    struct stat root, above;
    stat("/", &root);
    for (int i = 0; i < 50; i++) {
        if (chdir("..")) break;
    }
    stat(".", &above);
    if (above.st_ino != root.st_ino || above.st_dev != root.st_dev) won("the way up does not end at the cell's root");
    char *out = malloc(4096);
    snprintf(out, 4096, "/proc/self/root/../../..%s", getenv("SECRET"));
    FILE *file = fopen(out, "r");
    if (file && fgets(target, sizeof target, file)) puts(target);
    puts("attempted");
}
