// tries: floods the output from many processes and ends in the middle of it
// seen-in: Piston issue 629
// walls: limits
// limits: output=64k wall_time=5s
// expect: output_limit, ok
// alone: yes
#include <string.h>
#include <unistd.h>

int main(void) {
    static char block[65536];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            for (int j = 0; j < 500; j++)
                if (write(1 + j % 2, block, sizeof block) < 0) break;
            _exit(0);
        }
    if (write(1, block, 4096) < 0) return 1;
    close(1);
    close(2);
    return 0;
}
