// tries: creates more processes than allowed
// seen-in: general
// walls: pids
// limits: processes=32 wall_time=5s
// expect: process_limit, runtime_error
// alone: yes
#include <stdio.h>
#include <unistd.h>

int main(void) {
    // Bounded, for cells without a limit.
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            sleep(20);
            _exit(0);
        }
    }
    puts("made 200 processes");
}
