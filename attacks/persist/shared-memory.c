// tries: leaves shared memory for its next run
// seen-in: Piston issue 624
// walls: ipc
// needs: sysv
// twice: yes
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/shm.h>

int main(void) {
    int key = atoi(getenv("LEFT_KEY"));
    int left = shmget(key, 0, 0);
    if (left >= 0) {
        shmctl(left, IPC_RMID, NULL);
        puts("found what an earlier run left");
        return 99;
    }
    shmget(key, 4096, IPC_CREAT | 0666);
    puts("attempted");
}
