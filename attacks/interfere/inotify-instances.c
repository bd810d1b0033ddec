// tries: takes all inotify instances of the host user, who can have 128
// seen-in: sandbox-run 0.1.0
// walls: seccomp
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

int main(void) {
    // One is enough to see whether it can.
    if (inotify_init() >= 0 || inotify_init1(IN_NONBLOCK) >= 0) {
        puts("took one of the user's instances");
        return 99;
    }
    puts("attempted");
}
