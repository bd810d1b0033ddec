// tries: changes the compiled program, which later runs of the same source would use
// seen-in: general
// walls: keeper
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    if (open("/build/program", O_WRONLY) >= 0 || open("/build/new", O_CREAT | O_WRONLY, 0755) >= 0 || unlink("/build/program") == 0 ||
        rename("/build/program", "/build/old") == 0 || chmod("/build/program", 0777) == 0 || link("/build/program", "/sandbox/p") == 0) {
        puts("changed the build");
        return 99;
    }
    puts("attempted");
}
