// tries: makes the kernel write its memory to a file when it crashes
// seen-in: general
// walls: limits
// expect: runtime_error
// collect: yes
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void) {
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &more);
    if (getrlimit(RLIMIT_CORE, &more) || more.rlim_cur > 1) return 99;
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_NAME, getenv("MARKER"));
    raise(SIGSEGV);
}
