// Takes as much as possible of a resource that the whole kernel shares, and holds it.
//
// usage: take POOL SECONDS [WORKERS [BOUND]]   as many as possible by some processes, then "took N" and a pause without end
//        take --probe POOL...                  one of each; prints for each "POOL ok" or "POOL" and the error
//
// SECONDS bounds the time for taking, BOUND (in MiB) the memory that is taken of pools that are measured in bytes.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <mqueue.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "disposable.h"

enum { MOST_WORKERS = 4096, HUGE_PAGE = 2 << 20, BLOCK = 64 << 10 };

// What one worker has taken. It is in shared memory, so that it counts even if the worker is killed for it.
static struct tally { volatile long taken; volatile int done, error; } *tallies, *mine;
static time_t deadline;
static long bound;      // bytes for each worker
static int only_one;    // whether this is a probe
static char block[BLOCK];

static time_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

// Counts the objects that a call created, and returns whether to continue.
static int took(int ok, long amount) {
    if (!ok) {
        mine->error = errno;
        return 0;
    }
    mine->taken += amount;
    return !only_one && now() < deadline;
}
static int took_bytes(int ok, long amount) {
    return took(ok, amount) && mine->taken < bound;
}

static void inotify(void) {
    while (took(inotify_init1(0) >= 0, 1)) {}
}

static void fanotify(void) {
    while (took(fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY) >= 0, 1)) {}
}

// Memory that the program asks the kernel to move to swap, where a limit on resident memory would not see it.
static void swap(void) {
    for (char *area; (area = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED;) {
        memset(area, 1, BLOCK);
        madvise(area, BLOCK, MADV_PAGEOUT);
        if (!took_bytes(1, BLOCK)) return;
    }
}

// Landlock domains, as many on top of each other as the kernel allows, in processes that end at once: they are freed in a
// queue that the whole kernel shares.
static void domains(void) {
    struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SOCK};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (;;) {
        pid_t child = fork();
        if (child < 0) { took(0, 0); return; }
        if (child == 0) {
            int made = 0;
            for (int fd; made < 16 && (fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0)) >= 0; made++, close(fd))
                if (syscall(SYS_landlock_restrict_self, fd, 0)) break;
            _exit(made);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!took(WIFEXITED(status) && WEXITSTATUS(status) > 0, WEXITSTATUS(status))) return;
    }
}

static void timers(void) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    while (took(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, 1)) {}
}

static void signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    while (took(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){0}) == 0, 1)) {}
}

static void messages(void) {
    char name[64];
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "/taken-%d-%d", getpid(), i);
        struct mq_attr shape = {.mq_maxmsg = 10, .mq_msgsize = 8192};
        mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &shape);
        if (only_one && queue >= 0) mq_unlink(name);
        if (!took(queue >= 0, 1)) break;
        while (mq_send(queue, block, 8192, 0) == 0) {}
    }
}

static void pipes(void) {
    int ends[2];
    while (took(pipe2(ends, O_NONBLOCK) == 0, 0) || only_one) {
        int size = fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        if (!took(size >= 0, size / 4096)) break;
    }
}

static void keys(void) {
    char name[64];
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "taken-%d-%d", getpid(), i);
        if (!took(syscall(SYS_add_key, "user", name, block, 4096, -2 /* the process's keyring */) >= 0, 1)) break;
    }
}

static void epoll(void) {
    int files[512], count = 0, ends[2];
    while (count < 64 && pipe2(ends, 0) == 0) files[count++] = ends[0], files[count++] = ends[1];
    for (int set; took((set = epoll_create1(0)) >= 0, 0) || (only_one && set >= 0);) {
        for (int i = 0; i < count; i++) {
            struct epoll_event event = {.events = EPOLLIN};
            if (!took(epoll_ctl(set, EPOLL_CTL_ADD, files[i], &event) == 0, 1)) return;
        }
    }
}

static void aio(void) {
    for (aio_context_t context = 0; took(syscall(SYS_io_setup, 1024, &context) == 0, 1024); context = 0) {}
}

static void terminals(void) {
    while (took(open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0, 1)) {}
}

static void namespaces(int flags) {
    for (;;) {
        int ready[2];
        if (pipe(ready)) return;
        pid_t child = fork();
        if (child == 0) {
            int error = unshare(flags) ? errno : 0;
            if (write(ready[1], &error, sizeof error) < 0 || only_one) _exit(0);
            pause();
        }
        if (child < 0) { took(0, 0); return; }
        if (read(ready[0], &errno, sizeof errno) != sizeof errno) return;
        close(ready[0]), close(ready[1]);
        if (!took(errno == 0, 1)) return;
    }
}
static void user_namespaces(void) { namespaces(CLONE_NEWUSER); }
static void net_namespaces(void) { namespaces(CLONE_NEWUSER | CLONE_NEWNET); }

// The kernel checks all locks of a file for each new one, so each file gets few.
static void locks(void) {
    enum { SIZE = 250 /* bytes that the kernel holds for a lock */ };
    for (int file; took_bytes((file = memfd_create("locks", 0)) >= 0, 0) || (only_one && file >= 0);)
        for (long at = 600; at > 0; at -= 2) {
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
            if (!took_bytes(fcntl(file, F_SETLK, &lock) == 0, SIZE)) return;
        }
}

// Names that do not exist are cached too.
static void names(void) {
    char name[300];
    struct stat status;
    for (long i = 0; i < 400000; i++) {
        snprintf(name, sizeof name, "/usr/lib/not-there-%d-%ld-%0200d", getpid(), i, 0);
        if (!took(stat(name, &status) != 0 && errno == ENOENT, 1)) return;
    }
}

static void semaphores(void) {
    while (took_bytes(semget(IPC_PRIVATE, 32000, 0600) >= 0, 32000 * 64)) {}
}

// Requests all interfaces again and again without reading an answer, until the socket's buffer is full. After one read
// with a large buffer, the kernel sends large answers, however little is in them.
static void netlink(void) {
    struct { struct nlmsghdr head; struct ifinfomsg body; } ask = {
        .head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
    };
    for (int route; took_bytes((route = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE)) >= 0, 0) || (only_one && route >= 0);) {
        int size = 64 << 20;
        unsigned held[16] = {0};
        socklen_t length = sizeof held;
        setsockopt(route, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        if (send(route, &ask, sizeof ask, 0) < 0) { took(0, 0); return; }
        while (recv(route, block, sizeof block, 0) > 0) {}
        for (int i = 0; i < 40 && send(route, &ask, sizeof ask, 0) > 0; i++) {}
        getsockopt(route, SOL_SOCKET, SO_MEMINFO, held, &length);
        if (!took_bytes(1, held[0])) return;
    }
}

// Connections to itself that are filled and never read.
static void connections(int type) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int listener = socket(AF_INET, type, 0), size = 8 << 20;
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (!took_bytes(listener >= 0 && bind(listener, (void *)&here, length) == 0, 0) && !only_one) return;
    getsockname(listener, (void *)&here, &length);
    if (type == SOCK_STREAM) listen(listener, 100);
    for (;;) {
        int from = socket(AF_INET, type, 0);
        if (!took_bytes(from >= 0, 0) && !only_one) return;
        setsockopt(from, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        if (connect(from, (void *)&here, sizeof here)) { took(0, 0); return; }
        if (type == SOCK_STREAM && accept(listener, NULL, NULL) < 0) { took(0, 0); return; }
        // The sender does not notice a full receiver of datagrams, so each gets a fixed number.
        for (int i = 0; i < 16; i++) {
            ssize_t sent = send(from, block, type == SOCK_STREAM ? BLOCK : 32000, MSG_DONTWAIT);
            if (sent < 0) break;
            if (!took_bytes(1, sent)) return;
        }
        if (type == SOCK_DGRAM) {
            // A socket for each, because each has a buffer.
            close(from);
            listener = socket(AF_INET, type, 0);
            here.sin_port = 0;
            if (listener < 0 || bind(listener, (void *)&here, sizeof here)) { took(0, 0); return; }
            getsockname(listener, (void *)&here, &length);
        }
    }
}
static void tcp(void) { connections(SOCK_STREAM); }
static void udp(void) { connections(SOCK_DGRAM); }

// Descriptors in flight through a socket belong to no process, only to a user.
static void in_flight(void) {
    enum { EACH = 200 };
    int file = open("/dev/null", O_RDONLY);
    char control[CMSG_SPACE(EACH * sizeof(int))] = {0};
    for (int pair[2]; took(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) == 0, 0) || only_one;) {
        for (;;) {
            int count = only_one ? 1 : EACH;
            struct iovec byte = {block, 1};
            struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
            struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
            *rights = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
            for (int i = 0; i < count; i++) ((int *)CMSG_DATA(rights))[i] = file;
            ssize_t sent = sendmsg(pair[0], &message, 0);
            if (sent < 0 && errno == EAGAIN && !only_one) break;
            if (!took(sent >= 0, count)) return;
        }
    }
}

static void files(void) {
    while (took(open("/dev/null", O_RDONLY) >= 0, 1)) {}
}

static void processes(void) {
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            if (only_one) _exit(0);
            pause();
        }
        if (!took(child >= 0, 1)) return;
    }
}

static void end_of_worker(int signal) {
    mine->error = signal;
    mine->done = 1;
    _exit(1);
}

static void huge_pages(void) {
    signal(SIGBUS, end_of_worker);
    for (;;) {
        char *page = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (page == MAP_FAILED) {
            int file = memfd_create("huge", MFD_HUGETLB);
            if (file >= 0 && ftruncate(file, HUGE_PAGE) == 0)
                page = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        }
        if (page == MAP_FAILED) {
            int segment = shmget(IPC_PRIVATE, HUGE_PAGE, SHM_HUGETLB | 0600);
            if (segment >= 0) page = shmat(segment, NULL, 0);
        }
        if (page == MAP_FAILED || page == NULL) { took(0, 0); return; }
        *page = 1;
        if (!took(1, 1)) return;
    }
}

// Crashes, with every limit on the size of a core that a program can set for itself.
static void cores(void) {
    static const rlim_t limits[] = {0, 1, 2, 4096, RLIM_INFINITY};
    for (unsigned i = 0; i <= sizeof limits / sizeof *limits; i++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_DUMPABLE, 1);
            struct rlimit limit;
            getrlimit(RLIMIT_CORE, &limit);
            if (i > 0) {
                limit.rlim_cur = limits[i - 1];
                if (setrlimit(RLIMIT_CORE, &limit)) _exit(1);
            }
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
            _exit(2);
        }
        int status = 0;
        waitpid(child, &status, 0);
        took(1, WIFSIGNALED(status));
    }
}

// Calls that make the kernel look for a module.
static void modules(void) {
    int inet = socket(AF_INET, SOCK_DGRAM, 0);
    char bridge[IFNAMSIZ] = "taken0";
    struct ifreq request = {.ifr_name = "taken1"};
    static const int plain[] = {SIOCGIFINDEX, SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFMTU};
    ioctl(inet, SIOCBRADDBR, bridge);
    ioctl(inet, SIOCBRDELBR, bridge);
    ioctl(inet, SIOCGIFBR, bridge);
    ioctl(inet, SIOCGIFVLAN, block);
    ioctl(inet, SIOCSIFVLAN, block);
    ioctl(inet, SIOCADDDLCI, block);
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++) ioctl(inet, plain[i], &request);
    for (int family = 0; family < 46; family++)
        for (int type = 1; type <= 10; type++) {
            close(socket(family, type, 0));
            if (type <= 3) for (int protocol = 1; protocol < 263; protocol += family == AF_INET || family == AF_NETLINK ? 1 : 50) close(socket(family, type, protocol));
        }
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(stream, IPPROTO_TCP, 13 /* TCP_CONGESTION */, "cdg", 3);
    setsockopt(stream, IPPROTO_TCP, 31 /* TCP_ULP */, "tls", 4);
    struct { struct nlmsghdr head; struct ifinfomsg body; struct rtattr info, kind; char name[8]; } make = {
        .head = {.nlmsg_len = sizeof make, .nlmsg_type = RTM_NEWLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE},
        .info = {.rta_len = sizeof make.info + sizeof make.kind + 8, .rta_type = IFLA_LINKINFO},
        .kind = {.rta_len = sizeof make.kind + 6, .rta_type = 1 /* IFLA_INFO_KIND */}, .name = "dummy",
    };
    int route = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    send(route, &make, sizeof make, 0);
    // An unknown format of programs.
    int program = open("unknown", O_CREAT | O_WRONLY, 0755);
    if (program >= 0) {
        if (write(program, "\x01\x02\x03\x04\x05\x06\x07\x08", 8)) {}
        close(program);
        if (fork() == 0) { execl("./unknown", "unknown", NULL); _exit(0); }
        wait(NULL);
    }
    took(1, 1);
}

// BPF programs for the kernel, as long as a socket may have them. A division takes the most space when compiled.
static struct sock_filter instructions[4096];
static struct sock_fprog program_of(int length) {
    for (int i = 0; i < length - 1; i++) instructions[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 3);
    instructions[length - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0x7fff0000 /* SECCOMP_RET_ALLOW */);
    return (struct sock_fprog){length, instructions};
}
static void attach(int option) {
    int length = 4096, one = 1;
    while (1) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0) fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        if (fd < 0) { took(0, 0); return; }
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
        struct sock_fprog program = program_of(length);
        int failed = setsockopt(fd, SOL_SOCKET, option, &program, sizeof program);
        // The maximum length depends on a kernel setting.
        while (failed && errno == ENOMEM && length > 64 && mine->taken == 0) {
            length -= 100;
            program = program_of(length);
            failed = setsockopt(fd, SOL_SOCKET, option, &program, sizeof program);
        }
        if (!took(!failed, 1)) return;
    }
}
static void filters(void) { attach(SO_ATTACH_FILTER); }
static void port_filters(void) { attach(SO_ATTACH_REUSEPORT_CBPF); }

static void seccomp_filters(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    struct sock_fprog program = only_one ? (struct sock_fprog){1, instructions} : program_of(4096);
    // Such a filter may not divide.
    for (int i = 0; i < program.len - 1; i++) instructions[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    instructions[program.len - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    while (took(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, 1)) {}
}

static const struct pool { const char *name; void (*take)(void); } pools[] = {
    {"inotify", inotify}, {"fanotify", fanotify}, {"swap", swap}, {"domains", domains},
    {"timers", timers}, {"signals", signals}, {"messages", messages}, {"pipes", pipes},
    {"keys", keys}, {"epoll", epoll}, {"aio", aio}, {"terminals", terminals}, {"user-namespaces", user_namespaces},
    {"net-namespaces", net_namespaces}, {"locks", locks}, {"names", names}, {"semaphores", semaphores},
    {"netlink", netlink}, {"tcp", tcp}, {"udp", udp}, {"in-flight", in_flight}, {"files", files},
    {"processes", processes}, {"huge-pages", huge_pages}, {"cores", cores}, {"modules", modules},
    {"filters", filters}, {"port-filters", port_filters}, {"seccomp-filters", seccomp_filters},
};

static const struct pool *pool_of(const char *name) {
    for (unsigned i = 0; i < sizeof pools / sizeof *pools; i++)
        if (strcmp(pools[i].name, name) == 0) return &pools[i];
    fprintf(stderr, "there is no pool %s\n", name);
    exit(2);
}

// In a separate process, because some resources cannot be released.
static void probe(const struct pool *pool) {
    *mine = (struct tally){0};
    deadline = now() + 5;
    pid_t child = fork();
    if (child == 0) {
        pool->take();
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    if (child < 0) mine->error = errno;
    int ok = mine->error == 0 && child > 0;
    printf("%s %s\n", pool->name, ok ? "ok" : strerrorname_np(mine->error) ? strerrorname_np(mine->error) : "unknown error");
}

static void take(const struct pool *pool, int workers) {
    int started = 0;
    for (; started < workers; started++) {
        pid_t child = fork();
        if (child < 0) break;
        if (child == 0) {
            mine = &tallies[started];
            pool->take();
            mine->done = 1;
            for (;;) pause();
        }
    }
    long taken = 0;
    int error = 0;
    for (int i = 0; i < started; i++) {
        while (!tallies[i].done && now() < deadline + 10 && waitpid(-1, NULL, WNOHANG) <= 0) usleep(10000);
        taken += tallies[i].taken;
        if (error == 0) error = tallies[i].error;
    }
    printf("took %ld %s by %d: %s\n", taken, pool->name, started, error ? strerror(error) : "no error");
    fflush(stdout);
    for (;;) pause();
}

int main(int count, char **words) {
    tallies = mmap(NULL, MOST_WORKERS * sizeof *tallies, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies == MAP_FAILED) return 1;
    mine = tallies;
    memset(block, 'x', sizeof block);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 2 && strcmp(words[1], "--probe") == 0) {
        only_one = 1;
        bound = 1 << 20;
        for (int i = 2; i < count; i++) probe(pool_of(words[i]));
        return 0;
    }
    if (count < 3) return 2;
    int workers = count > 3 ? atoi(words[3]) : 8;
    if (workers < 1 || workers > MOST_WORKERS) return 2;
    deadline = now() + atoi(words[2]);
    bound = (count > 4 ? atol(words[4]) << 20 : 512L << 20) / workers;
    take(pool_of(words[1]), workers);
}
