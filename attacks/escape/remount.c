// tries: makes read-only mounts writable, covers them, or removes them, with the old and the new calls
// seen-in: CVE-2026-46695 BoxLite
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(const char *what, long result) {
    if (result < 0) return;
    printf("%s was allowed\n", what);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    const char *places[] = {"/", "/usr", "/proc", "/build", getenv("SHOWN"), "."};
    for (int i = 0; i < 6; i++) {
        check("remount", mount(NULL, places[i], NULL, MS_REMOUNT | MS_BIND, NULL));
        check("remount of the file system", mount(NULL, places[i], NULL, MS_REMOUNT, NULL));
        check("bind", mount("/", places[i], NULL, MS_BIND | MS_REC, NULL));
        check("tmpfs", mount("none", places[i], "tmpfs", 0, NULL));
        check("umount", umount2(places[i], MNT_DETACH));
        check("propagation", mount(NULL, places[i], NULL, MS_SHARED | MS_REC, NULL));
        check("open_tree", syscall(SYS_open_tree, AT_FDCWD, places[i], 1 | AT_RECURSIVE));
        check("fspick", syscall(433, AT_FDCWD, places[i], 0));
        struct { unsigned long long set, clear, propagation, userns; } attributes = {0, 1, 0, 0};
        check("mount_setattr", syscall(442, AT_FDCWD, places[i], AT_RECURSIVE, &attributes, sizeof attributes));
    }
    check("fsopen", syscall(430, "proc", 0));
    check("overlay", mount("overlay", ".", "overlay", 0, "lowerdir=/,upperdir=.,workdir=."));
    char path[512];
    snprintf(path, sizeof path, "%s/shared", getenv("SHOWN"));
    check("writing to what is shown", open(path, O_WRONLY));
    puts("attempted");
}
