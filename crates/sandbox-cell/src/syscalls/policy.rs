//! The policy: an allow list of calls, some only with certain arguments.
//!
//! A call that is not listed answers ENOSYS, as on a kernel that does not have it, so that programs fall back to
//! older calls instead of failing. A call that is refused on purpose answers EPERM.

use libc as c;

/// What the filter answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call goes through.
    Allow,
    /// The call fails with this error.
    Errno(u16),
}

/// A test on the low 32 bits of one argument. Flags and domains are ints: the kernel ignores the high half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// It is this value.
    Equals(u32),
    /// It has at least one of these bits.
    AnyBit(u32),
    /// Its high 32 bits are zero, which matters for pointers.
    HighIsZero,
}

/// Arguments that make a call an exception to the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exception {
    /// Which arguments, counted from 0, are tested for what. All must hold.
    pub(crate) tests: Vec<(u8, Test)>,
    /// The answer if they do.
    pub(crate) answer: Answer,
}

/// What happens to one call: the first exception that holds, or else the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) exceptions: Vec<Exception>,
    pub(crate) otherwise: Answer,
}

/// Rules by call number, in order; what is not listed is [`Policy::unlisted`].
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) rules: Vec<(u32, Rule)>,
    pub(crate) unlisted: Answer,
}

const EPERM: Answer = Answer::Errno(1);
const ENOSPC: Answer = Answer::Errno(28);
const ENOSYS: Answer = Answer::Errno(38);
const EAFNOSUPPORT: Answer = Answer::Errno(97);

/// Flags of clone(2) that make namespaces.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;

/// Calls that are safe for everyone: a program acts on itself, on its own files and on its own descendants. Asynchronous
/// requests (`io_setup`) are not: the machine has one number of them for everybody.
#[rustfmt::skip]
const ALLOWED: &[c::c_long] = &[
    // Files and directories.
    c::SYS_read, c::SYS_write, c::SYS_readv, c::SYS_writev, c::SYS_pread64, c::SYS_pwrite64, c::SYS_preadv,
    c::SYS_pwritev, c::SYS_preadv2, c::SYS_pwritev2, c::SYS_close, c::SYS_close_range,
    c::SYS_lseek, c::SYS_fstat, c::SYS_newfstatat, c::SYS_statx, c::SYS_statfs, c::SYS_fstatfs, c::SYS_faccessat,
    c::SYS_faccessat2, c::SYS_getdents64, c::SYS_getcwd, c::SYS_chdir, c::SYS_fchdir, c::SYS_unlinkat,
    c::SYS_renameat, c::SYS_renameat2, c::SYS_linkat, c::SYS_symlinkat, c::SYS_readlinkat, c::SYS_fchown, c::SYS_fchownat, c::SYS_utimensat, c::SYS_truncate,
    c::SYS_ftruncate, c::SYS_fallocate, c::SYS_fsync, c::SYS_fdatasync,
    c::SYS_sync_file_range, c::SYS_fadvise64, c::SYS_readahead, c::SYS_copy_file_range, c::SYS_sendfile,
    c::SYS_splice, c::SYS_tee, c::SYS_vmsplice, c::SYS_umask, c::SYS_dup, c::SYS_dup3, c::SYS_flock,
    c::SYS_setxattr, c::SYS_lsetxattr, c::SYS_fsetxattr, c::SYS_getxattr, c::SYS_lgetxattr,
    c::SYS_fgetxattr, c::SYS_listxattr, c::SYS_llistxattr, c::SYS_flistxattr, c::SYS_removexattr, c::SYS_lremovexattr,
    c::SYS_fremovexattr, c::SYS_inotify_init1, c::SYS_inotify_rm_watch,
    // Memory.
    c::SYS_brk, c::SYS_mmap, c::SYS_munmap, c::SYS_mremap, c::SYS_mprotect, c::SYS_madvise, c::SYS_mincore,
    c::SYS_msync, c::SYS_mlock, c::SYS_mlock2, c::SYS_munlock, c::SYS_mlockall, c::SYS_munlockall, c::SYS_membarrier,
    c::SYS_memfd_create, c::SYS_mbind, c::SYS_get_mempolicy, c::SYS_set_mempolicy, c::SYS_set_mempolicy_home_node,
    c::SYS_pkey_alloc, c::SYS_pkey_free, c::SYS_pkey_mprotect, c::SYS_mseal,
    // Processes and threads. clone is below; clone3 cannot be filtered (its flags are in memory) and is not listed.
    c::SYS_execve, c::SYS_execveat, c::SYS_exit, c::SYS_exit_group, c::SYS_wait4, c::SYS_waitid, c::SYS_getpid,
    c::SYS_getppid, c::SYS_gettid, c::SYS_getpgid, c::SYS_setpgid, c::SYS_getsid, c::SYS_setsid,
    c::SYS_set_tid_address, c::SYS_set_robust_list, c::SYS_get_robust_list, c::SYS_futex, c::SYS_futex_waitv,
    c::SYS_rseq, c::SYS_prctl, c::SYS_pidfd_open, c::SYS_pidfd_send_signal, c::SYS_sched_yield,
    c::SYS_sched_getaffinity, c::SYS_sched_setaffinity, c::SYS_sched_getparam, c::SYS_sched_setparam,
    c::SYS_sched_getscheduler, c::SYS_sched_setscheduler, c::SYS_sched_get_priority_max,
    c::SYS_sched_get_priority_min, c::SYS_sched_rr_get_interval, c::SYS_sched_getattr, c::SYS_sched_setattr,
    c::SYS_getpriority, c::SYS_setpriority, c::SYS_ioprio_get, c::SYS_ioprio_set, c::SYS_getrusage, c::SYS_times,
    c::SYS_getrlimit, c::SYS_setrlimit, c::SYS_getcpu, c::SYS_restart_syscall, c::SYS_landlock_create_ruleset,
    c::SYS_landlock_add_rule, c::SYS_landlock_restrict_self,
    // Identity. Without capabilities these change nothing; init uses them to give its own away.
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
    c::SYS_sendmmsg, c::SYS_recvmmsg, c::SYS_setsockopt, c::SYS_getsockopt, c::SYS_shutdown,
    // IPC; it has a namespace of its own.
    c::SYS_shmget, c::SYS_shmat, c::SYS_shmdt, c::SYS_shmctl, c::SYS_semget, c::SYS_semop, c::SYS_semtimedop,
    c::SYS_semctl, c::SYS_msgget, c::SYS_msgsnd, c::SYS_msgrcv, c::SYS_msgctl, c::SYS_mq_open, c::SYS_mq_unlink,
    c::SYS_mq_timedsend, c::SYS_mq_timedreceive, c::SYS_mq_notify, c::SYS_mq_getsetattr,
    // The system.
    c::SYS_uname, c::SYS_sysinfo, c::SYS_getrandom,
];

/// Older calls that only x86-64 still has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c::c_long] = &[
    c::SYS_stat, c::SYS_lstat, c::SYS_access, c::SYS_getdents, c::SYS_rmdir,
    c::SYS_unlink, c::SYS_rename, c::SYS_link, c::SYS_symlink, c::SYS_readlink, c::SYS_chown,
    c::SYS_lchown, c::SYS_utime, c::SYS_utimes, c::SYS_futimesat, c::SYS_dup2, c::SYS_poll,
    c::SYS_select, c::SYS_epoll_create, c::SYS_epoll_wait, c::SYS_eventfd, c::SYS_signalfd, c::SYS_inotify_init,
    c::SYS_pipe, c::SYS_fork, c::SYS_vfork, c::SYS_getpgrp, c::SYS_alarm, c::SYS_pause, c::SYS_time,
    c::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c::c_long] = &[];

/// Calls that set a file's mode, with the number of the argument that has it. openat2 has it in memory, where a filter
/// cannot look, and is not listed.
const WITH_MODE: &[(c::c_long, u8)] = &[
    (c::SYS_openat, 3),
    (c::SYS_mknodat, 2),
    (c::SYS_mkdirat, 2),
    (c::SYS_fchmod, 1),
    (c::SYS_fchmodat, 2),
    (c::SYS_fchmodat2, 2),
];
#[cfg(target_arch = "x86_64")]
const WITH_MODE_HERE: &[(c::c_long, u8)] =
    &[(c::SYS_open, 2), (c::SYS_creat, 1), (c::SYS_mknod, 1), (c::SYS_mkdir, 1), (c::SYS_chmod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const WITH_MODE_HERE: &[(c::c_long, u8)] = &[];

/// Calls that exist, are dangerous or useless in a cell, and are refused with a plain EPERM.
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
    // The machine. Writing out all of its disks holds up everybody.
    c::SYS_sync, c::SYS_syncfs, c::SYS_reboot, c::SYS_kexec_load, c::SYS_kexec_file_load, c::SYS_init_module, c::SYS_finit_module,
    c::SYS_delete_module, c::SYS_swapon, c::SYS_swapoff, c::SYS_acct, c::SYS_quotactl, c::SYS_quotactl_fd,
    c::SYS_settimeofday, c::SYS_clock_settime, c::SYS_adjtimex, c::SYS_clock_adjtime, c::SYS_syslog, c::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c::c_long] = &[c::SYS_iopl, c::SYS_ioperm, c::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c::c_long] = &[];

/// The policy of every cell.
pub(crate) fn policy() -> Policy {
    let mut rules = Vec::with_capacity(512);
    let mut set = |call: c::c_long, exceptions: Vec<Exception>, otherwise: Answer| {
        rules.push((u32::try_from(call).unwrap_or(u32::MAX), Rule { exceptions, otherwise }));
    };
    for &call in ALLOWED.iter().chain(ALLOWED_HERE) {
        set(call, vec![], Answer::Allow);
    }
    for &call in REFUSED.iter().chain(REFUSED_HERE) {
        set(call, vec![], EPERM);
    }
    let when = |argument, test, answer| Exception { tests: vec![(argument, test)], answer };
    let equals = |argument, value: c::c_int, answer| when(argument, Test::Equals(value.cast_unsigned()), answer);

    // No set-user-id or set-group-id files: in a directory shared with the host they would mean something outside.
    for &(call, argument) in WITH_MODE.iter().chain(WITH_MODE_HERE) {
        set(call, vec![when(argument, Test::AnyBit(c::S_ISUID | c::S_ISGID), EPERM)], Answer::Allow);
    }
    // No new namespaces.
    set(c::SYS_clone, vec![when(0, Test::AnyBit(NAMESPACE_FLAGS), EPERM)], Answer::Allow);
    // No news of what happens to files: those of the system are shared with the host and with other cells, and who
    // watches them learns what others run. The answer is the one that programs know how to get by with: there are no
    // watches left. No leases either, which would hold up whoever wants to write.
    set(c::SYS_inotify_add_watch, vec![], ENOSPC);
    set(c::SYS_fcntl, vec![equals(1, c::F_NOTIFY, EPERM), equals(1, c::F_SETLEASE, EPERM)], Answer::Allow);
    // Only one's own limits: init may run under the same user id.
    set(c::SYS_prlimit64, vec![equals(0, 0, Answer::Allow)], EPERM);
    // No pushing of input into a terminal, no console.
    #[expect(clippy::cast_possible_truncation, reason = "ioctl numbers are 32 bits")]
    let ioctls = vec![
        when(1, Test::Equals(c::TIOCSTI as u32), EPERM),
        when(1, Test::Equals(c::TIOCSETD as u32), EPERM),
        when(1, Test::Equals(0x541c /* TIOCLINUX */), EPERM),
    ];
    set(c::SYS_ioctl, ioctls, Answer::Allow);
    // Local, TCP and UDP over IPv4 and IPv6; of netlink only the part that lists addresses, which name resolution needs.
    // Asking for any other protocol would make the kernel load it, with all that may be wrong with it.
    let both = |first, second, answer| Exception { tests: vec![first, second], answer };
    let is = |argument, value: c::c_int| (argument, Test::Equals(value.cast_unsigned()));
    let mut families =
        vec![equals(0, c::AF_UNIX, Answer::Allow), both(is(0, c::AF_NETLINK), is(2, c::NETLINK_ROUTE), Answer::Allow)];
    for family in [c::AF_INET, c::AF_INET6] {
        // The types from 4 on belong to such protocols. (Flags are much higher bits.)
        families.push(both(is(0, family), (1, Test::AnyBit(0b1100)), EAFNOSUPPORT));
        let protocols = [0, c::IPPROTO_TCP, c::IPPROTO_UDP];
        families.extend(protocols.map(|protocol| both(is(0, family), is(2, protocol), Answer::Allow)));
    }
    set(c::SYS_socket, families, EAFNOSUPPORT);
    set(c::SYS_socketpair, vec![equals(0, c::AF_UNIX, Answer::Allow)], EAFNOSUPPORT);
    // Queries, the default, and switching off address randomisation for oneself.
    let personalities =
        vec![equals(0, 0, Answer::Allow), equals(0, -1, Answer::Allow), equals(0, 0x0004_0000, Answer::Allow)];
    set(c::SYS_personality, personalities, EPERM);

    rules.sort_unstable_by_key(|(number, _)| *number);
    debug_assert!(rules.is_sorted_by(|a, b| a.0 < b.0), "a system call is listed twice");
    Policy { rules, unlisted: ENOSYS }
}

/// The policy of a zygote: that of every cell, and entering others' namespaces, for which it is given descriptors. What
/// it is forked into enters the ordinary one on top.
pub(crate) fn policy_of_zygotes() -> Policy {
    let mut policy = policy();
    policy.change(c::SYS_setns, vec![], Answer::Allow);
    policy
}

impl Policy {
    /// Replaces the rule of a call that is listed.
    pub(super) fn change(&mut self, call: c::c_long, exceptions: Vec<Exception>, otherwise: Answer) {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        if let Ok(index) = self.rules.binary_search_by_key(&number, |(number, _)| *number) {
            self.rules[index].1 = Rule { exceptions, otherwise };
        } else {
            debug_assert!(false, "a system call that is not listed has no rule to change");
        }
    }

    /// What the policy says about a call. The compiled filter must say the same: tests compare them.
    #[cfg(test)]
    pub(crate) fn answer(&self, call: u32, arguments: &[u64; 6]) -> Answer {
        let Ok(index) = self.rules.binary_search_by_key(&call, |(number, _)| *number) else { return self.unlisted };
        let rule = &self.rules[index].1;
        let holds = |&(argument, test): &(u8, Test)| {
            #[expect(clippy::cast_possible_truncation, reason = "only the low half counts")]
            let value = arguments[usize::from(argument)] as u32;
            match test {
                Test::HighIsZero => arguments[usize::from(argument)] >> 32 == 0,
                Test::Equals(wanted) => value == wanted,
                Test::AnyBit(bits) => value & bits != 0,
            }
        };
        let exception = rule.exceptions.iter().find(|exception| exception.tests.iter().all(holds));
        exception.map_or(rule.otherwise, |exception| exception.answer)
    }
}
