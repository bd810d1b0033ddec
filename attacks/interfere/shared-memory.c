// tries: reads and changes shared memory and messages of processes outside
// seen-in: general
// walls: ipc
// needs: sysv
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/shm.h>

int main(void) {
    int ids[] = {shmget(atoi(getenv("MEMORY_KEY")), 0, 0), atoi(getenv("MEMORY_ID"))};
    for (int i = 0; i < 2; i++) {
        char *memory = ids[i] < 0 ? (char *)-1 : shmat(ids[i], NULL, 0);
        if (memory != (char *)-1) {
            printf("%.40s\n", memory);
            memset(memory, 'x', 8);
        }
    }
    struct { long type; char text[256]; } message = {0};
    int queue = msgget(atoi(getenv("QUEUE_KEY")), 0);
    if (queue >= 0 && msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT) > 0) puts(message.text);
    puts("attempted");
}
