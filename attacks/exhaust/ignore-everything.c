// tries: outlives its deadline: ignores signals, forks away, leaves its session
// seen-in: Piston issue 196
// walls: keeper
// limits: wall_time=500ms processes=1000
// expect: timeout
// alone: yes
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
    for (int signal_number = 1; signal_number < 65; signal_number++) signal(signal_number, SIG_IGN);
    prctl(PR_SET_NAME, "sandbox-init");
    for (int i = 0; i < 5; i++)
        if (fork() == 0) {
            setsid();
            if (fork()) _exit(0);
            // Like a program that watches for the end of its parent, again and again.
            for (int j = 0; j < 40; j++)
                if (fork()) _exit(0);
            while (1) pause();
        }
    while (1) pause();
}
