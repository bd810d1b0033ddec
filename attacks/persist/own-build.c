// tries: changes the compiled program, which later runs of the same source would use
// seen-in: general
// walls: keeper
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    char program[4096], new[4200], old[4200];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return 1;
    program[length] = 0;
    snprintf(new, sizeof new, "%s-new", program);
    snprintf(old, sizeof old, "%s-old", program);
    if (open(program, O_WRONLY) >= 0 || open(new, O_CREAT | O_WRONLY, 0755) >= 0 || unlink(program) == 0 ||
        rename(program, old) == 0 || chmod(program, 0777) == 0 || link(program, "p") == 0 || truncate(program, 0) == 0) {
        puts("changed the build");
        return 99;
    }
    puts("attempted");
}
