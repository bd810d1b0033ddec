// tries: opens files, pipes and sockets without end
// seen-in: general
// walls: limits
// limits: open_files=64
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void) {
    struct rlimit more = {4096, 4096};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) return 99;
    int count = 0;
    while (count < 4096 && dup(0) >= 0) count++;
    if (count > 64) return 99;
    puts("attempted");
}
