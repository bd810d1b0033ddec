// tries: uses more memory than allowed
// seen-in: general
// walls: memory
// limits: memory=64m wall_time=5s
// expect: memory_limit
// alone: yes
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    for (int i = 0; i < 200; i++) {
        char *part = malloc(1 << 20);
        if (!part) return 1;
        memset(part, i + 1, 1 << 20);
    }
    // Where memory is sampled and not limited, leave time for a sample.
    usleep(300000);
    puts("used 200 MiB");
}
