// tries: reads a key of the user who started the sandbox
// seen-in: general
// walls: seccomp
// needs: key
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    const long rings[] = {-3, -4, -5, -1, -2};
    char payload[256] = "";
    for (int i = 0; i < 5; i++) {
        long key = syscall(SYS_keyctl, 10, rings[i], "user", getenv("MARKER"), 0);
        if (key > 0 && syscall(SYS_keyctl, 11, key, payload, sizeof payload - 1) > 0) puts(payload);
    }
    long key = syscall(SYS_request_key, "user", getenv("MARKER"), NULL, 0);
    if (key > 0 && syscall(SYS_keyctl, 11, key, payload, sizeof payload - 1) > 0) puts(payload);
    if (syscall(SYS_add_key, "user", "another", "x", 1, -3) > 0) {
        puts("added a key");
        return 99;
    }
    puts("attempted");
}
