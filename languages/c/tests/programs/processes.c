// Processes: fork, pipes, waitpid, exit codes, signals, and a child's redirected output.
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t signals_seen;

static void on_signal(int number) {
    if (number == SIGUSR1) signals_seen++;
}

static int wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Runs part of a sum in a child and sends it back through a pipe.
static long sum_in_child(long from, long to) {
    int ends[2];
    if (pipe(ends)) abort();
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        long sum = 0;
        for (long n = from; n <= to; n++) sum += n;
        _exit(write(ends[1], &sum, sizeof sum) != sizeof sum);
    }
    close(ends[1]);
    long sum = -1;
    if (read(ends[0], &sum, sizeof sum) != sizeof sum) abort();
    close(ends[0]);
    return wait_for(child) == 0 ? sum : -1;
}

int main(void) {
    printf("sum: %ld\n", sum_in_child(1, 500000) + sum_in_child(500001, 1000000));
    fflush(stdout);

    pid_t child = fork();
    if (child == 0) _exit(42);
    printf("exit code: %d\n", wait_for(child));
    fflush(stdout);

    child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    kill(child, SIGKILL);
    printf("killed by: %d\n", -wait_for(child));

    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 3; i++) raise(SIGUSR1);
    printf("signals: %d\n", (int)signals_seen);

    char line[64] = "";
    FILE *command = popen("echo from the shell | tr a-z A-Z", "r");
    if (!command || !fgets(line, sizeof line, command)) abort();
    printf("popen: %s", line);
    printf("closed: %d, has PATH: %d\n", pclose(command), getenv("PATH") != NULL);
    return 0;
}
