// tries: passes messages to its next run through a POSIX message queue and named semaphores
// seen-in: general
// walls: ipc, kernel
// twice: yes
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int main(void) {
    char name[256];
    snprintf(name, sizeof name, "/%s", getenv("MARKER"));
    mqd_t left = mq_open(name, O_RDWR);
    if (left != (mqd_t)-1) {
        mq_unlink(name);
        puts("found what an earlier run left");
        return 99;
    }
    mq_open(name, O_CREAT | O_RDWR, 0666, NULL);
    puts("attempted");
}
