// tries: calls the kernel through the 32-bit entry point, where call numbers mean something else
// seen-in: isolate 2.6
// walls: seccomp
// needs: x86_64
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
#ifdef __x86_64__
    pid_t child = fork();
    if (child == 0) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
        _exit(result > 0 ? 99 : 0);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
        puts("getpid answered");
        return 99;
    }
#endif
    puts("attempted");
}
