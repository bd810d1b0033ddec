// tries: makes the kernel allocate memory for it: in sockets, pipes, messages and segments
// seen-in: general
// walls: memory
// limits: memory=48m wall_time=8s open_files=2000 processes=32
// expect: memory_limit, runtime_error
// known-without: memory: without a cgroup, kernel memory is not charged to the program
// alone: yes
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <unistd.h>

static char block[65536];
static long total;

// Each kind by itself must not exceed twice the limit.
static void check(const char *kind, long held) {
    printf("%ld MiB in %s\n", held >> 20, kind);
    fflush(stdout);
    total += held;
    if (held > 96 << 20) _exit(99);
}

int main(void) {
    memset(block, 'x', sizeof block);
    long held = 0;
    for (int i = 0; i < 600 && held < 110 << 20; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) break;
        int size = 4 << 20;
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        for (long n; held < 110 << 20 && (n = write(pair[0], block, sizeof block)) > 0;) held += n;
    }
    check("local sockets", held);
    held = 0;
    for (int i = 0; i < 300 && held < 110 << 20; i++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK)) break;
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        for (long n; held < 110 << 20 && (n = write(ends[1], block, sizeof block)) > 0;) held += n;
    }
    check("pipes", held);
    held = 0;
    struct { long type; char text[8000]; } message = {1, ""};
    for (int i = 0; i < 30000 && held < 110 << 20; i++) {
        int queue = msgget(IPC_PRIVATE, 0600);
        if (queue < 0) break;
        while (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0) held += sizeof message.text;
    }
    check("messages", held);
    // All of it together is more than the limit by far.
    return total > 96 << 20 ? 99 : 1;
}
