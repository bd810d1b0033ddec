// tries: loads modules, replaces the kernel, reboots, changes time and swap, reads the kernel's log
// seen-in: general
// walls: seccomp, kernel
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/klog.h>
#include <sys/syscall.h>
#include <unistd.h>

// Every call has arguments that do nothing even for root. A privileged caller passes the permission check, and fails later.
static void check(const char *what, long result) {
    if (result < 0 && (errno == EPERM || errno == ENOSYS || errno == EACCES)) return;
    printf("%s was not refused\n", what);
    fflush(stdout);
    _exit(99);
}

int main(void) {
    check("init_module", syscall(SYS_init_module, "", 0, ""));
    check("finit_module", syscall(SYS_finit_module, -1, "", 0));
    check("delete_module", syscall(SYS_delete_module, "there is no such module", 0));
    check("kexec_load", syscall(SYS_kexec_load, 0, 1, 0, -1));
    check("reboot", syscall(SYS_reboot, 1, 2, 3, 0));
    check("swapon", syscall(SYS_swapon, "/nonexistent", 0));
    check("swapoff", syscall(SYS_swapoff, "/nonexistent"));
    check("acct", syscall(SYS_acct, "/nonexistent"));
    check("settimeofday", syscall(SYS_settimeofday, 0, 0));
    check("sethostname", syscall(SYS_sethostname, "", -1));
    check("setdomainname", syscall(SYS_setdomainname, "", -1));
    check("syslog", klogctl(10, NULL, 0) >= 0 ? 0 : -1);
    check("vhangup", syscall(SYS_vhangup));
#ifdef __x86_64__
    check("iopl", syscall(SYS_iopl, 3));
    check("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
#endif
    puts("attempted");
}
