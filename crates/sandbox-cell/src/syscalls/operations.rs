//! The allowed operations of calls that multiplex many: `prctl`, `fcntl`, `ioctl`, and socket options.
//!
//! Each list holds what real programs use: compilers, interpreters and network programs of every language were traced,
//! and common libraries were read. Other operations fail as on a kernel that does not know them. That excludes
//! operations that use pools of the whole kernel (BPF programs, flow labels, static keys, names of mappings) and those
//! that load a module.

use libc as c;

use super::policy::{Exception, SyscallAction, Test, equals, one_of, when};

const EINVAL: SyscallAction = SyscallAction::Errno(22);
const ENOTTY: SyscallAction = SyscallAction::Errno(25);
const ENOPROTOOPT: SyscallAction = SyscallAction::Errno(92);
const EOPNOTSUPP: SyscallAction = SyscallAction::Errno(95);

/// Calls that create an inotify instance.
#[cfg(target_arch = "x86_64")]
pub(super) const INOTIFY_INIT: &[c::c_long] = &[c::SYS_inotify_init1, c::SYS_inotify_init];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const INOTIFY_INIT: &[c::c_long] = &[c::SYS_inotify_init1];

/// `prctl`, below 32. Excluded: `PR_SET_SECCOMP`, which creates BPF programs.
const PRCTL: [c::c_int; 14] = [
    c::PR_SET_PDEATHSIG,
    c::PR_GET_PDEATHSIG,
    c::PR_GET_DUMPABLE,
    c::PR_SET_DUMPABLE,
    c::PR_GET_KEEPCAPS,
    c::PR_SET_KEEPCAPS,
    c::PR_SET_NAME,
    c::PR_GET_NAME,
    c::PR_GET_SECCOMP,
    c::PR_CAPBSET_READ,
    c::PR_CAPBSET_DROP,
    c::PR_GET_SECUREBITS,
    c::PR_SET_TIMERSLACK,
    c::PR_GET_TIMERSLACK,
];

/// `prctl`, from 32 on. Excluded: names of mappings, scheduling cookies and merging of pages.
const PRCTL_ABOVE: [c::c_int; 10] = [
    c::PR_SET_CHILD_SUBREAPER,
    c::PR_GET_CHILD_SUBREAPER,
    c::PR_SET_NO_NEW_PRIVS,
    c::PR_GET_NO_NEW_PRIVS,
    c::PR_GET_TID_ADDRESS,
    c::PR_SET_THP_DISABLE,
    c::PR_GET_THP_DISABLE,
    c::PR_CAP_AMBIENT,
    c::PR_GET_SPECULATION_CTRL,
    c::PR_SET_SPECULATION_CTRL,
];

/// `fcntl`: descriptors and flags, locks, owners of signals.
const FCNTL: [c::c_int; 15] = [
    c::F_DUPFD,
    c::F_GETFD,
    c::F_SETFD,
    c::F_GETFL,
    c::F_SETFL,
    c::F_GETLK,
    c::F_SETLK,
    c::F_SETLKW,
    c::F_SETOWN,
    c::F_GETOWN,
    10, // F_SETSIG
    11, // F_GETSIG
    15, // F_SETOWN_EX
    16, // F_GETOWN_EX
    17, // F_GETOWNER_UIDS
];
const FCNTL_OFD: [c::c_int; 3] = [c::F_OFD_GETLK, c::F_OFD_SETLK, c::F_OFD_SETLKW];
/// Linux-specific, from 1024 on. Excluded: leases, which delay writers, and directory notifications.
const FCNTL_LINUX: [c::c_int; 8] = [
    c::F_GETLEASE,
    1027, // F_DUPFD_QUERY
    1028, // F_CREATED_QUERY
    c::F_DUPFD_CLOEXEC,
    c::F_SETPIPE_SZ,
    c::F_GETPIPE_SZ,
    c::F_ADD_SEALS,
    c::F_GET_SEALS,
];

/// Terminals: what isatty, readline and curses use. Excluded: pushing input, the console, line disciplines.
#[rustfmt::skip]
const TERMINAL: [c::c_int; 19] = [
    0x5401, 0x5402, 0x5403, 0x5404, // TCGETS, TCSETS, TCSETSW, TCSETSF
    0x5405, 0x5406, 0x5407, 0x5408, // TCGETA, TCSETA, TCSETAW, TCSETAF
    0x5409, 0x540a, 0x540b,         // TCSBRK, TCXONC, TCFLSH
    0x540e, 0x540f, 0x5410,         // TIOCSCTTY, TIOCGPGRP, TIOCSPGRP
    0x5411, 0x5413, 0x5414, 0x5415, // TIOCOUTQ, TIOCGWINSZ, TIOCSWINSZ, TIOCMGET
    0x541b,                         // FIONREAD
];
/// FIONBIO, TIOCNOTTY, TIOCGETD, TCSBRKP, TIOCGSID.
const TERMINAL_ABOVE: [c::c_int; 5] = [0x5421, 0x5422, 0x5424, 0x5425, 0x5429];
/// TCGETS2 and TCSETS2 to TCSETSF2, with a size in their number: newer C libraries try them first.
const TERMINAL_NEW: [u32; 4] = [0x802c_542a, 0x402c_542b, 0x402c_542c, 0x402c_542d];
/// TIOCGPTN, TIOCSPTLCK, TIOCGPTPEER: opening pseudo-terminals, in cells that have an instance of devpts.
const PSEUDO_TERMINAL: [u32; 3] = [0x8004_5430, 0x4004_5431, 0x5441];
/// FIONCLEX, FIOCLEX, FIOASYNC.
const DESCRIPTOR: [c::c_int; 3] = [0x5450, 0x5451, 0x5452];
/// Reading about network interfaces. Excluded: operations that create bridges and VLANs, which load modules.
const INTERFACE: [c::c_int; 9] = [
    0x8905, // SIOCATMARK
    0x8910, // SIOCGIFNAME
    0x8912, // SIOCGIFCONF
    0x8913, // SIOCGIFFLAGS
    0x8915, // SIOCGIFADDR
    0x8917, // SIOCGIFDSTADDR
    0x8919, // SIOCGIFBRDADDR
    0x891b, // SIOCGIFNETMASK
    0x891d, // SIOCGIFMETRIC
];
/// SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFINDEX.
const INTERFACE_ABOVE: [c::c_int; 3] = [0x8921, 0x8927, 0x8933];
/// Of network devices; libraries expect this answer from one that does not support the operation.
const SIOCETHTOOL: c::c_int = 0x8946;

/// `SOL_SOCKET`. Excluded: options that create or find BPF programs, timestamps (which patch code of the whole kernel),
/// zero copy and busy polling.
const SOCKET: [c::c_int; 20] = [
    c::SO_REUSEADDR,
    c::SO_TYPE,
    c::SO_ERROR,
    c::SO_DONTROUTE,
    c::SO_BROADCAST,
    c::SO_SNDBUF,
    c::SO_RCVBUF,
    c::SO_KEEPALIVE,
    c::SO_OOBINLINE,
    c::SO_PRIORITY,
    c::SO_LINGER,
    c::SO_REUSEPORT,
    c::SO_PASSCRED,
    c::SO_PEERCRED,
    c::SO_RCVLOWAT,
    c::SO_SNDLOWAT,
    c::SO_RCVTIMEO,
    c::SO_SNDTIMEO,
    c::SO_ACCEPTCONN,
    c::SO_PEERSEC,
];
const SOCKET_ABOVE: [c::c_int; 2] = [c::SO_PROTOCOL, c::SO_DOMAIN];
/// `SO_RCVTIMEO_NEW` and `SO_SNDTIMEO_NEW`, which newer libraries try first.
const SOCKET_NEW: [c::c_int; 2] = [66, 67];
const IPV4: [c::c_int; 10] = [
    c::IP_TOS,
    c::IP_TTL,
    c::IP_PKTINFO,
    c::IP_MTU_DISCOVER,
    c::IP_RECVERR,
    c::IP_RECVTTL,
    c::IP_RECVTOS,
    14, // IP_MTU
    c::IP_FREEBIND,
    c::IP_BIND_ADDRESS_NO_PORT,
];
const IPV4_ABOVE: [c::c_int; 10] = [
    c::IP_MULTICAST_IF,
    c::IP_MULTICAST_TTL,
    c::IP_MULTICAST_LOOP,
    c::IP_ADD_MEMBERSHIP,
    c::IP_DROP_MEMBERSHIP,
    37, // IP_UNBLOCK_SOURCE
    38, // IP_BLOCK_SOURCE
    c::IP_ADD_SOURCE_MEMBERSHIP,
    c::IP_DROP_SOURCE_MEMBERSHIP,
    c::IP_MULTICAST_ALL,
];
const IPV6: [c::c_int; 11] = [
    c::IPV6_UNICAST_HOPS,
    c::IPV6_MULTICAST_IF,
    c::IPV6_MULTICAST_HOPS,
    c::IPV6_MULTICAST_LOOP,
    c::IPV6_ADD_MEMBERSHIP,
    c::IPV6_DROP_MEMBERSHIP,
    c::IPV6_MTU_DISCOVER,
    c::IPV6_MTU,
    c::IPV6_RECVERR,
    c::IPV6_V6ONLY,
    29, // IPV6_MULTICAST_ALL
];
const IPV6_ABOVE: [c::c_int; 8] = [
    43, // MCAST_BLOCK_SOURCE
    44, // MCAST_UNBLOCK_SOURCE
    46, // MCAST_JOIN_SOURCE_GROUP
    47, // MCAST_LEAVE_SOURCE_GROUP
    c::IPV6_RECVPKTINFO,
    c::IPV6_RECVHOPLIMIT,
    c::IPV6_RECVTCLASS,
    c::IPV6_TCLASS,
];
/// Excluded: protocols on top (`TCP_ULP`), keys, repair, and zero copy.
const TCP: [c::c_int; 14] = [
    c::TCP_NODELAY,
    c::TCP_MAXSEG,
    c::TCP_CORK,
    c::TCP_KEEPIDLE,
    c::TCP_KEEPINTVL,
    c::TCP_KEEPCNT,
    c::TCP_SYNCNT,
    c::TCP_LINGER2,
    c::TCP_DEFER_ACCEPT,
    c::TCP_WINDOW_CLAMP,
    c::TCP_INFO,
    c::TCP_QUICKACK,
    c::TCP_USER_TIMEOUT,
    c::TCP_NOTSENT_LOWAT,
];

/// The rules: call, exceptions, and the answer in all other cases.
pub(super) fn rules() -> Vec<(c::c_long, Vec<Exception>, SyscallAction)> {
    let allow = |argument, test| when(argument, test, SyscallAction::Allow);
    let prctl = vec![allow(0, one_of(0, &PRCTL)), allow(0, one_of(32, &PRCTL_ABOVE))];
    let fcntl =
        vec![allow(1, one_of(0, &FCNTL)), allow(1, one_of(32, &FCNTL_OFD)), allow(1, one_of(1024, &FCNTL_LINUX))];
    let windows: [(u32, &[c::c_int]); 5] = [
        (0x5400, &TERMINAL),
        (0x5420, &TERMINAL_ABOVE),
        (0x5440, &DESCRIPTOR),
        (0x8900, &INTERFACE),
        (0x8920, &INTERFACE_ABOVE),
    ];
    let mut ioctl: Vec<_> = windows.iter().map(|(base, numbers)| allow(1, one_of(*base, numbers))).collect();
    ioctl.extend(TERMINAL_NEW.map(|number| allow(1, Test::Equals(number))));
    ioctl.push(equals(1, SIOCETHTOOL, EOPNOTSUPP));
    let options = options();
    vec![
        (c::SYS_prctl, prctl, EINVAL),
        (c::SYS_fcntl, fcntl, EINVAL),
        (c::SYS_ioctl, ioctl, ENOTTY),
        // One list for both: reading an option that may be set is harmless, and the kernel refuses to set one that can
        // only be read. Their numbers are adjacent, so that the compiled filter contains the list once.
        (c::SYS_setsockopt, options.clone(), ENOPROTOOPT),
        (c::SYS_getsockopt, options, ENOPROTOOPT),
    ]
}

/// What `ioctl` allows besides, where programs can have terminals.
pub(super) fn of_terminals() -> impl Iterator<Item = Exception> {
    PSEUDO_TERMINAL.into_iter().map(|number| when(1, Test::Equals(number), SyscallAction::Allow))
}

fn options() -> Vec<Exception> {
    let windows: [(c::c_int, u32, &[c::c_int]); 8] = [
        (c::SOL_SOCKET, 0, &SOCKET),
        (c::IPPROTO_TCP, 0, &TCP),
        (c::SOL_SOCKET, 32, &SOCKET_ABOVE),
        (c::SOL_SOCKET, 64, &SOCKET_NEW),
        (c::IPPROTO_IP, 0, &IPV4),
        (c::IPPROTO_IP, 32, &IPV4_ABOVE),
        (c::IPPROTO_IPV6, 0, &IPV6),
        (c::IPPROTO_IPV6, 36, &IPV6_ABOVE),
    ];
    let allow = |&(level, base, options): &(c::c_int, u32, &[c::c_int])| Exception {
        tests: vec![(1, Test::Equals(level.cast_unsigned())), (2, one_of(base, options))],
        answer: SyscallAction::Allow,
    };
    windows.iter().map(allow).collect()
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Sockets, policy, policy_with_terminals};
    use super::*;

    #[test]
    fn terminals_can_be_opened_only_where_they_exist_and_abused_nowhere() {
        let sockets = Sockets { internet: true, named: true };
        let (usual, with_terminals) = (policy(sockets), policy_with_terminals(sockets));
        let call = u32::try_from(c::SYS_ioctl).expect("small");
        let answers = |operation: u32| {
            // The kernel takes an int and ignores the high half.
            let arguments = |high: u64| [0, high << 32 | u64::from(operation), 0, 0, 0, 0];
            let answers = [&usual, &with_terminals].map(|policy| policy.answer(call, &arguments(0)));
            assert_eq!(answers, [&usual, &with_terminals].map(|policy| policy.answer(call, &arguments(1))));
            answers
        };
        for operation in PSEUDO_TERMINAL {
            assert_eq!(answers(operation), [ENOTTY, SyscallAction::Allow], "{operation:#x}");
        }
        // TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, TIOCSSERIAL, TIOCVHANGUP, KDSETMODE, VT_ACTIVATE.
        for operation in [0x5412, 0x541c, 0x541d, 0x5423, 0x541f, 0x5437, 0x4b3a, 0x5606] {
            assert_eq!(answers(operation), [ENOTTY; 2], "{operation:#x}");
        }
    }
}
