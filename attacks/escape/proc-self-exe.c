// tries: opens the executables of init, of itself and of others for writing, through /proc
// seen-in: CVE-2019-5736 runc
// walls: kernel, keeper
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void attempt(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        // Avoids "text file busy": first a handle, then the file itself when no process runs it any more.
        int handle = open(path, O_PATH | O_CLOEXEC);
        char again[64];
        snprintf(again, sizeof again, "/proc/self/fd/%d", handle);
        for (int i = 0; handle >= 0 && fd < 0 && i < 100; i++) fd = open(again, O_WRONLY | O_TRUNC | O_CLOEXEC);
        if (handle >= 0) close(handle);
    }
    if (fd >= 0) {
        printf("opened %s for writing\n", path);
        fflush(stdout);
        _exit(99);
    }
}

int main(void) {
    attempt("/proc/self/exe");
    attempt("/proc/1/exe");
    attempt("/build/program");
    const int others[] = {getppid(), atoi(getenv("VICTIM")), atoi(getenv("SUITE"))};
    for (int i = 0; i < 3; i++) {
        char other[64];
        snprintf(other, sizeof other, "/proc/%d/exe", others[i]);
        attempt(other);
    }
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sleep", "sleep", "0.2", NULL);
        _exit(1);
    }
    char path[300];
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
        if (atoi(entry->d_name) > 0) attempt(path);
    }
    for (int pid = 1; pid < 100; pid++) {
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        attempt(path);
    }
    waitpid(child, NULL, 0);
    puts("attempted");
}
