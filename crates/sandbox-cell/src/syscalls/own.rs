//! The policies of this program's own processes: the keeper and the process that serves a network, which extend the policy
//! of a cell by the calls that their work needs, and inits that start no program, which need only a part of it.

use libc as c;

use super::policy::{Exception, Policy, Sockets, SyscallAction, Test, policy};

/// Calls of the keeper, its zygote namespaces and inits before they lock a cell.
const TO_MAKE_CELLS: &[c::c_long] = &[
    // Namespaces and mounts.
    c::SYS_clone,
    c::SYS_clone3,
    c::SYS_unshare,
    c::SYS_setns,
    c::SYS_mount,
    c::SYS_umount2,
    c::SYS_pivot_root,
    c::SYS_open_tree,
    c::SYS_move_mount,
    c::SYS_fsopen,
    c::SYS_fsconfig,
    c::SYS_fsmount,
    c::SYS_mount_setattr,
    c::SYS_sethostname,
    // Path resolution without links.
    c::SYS_openat2,
    // Configuring loopback, dropping privileges and setting the limits of programs.
    c::SYS_ioctl,
    c::SYS_prctl,
    c::SYS_seccomp,
    c::SYS_prlimit64,
    c::SYS_setrlimit,
];

/// The keeper's policy, which all its descendants inherit and narrow. Excluded: memory of other processes, modules,
/// BPF, keys, clocks, swap, rebooting, raw I/O, asynchronous I/O, performance events and file notifications.
pub(crate) fn policy_of_keeper() -> Policy {
    let mut policy = policy(Sockets { internet: true, named: true });
    for &call in TO_MAKE_CELLS {
        policy.set(call, vec![], SyscallAction::Allow);
    }
    // Behind a gateway a cell has a route.
    let route =
        vec![(0, Test::Equals(c::AF_NETLINK.cast_unsigned())), (2, Test::Equals(c::NETLINK_ROUTE.cast_unsigned()))];
    policy.except(c::SYS_socket, Exception { tests: route, answer: SyscallAction::Allow });
    policy
}

/// Calls of an init whose program is the child of a zygote: messages, files, signals, memory. It starts no process.
#[rustfmt::skip]
const OF_WAITING_INIT: &[c::c_long] = &[
    c::SYS_read, c::SYS_write, c::SYS_readv, c::SYS_writev, c::SYS_pread64, c::SYS_pwrite64, c::SYS_close, c::SYS_close_range,
    c::SYS_lseek, c::SYS_fstat, c::SYS_newfstatat, c::SYS_statx, c::SYS_fstatfs, c::SYS_getdents64, c::SYS_openat,
    c::SYS_mkdirat, c::SYS_unlinkat, c::SYS_symlinkat, c::SYS_readlinkat, c::SYS_linkat, c::SYS_renameat, c::SYS_renameat2,
    c::SYS_fchmod, c::SYS_fchmodat, c::SYS_fchown, c::SYS_fchownat, c::SYS_utimensat, c::SYS_ftruncate, c::SYS_fallocate,
    c::SYS_copy_file_range, c::SYS_sendfile, c::SYS_splice, c::SYS_fcntl, c::SYS_dup, c::SYS_dup3, c::SYS_pipe2,
    c::SYS_mmap, c::SYS_munmap, c::SYS_mremap, c::SYS_mprotect, c::SYS_madvise, c::SYS_brk, c::SYS_memfd_create, c::SYS_futex,
    c::SYS_ppoll, c::SYS_socketpair, c::SYS_recvmsg, c::SYS_sendmsg, c::SYS_kill, c::SYS_tgkill, c::SYS_wait4, c::SYS_waitid, c::SYS_getpid,
    c::SYS_gettid, c::SYS_rt_sigaction, c::SYS_rt_sigprocmask, c::SYS_rt_sigreturn, c::SYS_sigaltstack, c::SYS_getrusage,
    c::SYS_setresuid, c::SYS_setresgid, c::SYS_setfsuid, c::SYS_setfsgid, c::SYS_capget, c::SYS_capset, c::SYS_umask,
    c::SYS_clock_gettime, c::SYS_clock_nanosleep, c::SYS_sched_yield, c::SYS_getrandom, c::SYS_restart_syscall,
    c::SYS_exit, c::SYS_exit_group,
];

/// The policy of such an init. A small filter also takes a fraction of the time to install.
pub(crate) fn policy_of_waiting_init() -> Policy {
    let mut policy = policy(Sockets { internet: false, named: false });
    policy.rules.retain(|(call, _)| OF_WAITING_INIT.contains(&c::c_long::from(*call)));
    policy
}

/// The policy of a process that serves a network: it cannot create cells.
pub(crate) fn policy_of_service() -> Policy {
    let mut policy = policy(Sockets { internet: true, named: true });
    policy.set(c::SYS_openat2, vec![], SyscallAction::Allow);
    // Expensive artifacts are synced to disk before they get their final name.
    policy.set(c::SYS_syncfs, vec![], SyscallAction::Allow);
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_init_cannot_start_a_process() {
        let policy = policy_of_waiting_init();
        assert!(policy.rules.len() > 60, "{}", policy.rules.len());
        // Init relies on this: it does not empty its bounding set, which matters only to an executed program.
        #[rustfmt::skip]
        let refused = [
            c::SYS_clone, c::SYS_clone3, c::SYS_execve, c::SYS_execveat, c::SYS_unshare, c::SYS_setns, c::SYS_prctl,
            c::SYS_socket,
        ];
        #[cfg(target_arch = "x86_64")]
        let refused = refused.into_iter().chain([c::SYS_fork, c::SYS_vfork]);
        for call in refused {
            assert!(policy.rules.iter().all(|(known, _)| c::c_long::from(*known) != call), "{call}");
        }
    }
}
