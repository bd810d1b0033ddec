// tries: creates a set-user-id program
// seen-in: general
// walls: seccomp
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    int fd = open("tool", O_CREAT | O_RDWR, 04777);
    if (fd < 0) fd = open("tool", O_CREAT | O_RDWR, 0777);
    chmod("tool", 04755);
    fchmod(fd, 06755);
    syscall(SYS_fchmodat, AT_FDCWD, "tool", 02755);
    syscall(452, AT_FDCWD, "tool", 06755, 0);
    unsigned long long how[3] = {O_CREAT | O_RDWR, 06755, 0};
    syscall(437, AT_FDCWD, "other", how, sizeof how);
    struct stat tool, other = {0};
    fstat(fd, &tool);
    stat("other", &other);
    if ((tool.st_mode | other.st_mode) & (S_ISUID | S_ISGID)) {
        puts("made a set-user-id file");
        return 99;
    }
    puts("attempted");
}
