// tries: hides its CPU time in children that end before the next check
// seen-in: general
// walls: limits
// limits: cpu_time=300ms wall_time=20s processes=40
// expect: timeout
// alone: yes
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    for (int i = 0; i < 120; i++) {
        if (fork() == 0) {
            if (fork()) _exit(0);
            struct timespec now;
            do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
            while (now.tv_sec == 0 && now.tv_nsec < 15000000);
            _exit(0);
        }
        wait(NULL);
        usleep(12000);
    }
}
