// tries: observes when others open files that it shares with them
// seen-in: general
// walls: seccomp
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

static volatile int noticed;
static void notice(int signal_number) { noticed = signal_number; }

int main(void) {
    signal(SIGIO, notice);
    int directory = open(getenv("SHOWN"), O_RDONLY | O_DIRECTORY);
    fcntl(directory, F_NOTIFY, DN_ACCESS | DN_MODIFY | DN_MULTISHOT);
    int watch = inotify_init1(IN_NONBLOCK);
    char path[4096];
    snprintf(path, sizeof path, "%s/shared", getenv("SHOWN"));
    inotify_add_watch(watch, path, IN_OPEN | IN_ACCESS);
    inotify_add_watch(watch, getenv("SHOWN"), IN_OPEN | IN_ACCESS);
    // The neighbour opens the file fifty times a second.
    for (int i = 0; i < 20; i++) {
        struct pollfd event = {watch, POLLIN, 0};
        if (poll(&event, 1, 20) > 0 && event.revents & POLLIN) {
            puts("saw that a neighbour opened a file");
            return 99;
        }
        if (noticed) {
            puts("was told that a neighbour read a file");
            return 99;
        }
    }
    puts("attempted");
}
