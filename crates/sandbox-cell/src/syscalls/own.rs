//! The policies of this program's own processes: the keeper, and the process that serves a network. Both extend the
//! policy of a cell by the calls that their work needs.

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

/// The policy of a process that serves a network: it cannot create cells.
pub(crate) fn policy_of_service() -> Policy {
    let mut policy = policy(Sockets { internet: true, named: true });
    policy.set(c::SYS_openat2, vec![], SyscallAction::Allow);
    // Expensive artifacts are synced to disk before they get their final name.
    policy.set(c::SYS_syncfs, vec![], SyscallAction::Allow);
    policy
}
