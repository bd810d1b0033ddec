// tries: types into its own terminal, changes what it is to the kernel, and opens terminals of others or very many
// seen-in: CVE-2017-5226 bubblewrap, CVE-2016-7545 policycoreutils, LXC with shared devpts
// walls: keeper, seccomp
// needs: terminal
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* More than the cell's own bound, and nothing to a kernel. */
#define MANY 40
#define BOUND 16

static void won(const char *how) {
    puts(how);
    fflush(stdout);
    _exit(99);
}

static void abuse(int terminal) {
    char key = '\n';
    int line_discipline = 3, three = 3;
    if (ioctl(terminal, TIOCSTI, &key) == 0) won("typed into a terminal");
    if (ioctl(terminal, 0x541c, &three) == 0) won("pasted into a console");
    if (ioctl(terminal, TIOCSETD, &line_discipline) == 0) won("chose a line discipline");
    if (ioctl(terminal, TIOCCONS) == 0) won("took the console");
    if (ioctl(terminal, TIOCSTI | 1UL << 32, &key) == 0) won("typed with a number that was cut off");
}

int main(void) {
    char name[64];
    if (!isatty(0)) won("there is no terminal");
    abuse(0);
    abuse(open("/dev/tty", O_RDWR));
    if (open("/dev/console", O_RDWR | O_NOCTTY) >= 0 || open("/dev/tty0", O_RDWR | O_NOCTTY) >= 0) won("opened a console");
    for (int i = 1; i < 4096; i++) {
        snprintf(name, sizeof name, "/dev/pts/%d", i);
        if (open(name, O_RDWR | O_NOCTTY | O_NONBLOCK) >= 0) won("opened a terminal of somebody else");
        if (i < 64) {
            unlink("device");
            if (mknod("device", S_IFCHR | 0666, makedev(136, i)) == 0) won("made the device of a terminal");
        }
    }
    int own = 1;
    for (; own < MANY; own++) {
        int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlock = 0;
        if (master < 0) break;
        ioctl(master, TIOCSPTLCK, &unlock);
        int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
        abuse(master);
        abuse(slave);
        close(slave);
    }
    if (own > BOUND) won("opened very many terminals");
    puts("attempted");
}
