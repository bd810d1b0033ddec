// Makes random system calls inside a cell: every existing call, with arguments that are real descriptors, good and bad
// pointers, sizes, flags and structures that point to each other.
//
// usage: fuzz SEED SECONDS [FIRST]
//
// The actions of a child depend only on SEED and its number (and on the kernel's answers); FIRST starts with a later
// one. Children may be killed, crash or hang: each has a few seconds, and two threads that share everything.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "disposable.h"

enum { PAGE = 4096, ARENA = 32 * PAGE, FILES = 64, HIGHEST_CALL = 470, CALLS = 4000, CHILD_SECONDS = 3 };

// How an argument is chosen.
//   d descriptor   b pointer to bytes   n size   p path      v vector of buffers   m message header   a socket address
//   t time         s signal             i process            f flags               z small number     o option of a socket
//   l its level    c command of ioctl   k command of fcntl   r option of prctl     w whole random number
//   A address of memory                 e event of epoll     x nothing
struct call { int number; const char *arguments; };
static const struct call calls[] = {
    {SYS_read, "dbn"}, {SYS_write, "dbn"}, {SYS_open, "pfz"}, {SYS_close, "d"}, {SYS_stat, "pb"}, {SYS_fstat, "db"},
    {SYS_lstat, "pb"}, {SYS_poll, "bzz"}, {SYS_lseek, "dwz"}, {SYS_mmap, "Anzfdn"}, {SYS_mprotect, "Anz"},
    {SYS_munmap, "An"}, {SYS_brk, "A"}, {SYS_rt_sigaction, "sbbz"}, {SYS_rt_sigprocmask, "zbbz"}, {SYS_ioctl, "dcb"},
    {SYS_ioctl, "dcb"}, {SYS_pread64, "dbnw"}, {SYS_pwrite64, "dbnw"}, {SYS_readv, "dvz"}, {SYS_writev, "dvz"},
    {SYS_access, "pz"}, {SYS_pipe, "b"}, {SYS_select, "zbbbt"}, {SYS_mremap, "AnnzA"}, {SYS_msync, "Anz"},
    {SYS_mincore, "Anb"}, {SYS_madvise, "Anz"}, {SYS_madvise, "Anw"}, {SYS_shmget, "znf"}, {SYS_shmat, "zAf"},
    {SYS_shmctl, "zzb"}, {SYS_dup, "d"}, {SYS_dup2, "dd"}, {SYS_nanosleep, "tb"}, {SYS_getitimer, "zb"},
    {SYS_setitimer, "zbb"}, {SYS_sendfile, "ddbn"}, {SYS_socket, "zzz"}, {SYS_connect, "daz"}, {SYS_accept, "dab"},
    {SYS_sendto, "dbnfaz"}, {SYS_recvfrom, "dbnfab"}, {SYS_sendmsg, "dmf"}, {SYS_recvmsg, "dmf"}, {SYS_shutdown, "dz"},
    {SYS_bind, "daz"}, {SYS_listen, "dz"}, {SYS_getsockname, "dab"}, {SYS_getpeername, "dab"},
    {SYS_socketpair, "zzzb"}, {SYS_setsockopt, "dlobz"}, {SYS_setsockopt, "dlobz"}, {SYS_getsockopt, "dlobb"},
    {SYS_clone, "C"}, {SYS_fork, ""}, {SYS_wait4, "ibfb"}, {SYS_kill, "is"}, {SYS_uname, "b"}, {SYS_semget, "zzf"},
    {SYS_semop, "zbz"}, {SYS_semctl, "zzzb"}, {SYS_shmdt, "A"}, {SYS_msgget, "zf"}, {SYS_msgsnd, "zbnf"},
    {SYS_msgrcv, "zbnzf"}, {SYS_msgctl, "zzb"}, {SYS_fcntl, "dkz"}, {SYS_fcntl, "dkb"}, {SYS_flock, "dz"},
    {SYS_fsync, "d"}, {SYS_fdatasync, "d"}, {SYS_truncate, "pn"}, {SYS_ftruncate, "dn"}, {SYS_getdents, "dbn"},
    {SYS_getdents64, "dbn"}, {SYS_getcwd, "bn"}, {SYS_chdir, "p"}, {SYS_fchdir, "d"}, {SYS_rename, "pp"},
    {SYS_mkdir, "pz"}, {SYS_rmdir, "p"}, {SYS_creat, "pz"}, {SYS_link, "pp"}, {SYS_unlink, "p"}, {SYS_symlink, "pp"},
    {SYS_readlink, "pbn"}, {SYS_chmod, "pz"}, {SYS_fchmod, "dz"}, {SYS_chown, "pzz"}, {SYS_umask, "z"},
    {SYS_getrlimit, "zb"}, {SYS_getrusage, "zb"}, {SYS_sysinfo, "b"}, {SYS_times, "b"}, {SYS_ptrace, "ziAb"},
    {SYS_getuid, ""}, {SYS_setuid, "z"}, {SYS_setgid, "z"}, {SYS_setpgid, "iz"}, {SYS_setreuid, "zz"},
    {SYS_setgroups, "zb"}, {SYS_setresuid, "zzz"}, {SYS_getpgid, "i"}, {SYS_setfsuid, "z"}, {SYS_capget, "bb"},
    {SYS_capset, "bb"}, {SYS_rt_sigpending, "bz"}, {SYS_rt_sigtimedwait, "bbtz"}, {SYS_rt_sigqueueinfo, "isb"},
    {SYS_sigaltstack, "bb"}, {SYS_utime, "pb"}, {SYS_mknod, "pfz"}, {SYS_personality, "w"}, {SYS_statfs, "pb"},
    {SYS_fstatfs, "db"}, {SYS_getpriority, "zi"}, {SYS_setpriority, "ziz"}, {SYS_sched_setparam, "ib"},
    {SYS_sched_setscheduler, "izb"}, {SYS_sched_getparam, "ib"}, {SYS_sched_rr_get_interval, "ib"}, {SYS_mlock, "An"},
    {SYS_munlock, "An"}, {SYS_mlockall, "z"}, {SYS_munlockall, ""}, {SYS_prctl, "rzbzz"}, {SYS_prctl, "rwwzz"},
    {SYS_arch_prctl, "wA"}, {SYS_setrlimit, "zb"}, {SYS_gettid, ""}, {SYS_readahead, "dwn"}, {SYS_setxattr, "ppbnz"},
    {SYS_fsetxattr, "dpbnz"}, {SYS_getxattr, "ppbn"}, {SYS_fgetxattr, "dpbn"}, {SYS_listxattr, "pbn"},
    {SYS_removexattr, "pp"}, {SYS_fremovexattr, "dp"}, {SYS_tkill, "is"}, {SYS_futex, "bzztbz"}, {SYS_futex, "bwztbz"},
    {SYS_sched_setaffinity, "inb"}, {SYS_sched_getaffinity, "inb"}, {SYS_io_setup, "zb"}, {SYS_epoll_create, "z"},
    {SYS_remap_file_pages, "Anzzz"}, {SYS_set_tid_address, "b"}, {SYS_restart_syscall, ""}, {SYS_semtimedop, "zbzt"},
    {SYS_fadvise64, "dwnz"}, {SYS_timer_create, "zbb"}, {SYS_timer_settime, "zzbb"}, {SYS_timer_gettime, "zb"},
    {SYS_timer_getoverrun, "z"}, {SYS_timer_delete, "z"}, {SYS_clock_gettime, "zb"}, {SYS_clock_nanosleep, "zztb"},
    {SYS_epoll_wait, "dbzz"}, {SYS_epoll_ctl, "dzde"}, {SYS_tgkill, "iis"}, {SYS_utimes, "pb"}, {SYS_mbind, "Anzbzz"},
    {SYS_set_mempolicy, "zbz"}, {SYS_get_mempolicy, "bbzAz"}, {SYS_mq_open, "pfzb"}, {SYS_mq_unlink, "p"},
    {SYS_mq_timedsend, "dbnzt"}, {SYS_mq_timedreceive, "dbnbt"}, {SYS_mq_notify, "db"}, {SYS_mq_getsetattr, "dbb"},
    {SYS_waitid, "zibfb"}, {SYS_add_key, "ppbnz"}, {SYS_request_key, "pppz"}, {SYS_keyctl, "zzbzz"},
    {SYS_ioprio_set, "ziz"}, {SYS_ioprio_get, "zi"}, {SYS_inotify_init, ""}, {SYS_inotify_add_watch, "dpf"},
    {SYS_inotify_rm_watch, "dz"}, {SYS_openat, "dpfz"}, {SYS_openat, "dpfz"}, {SYS_mkdirat, "dpz"}, {SYS_mknodat, "dpfz"},
    {SYS_fchownat, "dpzzf"}, {SYS_newfstatat, "dpbf"}, {SYS_unlinkat, "dpf"}, {SYS_renameat, "dpdp"},
    {SYS_linkat, "dpdpf"}, {SYS_symlinkat, "pdp"}, {SYS_readlinkat, "dpbn"}, {SYS_fchmodat, "dpz"},
    {SYS_faccessat, "dpz"}, {SYS_pselect6, "zbbbtb"}, {SYS_ppoll, "bztbz"}, {SYS_unshare, "w"},
    {SYS_set_robust_list, "bn"}, {SYS_get_robust_list, "ibb"}, {SYS_splice, "dbdbnf"}, {SYS_tee, "ddnf"},
    {SYS_sync_file_range, "dwnf"}, {SYS_vmsplice, "dvzf"}, {SYS_move_pages, "izbbbz"}, {SYS_utimensat, "dpbf"},
    {SYS_epoll_pwait, "dbzzbz"}, {SYS_signalfd, "dbz"}, {SYS_timerfd_create, "zf"}, {SYS_eventfd, "z"},
    {SYS_fallocate, "dfwn"}, {SYS_timerfd_settime, "dfbb"}, {SYS_timerfd_gettime, "db"}, {SYS_accept4, "dabf"},
    {SYS_signalfd4, "dbzf"}, {SYS_eventfd2, "zf"}, {SYS_epoll_create1, "f"}, {SYS_dup3, "ddf"}, {SYS_pipe2, "bf"},
    {SYS_inotify_init1, "f"}, {SYS_preadv, "dvzww"}, {SYS_pwritev, "dvzww"}, {SYS_rt_tgsigqueueinfo, "iisb"},
    {SYS_perf_event_open, "bizdf"}, {SYS_recvmmsg, "dmzft"}, {SYS_fanotify_init, "ff"}, {SYS_prlimit64, "izbb"},
    {SYS_name_to_handle_at, "dpbbf"}, {SYS_open_by_handle_at, "dbf"}, {SYS_syncfs, "d"}, {SYS_sendmmsg, "dmzf"},
    {SYS_setns, "df"}, {SYS_getcpu, "bbx"}, {SYS_process_vm_readv, "ivzvzx"}, {SYS_process_vm_writev, "ivzvzx"},
    {SYS_kcmp, "iizzz"}, {SYS_sched_setattr, "ibz"}, {SYS_sched_getattr, "ibnz"}, {SYS_renameat2, "dpdpf"},
    {SYS_seccomp, "zfb"}, {SYS_getrandom, "bnf"}, {SYS_memfd_create, "pf"}, {SYS_bpf, "zbn"}, {SYS_execveat, "dpbbf"},
    {SYS_userfaultfd, "f"}, {SYS_membarrier, "zfz"}, {SYS_membarrier, "wfz"}, {SYS_mlock2, "Anf"},
    {SYS_copy_file_range, "dbdbnf"}, {SYS_preadv2, "dvzwwf"}, {SYS_pwritev2, "dvzwwf"}, {SYS_pkey_mprotect, "Anzz"},
    {SYS_pkey_alloc, "zz"}, {SYS_pkey_free, "z"}, {SYS_statx, "dpfwb"}, {SYS_rseq, "bnzw"},
    {SYS_pidfd_send_signal, "dsbz"}, {SYS_io_uring_setup, "zb"}, {SYS_pidfd_open, "if"}, {SYS_clone3, "bn"},
    {SYS_close_range, "zzf"}, {SYS_openat2, "dpbn"}, {SYS_pidfd_getfd, "ddz"}, {SYS_faccessat2, "dpzf"},
    {SYS_process_madvise, "dvzzz"}, {SYS_epoll_pwait2, "dbztbz"}, {SYS_landlock_create_ruleset, "bnf"},
    {SYS_landlock_add_rule, "dzbz"}, {SYS_landlock_restrict_self, "dz"}, {SYS_memfd_secret, "f"},
    {SYS_futex_waitv, "bzftz"}, {SYS_set_mempolicy_home_node, "Anzz"}, {SYS_mount, "pppwb"}, {SYS_pivot_root, "pp"},
};

// Calls that would only end the fuzzing itself: exit, exec, endless waits, other stacks.
static const int left_out[] = {
    SYS_exit, SYS_exit_group, SYS_execve, SYS_vfork, SYS_pause, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_reboot,
};

static struct shared { volatile long calls, good; volatile unsigned char seen[HIGHEST_CALL]; } *shared;
static char *arena;
static int files[FILES], file_count;
static pid_t myself, bystander;

static uint64_t next(uint64_t *state) { // splitmix64
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
#define BELOW(n) (next(state) % (n))
#define ONE_OF(array) ((array)[BELOW(sizeof(array) / sizeof *(array))])

static uint64_t number(uint64_t *state) {
    static const uint64_t edges[] = {
        0, 1, 2, 7, 8, 63, 64, 255, 4095, 4096, 4097, 65535, 65536, 1 << 20, INT32_MAX, 1U << 31, UINT32_MAX, 1UL << 32,
        INT64_MAX, 1UL << 63, UINT64_MAX, UINT64_MAX - 1, -4096UL,
    };
    switch (BELOW(4)) {
        case 0: return next(state);
        case 1: return 1UL << BELOW(64);
        case 2: return BELOW(64);
        default: return ONE_OF(edges);
    }
}

static uint64_t pointer(uint64_t *state) {
    switch (BELOW(16)) {
        case 0: return 0;
        case 1: return UINT64_MAX - BELOW(4096);
        case 2: return 0xffff888000000000 + (next(state) & 0xfffffff); // the kernel's memory
        case 3: return (uint64_t)arena + ARENA - BELOW(32);             // runs out of what is mapped
        case 4: return (uint64_t)&calls;                                 // only readable
        default: return (uint64_t)arena + (BELOW(ARENA - 512) & ~7UL);
    }
}

static uint64_t descriptor(uint64_t *state) {
    switch (BELOW(12)) {
        case 0: return number(state);
        case 1: return (uint64_t)AT_FDCWD;
        case 2: return BELOW(128);
        default: return file_count ? files[BELOW(file_count)] : 0;
    }
}

// Space in the arena for a structure, which other threads and calls may change.
static uint64_t *place(uint64_t *state) { return (uint64_t *)(arena + (BELOW(ARENA - 1024) & ~63UL)); }

static uint64_t path(uint64_t *state) {
    static const char *const paths[] = {
        "a", "b", "dir", "dir/c", ".", "..", "/", "/tmp/x", "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/shm/x", "/proc/self/mem",
        "/proc/self/maps", "/proc/self/fd/3", "/proc/self/task", "/proc/self/oom_score_adj", "/proc/self/ns/net", "/proc/self/exe", "/proc/1/root", "/proc/self/uid_map",
        "/proc/sys/kernel/core_pattern", "/sys/kernel", "/usr/bin/bash", "/dev/ptmx", "/dev/tty", "/dev/fd/0", "socket", "fifo", "link", "user.x", "",
        "security.capability", "system.posix_acl_access",
    };
    if (BELOW(8) == 0) return pointer(state);
    char *at = (char *)place(state);
    if (BELOW(32) == 0) return (uint64_t)memset(at, '/', 1000);
    return (uint64_t)strcpy(at, ONE_OF(paths));
}

static uint64_t structure(uint64_t *state) {
    uint64_t *words = place(state);
    for (int i = 0; i < 16; i++) {
        switch (BELOW(6)) {
            case 0: words[i] = pointer(state); break;
            case 1: words[i] = number(state); break;
            case 2: words[i] = descriptor(state) | number(state) << 32; break;
            case 3: words[i] = 0; break;
            case 4: words[i] = BELOW(1000); break;
        }
    }
    return BELOW(8) ? (uint64_t)words : pointer(state);
}

static uint64_t vector(uint64_t *state) {
    struct iovec *parts = (void *)place(state);
    for (int i = 0; i < 8; i++) parts[i] = (struct iovec){(void *)pointer(state), BELOW(4) ? BELOW(8192) : number(state)};
    return (uint64_t)parts;
}

static uint64_t address(uint64_t *state) {
    char *at = (char *)place(state);
    switch (BELOW(5)) {
        case 0: *(struct sockaddr_in *)at = (struct sockaddr_in){AF_INET, BELOW(65536), {htonl(INADDR_LOOPBACK)}, {0}}; break;
        case 1: *(struct sockaddr_in6 *)at = (struct sockaddr_in6){AF_INET6, BELOW(65536), 0, IN6ADDR_LOOPBACK_INIT, 0}; break;
        case 2: *(struct sockaddr_un *)at = (struct sockaddr_un){AF_UNIX, "socket"}; break;
        case 3: *(struct sockaddr_nl *)at = (struct sockaddr_nl){AF_NETLINK, 0, BELOW(4), number(state)}; break;
        default: return structure(state);
    }
    return (uint64_t)at;
}

static uint64_t message(uint64_t *state) {
    struct msghdr *header = (void *)place(state);
    struct cmsghdr *control = (void *)place(state);
    *control = (struct cmsghdr){BELOW(2) ? CMSG_LEN(4 * BELOW(4)) : number(state), BELOW(4) ? SOL_SOCKET : BELOW(300), 1 + BELOW(3)};
    for (int i = 0; i < 4; i++) ((int *)CMSG_DATA(control))[i] = descriptor(state);
    *header = (struct msghdr){
        (void *)(BELOW(2) ? address(state) : 0), BELOW(2) ? 16 : BELOW(128), (void *)vector(state), BELOW(9), BELOW(2) ? control : NULL,
        BELOW(2) ? CMSG_SPACE(16) : BELOW(256), 0,
    };
    return (uint64_t)header;
}

static uint64_t moment(uint64_t *state) {
    struct timespec *time = (void *)place(state);
    *time = (struct timespec){BELOW(8) ? 0 : number(state), BELOW(8) ? BELOW(3000000) : number(state)};
    return (uint64_t)time;
}

static uint64_t argument(char kind, uint64_t *state) {
    static const int levels[] = {SOL_SOCKET, SOL_SOCKET, SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6, 41, 255, 263, 270, 271, 282, 284};
    static const unsigned controls[] = {
        FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, TCGETS, TCSETS, TIOCGWINSZ, TIOCSCTTY, TIOCGPTN, TIOCSTI, SIOCGIFCONF, SIOCGIFFLAGS, SIOCSIFFLAGS,
        SIOCGIFINDEX, SIOCGIFNAME, SIOCSIFADDR, SIOCBRADDBR, SIOCGIFVLAN, SIOCETHTOOL, SIOCOUTQ, SIOCATMARK, SIOCGSTAMP_OLD, SIOCDEVPRIVATE, SIOCADDRT,
        SIOCWANDEV, SIOCGIFHWADDR, 0xb701 /* NS_GET_USERNS */, 0x5421, 0xc0189436, 0x40086602 /* FS_IOC_SETFLAGS */, 0x80086601, 0xc020660b /* FIEMAP */,
        0x40049409 /* FICLONE */, 0x5452, 0x80045430, 0x5207, 0x40045436,
    };
    switch (kind) {
        case 'd': return descriptor(state);
        case 'b': return BELOW(4) ? structure(state) : pointer(state);
        case 'n': return BELOW(4) ? BELOW(16384) : number(state);
        case 'p': return path(state);
        case 'v': return BELOW(8) ? vector(state) : pointer(state);
        case 'm': return BELOW(8) ? message(state) : pointer(state);
        case 'a': return BELOW(8) ? address(state) : pointer(state);
        case 't': return BELOW(8) ? moment(state) : pointer(state);
        case 'e': return structure(state);
        case 's': return BELOW(8) ? BELOW(66) : number(state);
        // Only this child and its descendants: the fuzzer itself has to survive.
        case 'i': return BELOW(3) ? (BELOW(2) ? 0 : myself) : bystander;
        case 'f': return BELOW(2) ? 1UL << BELOW(32) | (BELOW(2) ? 1UL << BELOW(32) : 0) : number(state);
        case 'z': return BELOW(8) ? BELOW(48) : number(state);
        case 'l': return BELOW(8) ? (uint64_t)ONE_OF(levels) : BELOW(300);
        case 'o': return BELOW(8) ? BELOW(90) : number(state);
        case 'c': return BELOW(4) ? ONE_OF(controls) : BELOW(2) ? 0x8900 + BELOW(256) : number(state);
        case 'k': return BELOW(8) ? (BELOW(2) ? BELOW(40) : 1024 + BELOW(16)) : number(state);
        case 'r': return BELOW(8) ? BELOW(72) : number(state);
        case 'A': return BELOW(4) ? (uint64_t)arena + ARENA + PAGE * BELOW(64) : pointer(state);
        case 'C': return BELOW(2) ? SIGCHLD : SIGCHLD | (1UL << (25 + BELOW(6))); // no shared memory: the stack would be, too
        case 'x': return 0;
        default: return number(state);
    }
}

static int is_left_out(int number) {
    for (unsigned i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (left_out[i] == number) return 1;
    return 0;
}

static void one_call(uint64_t *state) {
    uint64_t arguments[6] = {0};
    int call;
    if (BELOW(16)) {
        const struct call *chosen = &ONE_OF(calls);
        call = chosen->number;
        for (int i = 0; i < 6 && chosen->arguments[i]; i++) arguments[i] = argument(chosen->arguments[i], state);
    } else {
        // Any number, except calls whose arguments could affect another process or a stack.
        call = BELOW(HIGHEST_CALL);
        for (int i = 0; i < 6; i++) arguments[i] = argument("dbnpvmatfzw"[BELOW(11)], state);
        if (call == SYS_kill || call == SYS_tkill || call == SYS_tgkill || call == SYS_rt_sigqueueinfo || call == SYS_rt_tgsigqueueinfo ||
            call == SYS_clone || call == SYS_setpriority || call == SYS_setpgid) return;
    }
    if (is_left_out(call)) return;
    if ((call == SYS_kill || call == SYS_tkill) && arguments[1] == SIGKILL && arguments[0] != (uint64_t)bystander) arguments[1] = SIGUSR1;
    // A handler at a random address would be called at once.
    if (call == SYS_rt_sigaction && arguments[0] == SIGALRM) arguments[0] = SIGUSR2;
    long result = syscall(call, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    if (result == 0 && (call == SYS_fork || call == SYS_clone || call == SYS_clone3)) _exit(0);
    __atomic_add_fetch(&shared->calls, 1, __ATOMIC_RELAXED);
    if (result != -1) __atomic_add_fetch(&shared->good, 1, __ATOMIC_RELAXED), shared->seen[call] = 1;
    // New descriptors are as interesting as old ones.
    if (result > 2 && result < 1024 && file_count > 0 && BELOW(4) == 0) files[BELOW(file_count)] = result;
}

static void keep(int file) {
    if (file >= 0 && file_count < FILES) files[file_count++] = file;
}

static void open_files(void) {
    int pair[2];
    sigset_t signals;
    sigfillset(&signals);
    keep(open("a", O_RDWR | O_CREAT, 0600));
    keep(open("b", O_RDWR | O_CREAT | O_APPEND, 0600));
    mkdir("dir", 0700);
    keep(open("dir", O_RDONLY | O_DIRECTORY));
    keep(open("/dev/null", O_RDWR));
    keep(open("/dev/zero", O_RDWR));
    keep(open("/proc/self/maps", O_RDONLY));
    keep(open("/usr/bin/bash", O_RDONLY));
    keep(open("/proc/self/ns/net", O_RDONLY));
    if (pipe(pair) == 0) keep(pair[0]), keep(pair[1]);
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        if (socketpair(AF_UNIX, type, 0, pair) == 0) keep(pair[0]), keep(pair[1]);
        keep(socket(AF_INET, type, 0)), keep(socket(AF_INET6, type, 0)), keep(socket(AF_UNIX, type, 0));
    }
    keep(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    keep(epoll_create1(0));
    keep(eventfd(0, 0));
    keep(timerfd_create(CLOCK_MONOTONIC, 0));
    keep(memfd_create("memory", MFD_ALLOW_SEALING));
    keep(signalfd(-1, &signals, 0));
    keep(inotify_init1(0));
    keep(syscall(SYS_pidfd_open, bystander, 0));
    keep(syscall(SYS_landlock_create_ruleset, (uint64_t[]){1}, 8, 0));
}

static void *thread(void *seed) {
    uint64_t state = (uint64_t)seed;
    for (int i = 0; i < CALLS; i++) one_call(&state);
    return NULL;
}

static void wake_up(int signal) { (void)signal; }

static void child(uint64_t seed) {
    setpgid(0, 0);
    myself = getpid();
    // A child with less memory than the cell is killed alone.
    struct rlimit room = {96 << 20, 96 << 20};
    setrlimit(RLIMIT_AS, &room);
    int nowhere = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(nowhere, i);
    char *around = mmap(NULL, ARENA + 80 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    arena = around + PAGE;
    if (around == MAP_FAILED || mprotect(arena, ARENA, PROT_READ | PROT_WRITE)) _exit(1);
    bystander = fork();
    if (bystander == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sleep(CHILD_SECONDS);
        _exit(0);
    }
    // Blocking calls are interrupted, and its own signals do not kill it. Those of a crash do.
    struct sigaction action = {.sa_handler = wake_up};
    for (int signal = 1; signal < 65; signal++)
        if (signal != SIGSEGV && signal != SIGBUS && signal != SIGILL && signal != SIGFPE && signal != SIGSYS) sigaction(signal, &action, NULL);
    struct itimerval often = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &often, NULL);
    open_files();
    pthread_t other;
    pthread_create(&other, NULL, thread, (void *)~seed);
    thread((void *)seed);
    _exit(0);
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    uint64_t seed = strtoull(words[1], NULL, 0);
    double end = seconds() + atof(words[2]);
    long first = count > 3 ? atol(words[3]) : 0, number = first, ended = 0, signalled = 0, late = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    // Orphans are reaped here, and not by the cell's init.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (; seconds() < end; number++) {
        uint64_t state = seed * 1000003 + number, mixed = next(&state);
        pid_t pid = fork();
        if (pid == 0) child(mixed);
        if (pid < 0) { usleep(1000); continue; }
        int status = 0;
        double deadline = seconds() + CHILD_SECONDS;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (seconds() > deadline) {
                kill(pid, SIGKILL);
                late++;
                waitpid(pid, &status, 0);
                break;
            }
            usleep(2000);
        }
        ended++;
        signalled += WIFSIGNALED(status);
        kill(-pid, SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
    int different = 0;
    for (int i = 0; i < HIGHEST_CALL; i++) different += shared->seen[i];
    printf("fuzzed %ld calls, %ld succeeded, %d kinds, by children %ld to %ld, %ld ended by signals, %ld late\n", shared->calls, shared->good, different,
           first, number - 1, signalled, late);
    return ended == 0;
}
