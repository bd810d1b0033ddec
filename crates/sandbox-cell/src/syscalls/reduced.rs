//! The policy of a cell without namespaces: it refuses the calls that namespaces would have confined.
//!
//! There is no network namespace, so the only sockets are connected pairs: a program that may create sockets can
//! connect to named sockets of the host, which Landlock does not check. There is no IPC namespace, so there are no
//! shared memory segments, semaphores or queues, which would outlive the cell.
//!
//! If the cell has no dedicated user, its programs run as the keeper's user and own that user's files. Landlock
//! restricts access to content, but not to modes, times and attributes, nor to scheduling. So these can be changed only
//! through an open file, and only for the calling process.

use libc as c;

use super::policy::{Exception, Policy, Sockets, SyscallAction, Test, connected_pairs, policy};

const EPERM: SyscallAction = SyscallAction::Errno(1);
const EACCES: SyscallAction = SyscallAction::Errno(13);
const ENOSYS: SyscallAction = SyscallAction::Errno(38);

/// Calls that reach beyond the cell without namespaces.
const SOCKETS: &[c::c_long] =
    &[c::SYS_socket, c::SYS_connect, c::SYS_bind, c::SYS_listen, c::SYS_accept, c::SYS_accept4];
#[rustfmt::skip]
const IPC: &[c::c_long] = &[
    c::SYS_shmget, c::SYS_shmat, c::SYS_shmdt, c::SYS_shmctl, c::SYS_semget, c::SYS_semop, c::SYS_semtimedop,
    c::SYS_semctl, c::SYS_msgget, c::SYS_msgsnd, c::SYS_msgrcv, c::SYS_msgctl, c::SYS_mq_open, c::SYS_mq_unlink,
];

/// Calls that change a file without opening it.
const BY_PATH: &[c::c_long] = &[
    c::SYS_fchmodat,
    c::SYS_fchmodat2,
    c::SYS_fchownat,
    c::SYS_setxattr,
    c::SYS_lsetxattr,
    c::SYS_removexattr,
    c::SYS_lremovexattr,
];
#[cfg(target_arch = "x86_64")]
const BY_PATH_HERE: &[c::c_long] =
    &[c::SYS_chmod, c::SYS_chown, c::SYS_lchown, c::SYS_utime, c::SYS_utimes, c::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const BY_PATH_HERE: &[c::c_long] = &[];

/// Calls that change how a process is scheduled; the first argument says which process.
const SCHEDULING: &[c::c_long] =
    &[c::SYS_sched_setaffinity, c::SYS_sched_setparam, c::SYS_sched_setscheduler, c::SYS_sched_setattr];

/// The `which` of `ioprio_set(2)` that means a process.
const IOPRIO_WHO_PROCESS: u32 = 1;

/// The policy; `own_user` says whether the cell has a dedicated user.
pub(crate) fn policy_without_namespaces(own_user: bool) -> Policy {
    let mut policy = policy(Sockets { internet: false, named: false });
    let allow = |tests: Vec<(u8, Test)>| Exception { tests, answer: SyscallAction::Allow };
    for &call in SOCKETS {
        policy.change(call, vec![], EACCES);
    }
    // Landlock does not restrict directory watches, and events reveal the names in a directory.
    policy.change(c::SYS_inotify_add_watch, vec![], EACCES);
    for &call in IPC {
        policy.change(call, vec![], ENOSYS);
    }
    policy.change(c::SYS_socketpair, connected_pairs(), EACCES);
    if own_user {
        return policy;
    }
    for &call in BY_PATH.iter().chain(BY_PATH_HERE) {
        policy.change(call, vec![], EPERM);
    }
    // Without a path the call applies to an open file.
    let open_file = allow(vec![(1, Test::Equals(0)), (1, Test::HighIsZero)]);
    policy.change(c::SYS_utimensat, vec![open_file], EPERM);
    for &call in SCHEDULING {
        policy.change(call, vec![allow(vec![(0, Test::Equals(0))])], EPERM);
    }
    let itself = |which| vec![allow(vec![(0, Test::Equals(which)), (1, Test::Equals(0))])];
    policy.change(c::SYS_setpriority, itself(c::PRIO_PROCESS), EPERM);
    policy.change(c::SYS_ioprio_set, itself(IOPRIO_WHO_PROCESS), EPERM);
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_reach_beyond_the_cell_are_refused() {
        let answer = |own_user: bool, call: c::c_long, arguments: [u64; 6]| {
            policy_without_namespaces(own_user).answer(u32::try_from(call).expect("small"), &arguments)
        };
        let (unix, stream, datagram) = (c::AF_UNIX as u64, c::SOCK_STREAM as u64, c::SOCK_DGRAM as u64);
        for own_user in [true, false] {
            assert_eq!(answer(own_user, c::SYS_socket, [unix, stream, 0, 0, 0, 0]), EACCES);
            assert_eq!(answer(own_user, c::SYS_socketpair, [unix, datagram, 0, 0, 0, 0]), EACCES);
            assert_eq!(answer(own_user, c::SYS_socketpair, [unix, stream, 0, 0, 0, 0]), SyscallAction::Allow);
            assert_eq!(answer(own_user, c::SYS_shmget, [0; 6]), ENOSYS);
            assert_eq!(answer(own_user, c::SYS_inotify_add_watch, [0; 6]), EACCES);
        }
        assert_eq!(answer(true, c::SYS_fchmodat, [0; 6]), SyscallAction::Allow);
        assert_eq!(answer(false, c::SYS_fchmodat, [0; 6]), EPERM);
        assert_eq!(answer(false, c::SYS_utimensat, [3, 0, 0, 0, 0, 0]), SyscallAction::Allow);
        assert_eq!(answer(false, c::SYS_utimensat, [3, 1 << 32, 0, 0, 0, 0]), EPERM);
        assert_eq!(answer(false, c::SYS_sched_setaffinity, [1, 0, 0, 0, 0, 0]), EPERM);
        assert_eq!(answer(false, c::SYS_sched_setaffinity, [0; 6]), SyscallAction::Allow);
        assert_eq!(answer(false, c::SYS_setpriority, [2, 0, 0, 0, 0, 0]), EPERM);
    }
}
