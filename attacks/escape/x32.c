// tries: calls the kernel with x32 numbers, which a filter on plain numbers does not know
// seen-in: isolate 2.6
// walls: seccomp, kernel
// needs: x86_64
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    const long numbers[] = {SYS_getpid, SYS_unshare, SYS_mount, SYS_keyctl, 512 + 9, 512 + 10};
    for (int i = 0; i < 6; i++) {
        pid_t child = fork();
        if (child == 0) _exit(syscall(0x40000000 + numbers[i], 0, 0, 0, 0, 0) >= 0 ? 99 : 0);
        int status;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
            puts("a call went through");
            return 99;
        }
    }
    puts("attempted");
}
