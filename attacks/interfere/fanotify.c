// tries: takes fanotify groups of the host user, who can have 128
// seen-in: general
// walls: seccomp
#include <fcntl.h>
#include <stdio.h>
#include <sys/fanotify.h>

#ifndef FAN_REPORT_FID
#define FAN_REPORT_FID 0x00000200
#endif

int main(void) {
    // Programs without privileges may have groups that report file handles. One is enough to see whether it can.
    int group = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY);
    if (group >= 0) {
        puts("took one of the user's groups");
        return 99;
    }
    puts("attempted");
}
