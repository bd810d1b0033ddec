// tries: creates a file in a host directory that cells do not use
// seen-in: CVE-2024-28185 Judge0
// walls: mount, landlock
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "/var/tmp/%s", getenv("MARKER"));
    open(path, O_CREAT | O_WRONLY, 0644);
    puts("attempted");
}
