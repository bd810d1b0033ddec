//! The policy: an allow list of calls, some only with certain arguments.
//!
//! A call that is not listed fails with ENOSYS, as on a kernel without it, so that programs fall back to older calls
//! instead of failing. A call that is refused deliberately fails with EPERM.
//!
//! Calls that multiplex many operations (`prctl`, `fcntl`, `ioctl`, socket options) have allow lists too, in
//! [`super::operations`], because new kernels add operations, and each may use a resource that all users share.

use libc as c;
use serde::{Deserialize, Serialize};

use super::operations;

/// The filter's answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyscallAction {
    /// The call is made.
    Allow,
    /// The call fails with this error.
    Errno(u16),
}

/// A test on the low 32 bits of one argument. Flags and domains are ints: the kernel ignores the high half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// It is this value.
    Equals(u32),
    /// It has at least one of these bits.
    AnyBit(u32),
    /// Its high 32 bits are zero, which matters for pointers.
    HighIsZero,
    /// Its high 32 bits are these. The kernel ignores them where it takes an int.
    HighEquals(u32),
    /// It is `base` plus the number of a bit that is set in `bits`.
    OneOf {
        /// The number of bit 0.
        base: u32,
        /// A bit for each number.
        bits: u32,
    },
}

/// Argument tests that make a call an exception to the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// The tests, by argument number from 0. All must hold.
    pub tests: Vec<(u8, Test)>,
    /// The answer if they do.
    pub answer: SyscallAction,
}

/// The rule of one call: the answer of the first exception that holds, or else the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The first whose tests all hold decides.
    pub exceptions: Vec<Exception>,
    /// The answer if there is none.
    pub otherwise: SyscallAction,
}

/// Rules by call number, sorted; calls that are not listed get [`Policy::unlisted`].
#[derive(Debug, Clone)]
pub struct Policy {
    /// The rule of each call that has one, by its number.
    pub rules: Vec<(u32, Rule)>,
    /// The answer to all other calls.
    pub unlisted: SyscallAction,
}

/// The call does nothing and succeeds.
const PRETEND: SyscallAction = SyscallAction::Errno(0);
const EPERM: SyscallAction = SyscallAction::Errno(1);
const ENOMEM: SyscallAction = SyscallAction::Errno(12);
const EACCES: SyscallAction = SyscallAction::Errno(13);
const EINVAL: SyscallAction = SyscallAction::Errno(22);
const EMFILE: SyscallAction = SyscallAction::Errno(24);
const ENOSPC: SyscallAction = SyscallAction::Errno(28);
const ENOSYS: SyscallAction = SyscallAction::Errno(38);
const EPROTONOSUPPORT: SyscallAction = SyscallAction::Errno(93);
const EOPNOTSUPP: SyscallAction = SyscallAction::Errno(95);
const EAFNOSUPPORT: SyscallAction = SyscallAction::Errno(97);
const ENETUNREACH: SyscallAction = SyscallAction::Errno(101);

/// Flags of clone(2) that create namespaces.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;

/// Calls that are safe for every cell: a program acts on itself, on its own files and on its own descendants. Excluded:
/// asynchronous requests (`io_setup`), whose number is limited for the whole host, and memory policies (`mbind`,
/// `set_mempolicy`), of which the kernel keeps one for each mapping without charging a cgroup.
#[rustfmt::skip]
const ALLOWED: &[c::c_long] = &[
    // Files and directories.
    c::SYS_read, c::SYS_write, c::SYS_readv, c::SYS_writev, c::SYS_pread64, c::SYS_pwrite64, c::SYS_preadv,
    c::SYS_pwritev, c::SYS_pwritev2, c::SYS_close, c::SYS_close_range,
    c::SYS_lseek, c::SYS_fstat, c::SYS_newfstatat, c::SYS_statx, c::SYS_statfs, c::SYS_fstatfs, c::SYS_faccessat,
    c::SYS_faccessat2, c::SYS_getdents64, c::SYS_getcwd, c::SYS_chdir, c::SYS_fchdir, c::SYS_unlinkat,
    c::SYS_renameat, c::SYS_renameat2, c::SYS_linkat, c::SYS_symlinkat, c::SYS_readlinkat, c::SYS_fchown, c::SYS_fchownat, c::SYS_utimensat, c::SYS_truncate,
    c::SYS_ftruncate, c::SYS_fallocate, c::SYS_fsync, c::SYS_fdatasync,
    c::SYS_sync_file_range, c::SYS_fadvise64, c::SYS_readahead, c::SYS_copy_file_range, c::SYS_sendfile,
    c::SYS_splice, c::SYS_tee, c::SYS_vmsplice, c::SYS_umask, c::SYS_dup, c::SYS_dup3, c::SYS_flock,
    c::SYS_setxattr, c::SYS_lsetxattr, c::SYS_fsetxattr, c::SYS_getxattr, c::SYS_lgetxattr,
    c::SYS_fgetxattr, c::SYS_listxattr, c::SYS_llistxattr, c::SYS_flistxattr, c::SYS_removexattr, c::SYS_lremovexattr,
    c::SYS_fremovexattr, c::SYS_inotify_rm_watch,
    // Memory.
    c::SYS_brk, c::SYS_munmap, c::SYS_mremap, c::SYS_mprotect, c::SYS_mincore,
    c::SYS_msync, c::SYS_mlock, c::SYS_mlock2, c::SYS_munlock, c::SYS_mlockall, c::SYS_munlockall, c::SYS_membarrier,
    c::SYS_get_mempolicy, c::SYS_pkey_alloc, c::SYS_pkey_free, c::SYS_pkey_mprotect, c::SYS_mseal,
    // Processes and threads. clone is below; clone3 cannot be filtered (its flags are in memory) and is not listed.
    c::SYS_execve, c::SYS_execveat, c::SYS_exit, c::SYS_exit_group, c::SYS_wait4, c::SYS_waitid, c::SYS_getpid,
    c::SYS_getppid, c::SYS_gettid, c::SYS_getpgid, c::SYS_setpgid, c::SYS_getsid, c::SYS_setsid,
    c::SYS_set_tid_address, c::SYS_set_robust_list, c::SYS_get_robust_list, c::SYS_futex, c::SYS_futex_waitv,
    c::SYS_rseq, c::SYS_pidfd_open, c::SYS_pidfd_send_signal, c::SYS_sched_yield,
    c::SYS_sched_getaffinity, c::SYS_sched_setaffinity, c::SYS_sched_getparam, c::SYS_sched_setparam,
    c::SYS_sched_getscheduler, c::SYS_sched_setscheduler, c::SYS_sched_get_priority_max,
    c::SYS_sched_get_priority_min, c::SYS_sched_rr_get_interval, c::SYS_sched_getattr, c::SYS_sched_setattr,
    c::SYS_getpriority, c::SYS_setpriority, c::SYS_ioprio_get, c::SYS_ioprio_set, c::SYS_getrusage, c::SYS_times,
    c::SYS_getrlimit, c::SYS_getcpu, c::SYS_restart_syscall, c::SYS_landlock_create_ruleset,
    c::SYS_landlock_add_rule, c::SYS_landlock_restrict_self,
    // Identity. Without capabilities these change nothing; init uses them to drop its own.
    c::SYS_getuid, c::SYS_geteuid, c::SYS_getgid, c::SYS_getegid, c::SYS_getresuid, c::SYS_getresgid,
    c::SYS_getgroups, c::SYS_setuid, c::SYS_setgid, c::SYS_setreuid, c::SYS_setregid, c::SYS_setresuid,
    c::SYS_setresgid, c::SYS_setgroups, c::SYS_setfsuid, c::SYS_setfsgid, c::SYS_capget, c::SYS_capset,
    // Signals and time.
    c::SYS_kill, c::SYS_tkill, c::SYS_tgkill, c::SYS_rt_sigaction, c::SYS_rt_sigprocmask, c::SYS_rt_sigreturn,
    c::SYS_rt_sigsuspend, c::SYS_rt_sigpending, c::SYS_rt_sigtimedwait, c::SYS_rt_sigqueueinfo,
    c::SYS_rt_tgsigqueueinfo, c::SYS_sigaltstack, c::SYS_signalfd4, c::SYS_nanosleep, c::SYS_clock_nanosleep,
    c::SYS_clock_gettime, c::SYS_clock_getres, c::SYS_gettimeofday, c::SYS_getitimer, c::SYS_setitimer,
    c::SYS_timer_create, c::SYS_timer_settime, c::SYS_timer_gettime, c::SYS_timer_getoverrun, c::SYS_timer_delete,
    c::SYS_timerfd_create, c::SYS_timerfd_settime, c::SYS_timerfd_gettime,
    // Waiting for descriptors, pipes, sockets. socket and socketpair are below.
    c::SYS_ppoll, c::SYS_pselect6, c::SYS_epoll_create1, c::SYS_epoll_ctl, c::SYS_epoll_pwait, c::SYS_epoll_pwait2,
    c::SYS_eventfd2, c::SYS_pipe2, c::SYS_bind, c::SYS_listen, c::SYS_accept, c::SYS_accept4, c::SYS_connect,
    c::SYS_getsockname, c::SYS_getpeername, c::SYS_sendto, c::SYS_recvfrom, c::SYS_sendmsg, c::SYS_recvmsg,
    c::SYS_sendmmsg, c::SYS_recvmmsg, c::SYS_shutdown,
    // IPC; the cell has an IPC namespace.
    c::SYS_shmat, c::SYS_shmdt, c::SYS_shmctl, c::SYS_semget, c::SYS_semop, c::SYS_semtimedop,
    c::SYS_semctl, c::SYS_msgget, c::SYS_msgsnd, c::SYS_msgrcv, c::SYS_msgctl, c::SYS_mq_open, c::SYS_mq_unlink,
    c::SYS_mq_timedsend, c::SYS_mq_timedreceive, c::SYS_mq_notify, c::SYS_mq_getsetattr,
    // The system.
    c::SYS_uname, c::SYS_sysinfo, c::SYS_getrandom,
];

/// Older calls that exist only on x86-64.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c::c_long] = &[
    c::SYS_stat, c::SYS_lstat, c::SYS_access, c::SYS_getdents, c::SYS_rmdir,
    c::SYS_unlink, c::SYS_rename, c::SYS_link, c::SYS_symlink, c::SYS_readlink, c::SYS_chown,
    c::SYS_lchown, c::SYS_utime, c::SYS_utimes, c::SYS_futimesat, c::SYS_dup2, c::SYS_poll,
    c::SYS_select, c::SYS_epoll_create, c::SYS_epoll_wait, c::SYS_eventfd, c::SYS_signalfd,
    c::SYS_pipe, c::SYS_fork, c::SYS_vfork, c::SYS_getpgrp, c::SYS_alarm, c::SYS_pause, c::SYS_time,
    c::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c::c_long] = &[];

/// Calls that may create a file, with the positions of the flags and the mode. Without a flag that creates a file the
/// mode is ignored and may be anything. openat2 has both in memory, where a filter cannot look, and is not listed.
const OPENING: &[(c::c_long, u8, u8)] = &[(c::SYS_openat, 2, 3)];
#[cfg(target_arch = "x86_64")]
const OPENING_HERE: &[(c::c_long, u8, u8)] = &[(c::SYS_open, 1, 2)];
#[cfg(not(target_arch = "x86_64"))]
const OPENING_HERE: &[(c::c_long, u8, u8)] = &[];

/// Flags of open(2) that create a file: `O_CREAT`, and the bit of `O_TMPFILE` besides `O_DIRECTORY`.
const MAKES_FILE: u32 = 0o100 | 0o20_000_000;

/// A mode with a set-user-id or set-group-id bit.
const SET_ID: Test = Test::AnyBit(c::S_ISUID | c::S_ISGID);

/// Calls that set a file's mode, with the position of the mode.
const WITH_MODE: &[(c::c_long, u8)] =
    &[(c::SYS_mknodat, 2), (c::SYS_mkdirat, 2), (c::SYS_fchmod, 1), (c::SYS_fchmodat, 2), (c::SYS_fchmodat2, 2)];
#[cfg(target_arch = "x86_64")]
const WITH_MODE_HERE: &[(c::c_long, u8)] =
    &[(c::SYS_creat, 1), (c::SYS_mknod, 1), (c::SYS_mkdir, 1), (c::SYS_chmod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const WITH_MODE_HERE: &[(c::c_long, u8)] = &[];

/// Calls that are dangerous or useless in a cell, and fail with EPERM.
#[rustfmt::skip]
const REFUSED: &[c::c_long] = &[
    // Namespaces, mounts, roots.
    c::SYS_unshare, c::SYS_setns, c::SYS_mount, c::SYS_umount2, c::SYS_pivot_root, c::SYS_chroot, c::SYS_open_tree,
    c::SYS_move_mount, c::SYS_fsopen, c::SYS_fsconfig, c::SYS_fsmount, c::SYS_fspick, c::SYS_mount_setattr,
    c::SYS_sethostname, c::SYS_setdomainname,
    // Other processes' memory and descriptors.
    c::SYS_ptrace, c::SYS_process_vm_readv, c::SYS_process_vm_writev, c::SYS_pidfd_getfd, c::SYS_kcmp,
    c::SYS_process_madvise, c::SYS_process_mrelease, c::SYS_migrate_pages, c::SYS_move_pages,
    // Parts of the kernel with a large attack surface.
    c::SYS_bpf, c::SYS_perf_event_open, c::SYS_userfaultfd, c::SYS_add_key, c::SYS_request_key, c::SYS_keyctl,
    c::SYS_io_uring_setup, c::SYS_io_uring_enter, c::SYS_io_uring_register, c::SYS_fanotify_init,
    c::SYS_fanotify_mark, c::SYS_open_by_handle_at, c::SYS_name_to_handle_at, c::SYS_seccomp,
    // The host. Flushing all of its disks slows every process down.
    c::SYS_sync, c::SYS_syncfs, c::SYS_reboot, c::SYS_kexec_load, c::SYS_kexec_file_load, c::SYS_init_module, c::SYS_finit_module,
    c::SYS_delete_module, c::SYS_swapon, c::SYS_swapoff, c::SYS_acct, c::SYS_quotactl, c::SYS_quotactl_fd,
    c::SYS_settimeofday, c::SYS_clock_settime, c::SYS_adjtimex, c::SYS_clock_adjtime, c::SYS_syslog, c::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c::c_long] = &[c::SYS_iopl, c::SYS_ioperm, c::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c::c_long] = &[];

/// The sockets that the programs of a cell can create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sockets {
    /// TCP and UDP over IPv4 and IPv6: where the cell has a network.
    pub internet: bool,
    /// Named Unix sockets. Otherwise there are only connected pairs, because a socket of a process outside might be
    /// reachable by its path.
    pub named: bool,
}

impl Sockets {
    /// Every combination.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] = [
        Self { internet: false, named: true },
        Self { internet: true, named: true },
        Self { internet: false, named: false },
        Self { internet: true, named: false },
    ];
}

/// The policy of a cell with these sockets.
#[must_use]
pub fn policy(sockets: Sockets) -> Policy {
    let mut rules = Vec::with_capacity(512);
    let mut set = |call: c::c_long, exceptions: Vec<Exception>, otherwise: SyscallAction| {
        rules.push((u32::try_from(call).unwrap_or(u32::MAX), Rule { exceptions, otherwise }));
    };
    for &call in ALLOWED.iter().chain(ALLOWED_HERE) {
        set(call, vec![], SyscallAction::Allow);
    }
    for &call in REFUSED.iter().chain(REFUSED_HERE) {
        set(call, vec![], EPERM);
    }

    // No set-user-id or set-group-id files: in a directory shared with the host they would take effect outside.
    for &(call, flags, mode) in OPENING.iter().chain(OPENING_HERE) {
        let tests = vec![(flags, Test::AnyBit(MAKES_FILE)), (mode, SET_ID)];
        set(call, vec![Exception { tests, answer: EPERM }], SyscallAction::Allow);
    }
    for &(call, argument) in WITH_MODE.iter().chain(WITH_MODE_HERE) {
        set(call, vec![when(argument, SET_ID, EPERM)], SyscallAction::Allow);
    }
    // No new namespaces.
    set(c::SYS_clone, vec![when(0, Test::AnyBit(NAMESPACE_FLAGS), EPERM)], SyscallAction::Allow);
    // No file notifications: system files are shared with the host and with other cells, and a watch on them shows what
    // others run. Instances also count against a user of the host. The errors are those that programs handle: no
    // instances and no watches are left.
    for call in operations::INOTIFY_INIT {
        set(*call, vec![], EMFILE);
    }
    set(c::SYS_inotify_add_watch, vec![], ENOSPC);
    // Huge pages come from a pool of the whole host that no memory limit counts.
    set(c::SYS_mmap, vec![when(3, Test::AnyBit(c::MAP_HUGETLB.cast_unsigned()), ENOMEM)], SyscallAction::Allow);
    set(c::SYS_memfd_create, vec![when(1, Test::AnyBit(c::MFD_HUGETLB), ENOMEM)], SyscallAction::Allow);
    set(c::SYS_shmget, vec![when(2, Test::AnyBit(c::SHM_HUGETLB.cast_unsigned()), ENOMEM)], SyscallAction::Allow);
    // The timing of merged pages reveals the memory of other processes. Pages that a program sends to swap are no
    // longer resident, which hides them from a memory limit without a cgroup; paging out shared files slows other cells
    // down.
    let advice = [c::MADV_MERGEABLE, c::MADV_COLD, c::MADV_PAGEOUT];
    set(c::SYS_madvise, vec![when(2, one_of(0, &advice), EINVAL)], SyscallAction::Allow);
    // Reads that fail instead of waiting for the disk reveal which system files others have read.
    set(c::SYS_preadv2, vec![when(5, Test::AnyBit(c::RWF_NOWAIT.cast_unsigned()), EOPNOTSUPP)], SyscallAction::Allow);
    limits_of_oneself(&mut set);
    for (call, exceptions, otherwise) in operations::rules() {
        set(call, exceptions, otherwise);
    }
    let (make, pair) = sockets_of(sockets);
    set(c::SYS_socket, make, EAFNOSUPPORT);
    set(c::SYS_socketpair, pair, EAFNOSUPPORT);
    // Queries, the default, and disabling address randomisation for the calling process.
    let personalities = vec![
        equals(0, 0, SyscallAction::Allow),
        equals(0, -1, SyscallAction::Allow),
        equals(0, 0x0004_0000, SyscallAction::Allow),
    ];
    set(c::SYS_personality, personalities, EPERM);

    rules.sort_unstable_by_key(|(number, _)| *number);
    debug_assert!(rules.is_sorted_by(|a, b| a.0 < b.0), "a system call is listed twice");
    Policy { rules, unlisted: ENOSYS }
}

/// Only the limits of the calling process: init may run under the same user id. The limit on core dumps stays the same,
/// whatever a program asks for: at 1 the kernel runs no crash handler on the host, at 0 it does.
fn limits_of_oneself(set: &mut impl FnMut(c::c_long, Vec<Exception>, SyscallAction)) {
    let core = c::RLIMIT_CORE.cast_signed();
    set(c::SYS_setrlimit, vec![equals(0, core, PRETEND)], SyscallAction::Allow);
    let oneself = (0, Test::Equals(0));
    let core = (1, Test::Equals(c::RLIMIT_CORE));
    let null = |argument| [(argument, Test::Equals(0)), (argument, Test::HighIsZero)];
    let on = |tests: Vec<(u8, Test)>, answer| Exception { tests, answer };
    let queries = on([oneself].into_iter().chain(null(2)).collect(), SyscallAction::Allow);
    let changes_core = on([oneself, core].into_iter().chain(null(3)).collect(), PRETEND);
    // The filter cannot fill in the old value for a call that it suppresses.
    let swaps_core = on(vec![oneself, core], EPERM);
    set(c::SYS_prlimit64, vec![queries, changes_core, swaps_core, on(vec![oneself], SyscallAction::Allow)], EPERM);
}

/// The exceptions of `socket` and of `socketpair`. There is no netlink: its replies wait in kernel memory that no
/// cgroup is charged for, 200 KiB in each socket. Any other protocol would make the kernel load a module, with all its
/// bugs.
fn sockets_of(sockets: Sockets) -> (Vec<Exception>, Vec<Exception>) {
    let both = |first, second, answer| Exception { tests: vec![first, second], answer };
    let is = |argument, value: c::c_int| (argument, Test::Equals(value.cast_unsigned()));
    let mut make = vec![equals(0, c::AF_UNIX, if sockets.named { SyscallAction::Allow } else { EACCES })];
    for family in [c::AF_INET, c::AF_INET6] {
        // The types from 4 on belong to such protocols. (Flags are much higher bits.)
        make.push(both(is(0, family), (1, Test::AnyBit(0b1100)), EAFNOSUPPORT));
        // Without a network the error is the one that a connection would get.
        let answer = if sockets.internet { SyscallAction::Allow } else { ENETUNREACH };
        // 0 is the type's default protocol, the others are TCP and UDP.
        let protocols = one_of(0, &[0, c::IPPROTO_TCP, c::IPPROTO_UDP]);
        make.push(both(is(0, family), (2, protocols), answer));
        // Go tries multipath TCP for every listener until it gets this error.
        make.push(both(is(0, family), is(2, c::IPPROTO_MPTCP), EPROTONOSUPPORT));
    }
    if sockets.named {
        return (make, vec![equals(0, c::AF_UNIX, SyscallAction::Allow)]);
    }
    (make, connected_pairs())
}

/// The exceptions of a `socketpair` that allows connected pairs only. No datagrams: those can be sent to any name.
pub(super) fn connected_pairs() -> Vec<Exception> {
    let flags = [0, c::SOCK_CLOEXEC, c::SOCK_NONBLOCK, c::SOCK_CLOEXEC | c::SOCK_NONBLOCK];
    let pair = |flags: c::c_int| {
        let kinds = one_of(flags.cast_unsigned(), &[c::SOCK_STREAM | flags, c::SOCK_SEQPACKET | flags]);
        Exception {
            tests: vec![(0, Test::Equals(c::AF_UNIX.cast_unsigned())), (1, kinds)],
            answer: SyscallAction::Allow,
        }
    };
    flags.map(pair).to_vec()
}

/// One test on one argument.
pub(super) fn when(argument: u8, test: Test, answer: SyscallAction) -> Exception {
    Exception { tests: vec![(argument, test)], answer }
}

pub(super) fn equals(argument: u8, value: c::c_int, answer: SyscallAction) -> Exception {
    when(argument, Test::Equals(value.cast_unsigned()), answer)
}

/// One of these values, all within 32 of `base`.
pub(super) fn one_of(base: u32, values: &[c::c_int]) -> Test {
    let bit = |value: &c::c_int| {
        let offset = value.cast_unsigned().wrapping_sub(base);
        debug_assert!(offset < 32, "{value} is not within 32 from {base} on");
        1_u32.checked_shl(offset).unwrap_or(0)
    };
    Test::OneOf { base, bits: values.iter().map(bit).fold(0, |bits, bit| bits | bit) }
}

/// A number without which a zygote's filter refuses `setns`. Its halves are where the kernel does not look: above the
/// two ints that are the call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryKey(pub(crate) u64);

impl EntryKey {
    /// Draws an unpredictable key.
    pub(crate) fn random() -> rustix::io::Result<Self> {
        sandbox_base::random::random_bytes().map(u64::from_ne_bytes).map(Self)
    }
}

/// The policy of a cell with a terminal.
pub(crate) fn policy_with_terminals(sockets: Sockets) -> Policy {
    let mut policy = policy(sockets);
    for exception in operations::of_terminals() {
        policy.except(c::SYS_ioctl, exception);
    }
    policy
}

/// The policy of a zygote and its children: that of their cells, plus entering namespaces, for which a zygote gets
/// descriptors and this key. Children need no additional filter: they have neither the key nor the capability.
pub(crate) fn policy_of_zygotes(sockets: Sockets, key: EntryKey) -> Policy {
    let mut policy = policy(sockets);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let halves = [(key.0 >> 32) as u32, key.0 as u32];
    let tests = vec![(0, Test::HighEquals(halves[0])), (1, Test::HighEquals(halves[1]))];
    policy.change(c::SYS_setns, vec![Exception { tests, answer: SyscallAction::Allow }], EPERM);
    policy
}

impl Policy {
    /// Sets the rule of a call, whether it is listed or not.
    pub(super) fn set(&mut self, call: c::c_long, exceptions: Vec<Exception>, otherwise: SyscallAction) {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        let rule = Rule { exceptions, otherwise };
        match self.rules.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => self.rules[index].1 = rule,
            Err(index) => self.rules.insert(index, (number, rule)),
        }
    }

    /// Puts an exception before those that a call has already.
    pub(super) fn except(&mut self, call: c::c_long, exception: Exception) {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        if let Ok(index) = self.rules.binary_search_by_key(&number, |(number, _)| *number) {
            self.rules[index].1.exceptions.insert(0, exception);
        }
    }

    /// Replaces the rule of a call that is listed.
    pub(super) fn change(&mut self, call: c::c_long, exceptions: Vec<Exception>, otherwise: SyscallAction) {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        if let Ok(index) = self.rules.binary_search_by_key(&number, |(number, _)| *number) {
            self.rules[index].1 = Rule { exceptions, otherwise };
        } else {
            debug_assert!(false, "a system call that is not listed has no rule to change");
        }
    }

    /// The policy's answer to a call. The compiled filter must answer the same: tests compare them.
    #[cfg(test)]
    pub(crate) fn answer(&self, call: u32, arguments: &[u64; 6]) -> SyscallAction {
        let Ok(index) = self.rules.binary_search_by_key(&call, |(number, _)| *number) else { return self.unlisted };
        let rule = &self.rules[index].1;
        let holds = |&(argument, test): &(u8, Test)| {
            #[expect(clippy::cast_possible_truncation, reason = "only the low half counts")]
            let value = arguments[usize::from(argument)] as u32;
            match test {
                Test::HighIsZero => arguments[usize::from(argument)] >> 32 == 0,
                Test::HighEquals(high) => arguments[usize::from(argument)] >> 32 == u64::from(high),
                Test::OneOf { base, bits } => value.checked_sub(base).is_some_and(|n| n < 32 && bits >> n & 1 == 1),
                Test::Equals(wanted) => value == wanted,
                Test::AnyBit(bits) => value & bits != 0,
            }
        };
        let exception = rule.exceptions.iter().find(|exception| exception.tests.iter().all(holds));
        exception.map_or(rule.otherwise, |exception| exception.answer)
    }
}
