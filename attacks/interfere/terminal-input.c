// tries: types commands into the terminal of the user who started it
// seen-in: CVE-2017-5226 bubblewrap
// walls: keeper, seccomp
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

int main(void) {
    int places[] = {0, 1, 2, open("/dev/tty", O_RDWR), open("/dev/console", O_RDWR), open("/dev/pts/0", O_RDWR), open("/proc/self/fd/0", O_RDWR)};
    for (int i = 0; i < 7; i++) {
        char key = '\n';
        if (ioctl(places[i], TIOCSTI, &key) == 0 || ioctl(places[i], 0x541c, &key) == 0 || isatty(places[i])) {
            puts("typed into a terminal");
            return 99;
        }
    }
    puts("attempted");
}
