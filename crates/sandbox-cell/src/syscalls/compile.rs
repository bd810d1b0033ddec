//! Compiles a policy to the kernel's classic BPF.
//!
//! The program first refuses every foreign ABI (32-bit and x32 calls), then finds the call's number by binary search
//! over ranges with the same answer, and then tests arguments where the rule has exceptions.

use sandbox_sys::seccomp::Instruction;

use super::policy::{Policy, Rule, SyscallAction, Test};

// The fields of `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGS_OFFSET: u32 = 16;
/// The offset of the high half of an argument, on a little-endian machine.
const HIGH_HALF: u32 = 4;

// Instruction codes.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const JUMP_ALWAYS: u16 = 0x05;
const RETURN: u16 = 0x06;
const SUBTRACT: u16 = 0x14;
/// Copies the accumulator to the index register, which holds the width of the next shift.
const KEEP: u16 = 0x07;
const SET: u16 = 0x00;
const SHIFT_LEFT: u16 = 0x6c;

const RET_KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const RET_ERRNO: u32 = libc::SECCOMP_RET_ERRNO;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// On x86-64, calls of the x32 ABI have this bit; no native call reaches it.
const X32_BIT: u32 = 0x4000_0000;

/// A run of call numbers with the same rule, from `first` up to the next range.
struct SyscallRange<'a> {
    first: u32,
    rule: Option<&'a Rule>,
}

/// Compiles a policy.
pub(crate) fn compile(policy: &Policy) -> Vec<Instruction> {
    let ranges = ranges(policy);
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCH_OFFSET),
        instruction(JUMP_IF_EQUAL, 1, 0, ARCH),
        instruction(RETURN, 0, 0, RET_KILL),
        instruction(LOAD, 0, 0, NUMBER_OFFSET),
        instruction(JUMP_IF_AT_LEAST, 0, 1, X32_BIT),
        instruction(RETURN, 0, 0, RET_KILL),
    ];
    tree(&ranges, policy, &mut program);
    program
}

/// Merges neighbours with equal rules; numbers between listed ones are unlisted.
fn ranges(policy: &Policy) -> Vec<SyscallRange<'_>> {
    let mut ranges: Vec<SyscallRange<'_>> = vec![SyscallRange { first: 0, rule: None }];
    let mut next_unlisted = 0;
    for &(number, ref rule) in &policy.rules {
        if number > next_unlisted {
            extend(&mut ranges, next_unlisted, None);
        }
        extend(&mut ranges, number, Some(rule));
        next_unlisted = number + 1;
    }
    extend(&mut ranges, next_unlisted, None);
    ranges
}

fn extend<'a>(ranges: &mut Vec<SyscallRange<'a>>, first: u32, rule: Option<&'a Rule>) {
    match ranges.last_mut() {
        Some(last) if last.rule == rule => {}
        Some(last) if last.first == first => last.rule = rule,
        _ => ranges.push(SyscallRange { first, rule }),
    }
}

/// Emits a balanced search tree over `ranges`.
fn tree(ranges: &[SyscallRange<'_>], policy: &Policy, program: &mut Vec<Instruction>) {
    if let [range] = ranges {
        match range.rule {
            None => program.push(answer(policy.unlisted)),
            Some(rule) => leaf(rule, program),
        }
        return;
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let at = program.len();
    program.push(instruction(JUMP_IF_AT_LEAST, 0, 0, high[0].first));
    tree(low, policy, program);
    let skip = program.len() - at - 1;
    if let Ok(skip) = u8::try_from(skip) {
        program[at].jump_true = skip;
    } else {
        // Conditional jumps reach 255 instructions: longer ones go through an unconditional jump.
        program.insert(at + 1, instruction(JUMP_ALWAYS, 0, 0, u32::try_from(skip).unwrap_or(u32::MAX)));
        program[at].jump_false = 1;
    }
    tree(high, policy, program);
}

fn leaf(rule: &Rule, program: &mut Vec<Instruction>) {
    for exception in &rule.exceptions {
        let tests: Vec<_> = exception.tests.iter().map(|&(argument, test)| instructions(argument, test)).collect();
        // The answer follows the last test. A test that fails skips the remaining ones.
        let mut left: usize = tests.iter().map(Vec::len).sum::<usize>() + 1;
        for mut instruction in tests.into_iter().flatten() {
            left -= 1;
            let skip = u8::try_from(left).unwrap_or(u8::MAX);
            match instruction.code {
                // The test fails if this holds.
                JUMP_IF_AT_LEAST => instruction.jump_true = skip,
                JUMP_IF_EQUAL | JUMP_IF_ANY_BIT => instruction.jump_false = skip,
                _ => {}
            }
            program.push(instruction);
        }
        program.push(answer(exception.answer));
    }
    program.push(answer(rule.otherwise));
}

/// A test, without the targets of its jumps.
fn instructions(argument: u8, test: Test) -> Vec<Instruction> {
    let load = |half| instruction(LOAD, 0, 0, ARGS_OFFSET + 8 * u32::from(argument) + half);
    match test {
        Test::Equals(value) => vec![load(0), instruction(JUMP_IF_EQUAL, 0, 0, value)],
        Test::AnyBit(bits) => vec![load(0), instruction(JUMP_IF_ANY_BIT, 0, 0, bits)],
        Test::HighIsZero => vec![load(HIGH_HALF), instruction(JUMP_IF_EQUAL, 0, 0, 0)],
        Test::HighEquals(high) => vec![load(HIGH_HALF), instruction(JUMP_IF_EQUAL, 0, 0, high)],
        Test::OneOf { base, bits } => {
            let mut code = vec![load(0)];
            if base != 0 {
                // Values below the base wrap around to huge ones.
                code.push(instruction(SUBTRACT, 0, 0, base));
            }
            code.extend([
                instruction(JUMP_IF_AT_LEAST, 0, 0, 32),
                instruction(KEEP, 0, 0, 0),
                instruction(SET, 0, 0, 1),
                instruction(SHIFT_LEFT, 0, 0, 0),
                instruction(JUMP_IF_ANY_BIT, 0, 0, bits),
            ]);
            code
        }
    }
}

fn answer(answer: SyscallAction) -> Instruction {
    let value = match answer {
        SyscallAction::Allow => RET_ALLOW,
        SyscallAction::Errno(errno) => RET_ERRNO | u32::from(errno),
    };
    instruction(RETURN, 0, 0, value)
}

fn instruction(code: u16, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Sockets, policy};
    use super::*;

    #[test]
    fn the_filter_is_short() {
        for sockets in Sockets::ALL {
            let length = compile(&policy(sockets)).len();
            assert!(length < 600, "{length} instructions");
        }
    }

    /// A caller that passes three arguments leaves whatever it had in the place of an unused one.
    #[test]
    fn mode_bits_count_only_where_a_file_is_created() {
        let (policy, all) = (policy(Sockets { internet: false, named: true }), u64::MAX);
        let answer = |call: libc::c_long, arguments: [u64; 4]| {
            let [a, b, c, d] = arguments;
            policy.answer(u32::try_from(call).expect("small"), &[a, b, c, d, 0, 0])
        };
        let flags = |flags: libc::c_int| u64::from(flags.cast_unsigned());
        for set_id in [0o4755, 0o2755, 0o6000, all] {
            for unused in [libc::O_RDONLY, libc::O_RDWR | libc::O_TRUNC | libc::O_CLOEXEC, libc::O_DIRECTORY] {
                assert_eq!(answer(libc::SYS_openat, [all, 1, flags(unused), set_id]), SyscallAction::Allow);
                #[cfg(target_arch = "x86_64")]
                assert_eq!(answer(libc::SYS_open, [1, flags(unused), set_id, all]), SyscallAction::Allow);
            }
            for creating in
                [libc::O_CREAT | libc::O_WRONLY, libc::O_TMPFILE | libc::O_RDWR, libc::O_CREAT | libc::O_EXCL]
            {
                assert_eq!(answer(libc::SYS_openat, [all, 1, flags(creating), set_id]), SyscallAction::Errno(1));
                #[cfg(target_arch = "x86_64")]
                assert_eq!(answer(libc::SYS_open, [1, flags(creating), set_id, all]), SyscallAction::Errno(1));
            }
            #[cfg(target_arch = "x86_64")]
            assert_eq!(answer(libc::SYS_creat, [1, set_id, all, all]), SyscallAction::Errno(1));
        }
        assert_eq!(answer(libc::SYS_openat, [all, 1, flags(libc::O_CREAT), 0o1777]), SyscallAction::Allow);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(answer(libc::SYS_creat, [1, 0o755, all, all]), SyscallAction::Allow);
    }

    #[test]
    fn calls_that_escapes_need_are_refused() {
        const AF_VSOCK: u64 = 40;
        let policy = policy(Sockets { internet: true, named: true });
        let denied = |call: libc::c_long, arguments: [u64; 6]| {
            assert_ne!(
                policy.answer(u32::try_from(call).expect("small"), &arguments),
                SyscallAction::Allow,
                "call {call}"
            );
        };
        for call in [
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_keyctl,
            libc::SYS_ptrace,
            libc::SYS_perf_event_open,
            libc::SYS_clone3,
            libc::SYS_kexec_load,
            libc::SYS_open_by_handle_at,
        ] {
            denied(call, [0; 6]);
        }
        denied(libc::SYS_socket, [libc::AF_NETLINK as u64, 3, libc::NETLINK_NETFILTER as u64, 0, 0, 0]);
        denied(libc::SYS_socket, [libc::AF_NETLINK as u64, 3, libc::NETLINK_ROUTE as u64, 0, 0, 0]);
        denied(libc::SYS_socket, [AF_VSOCK, 1, 0, 0, 0, 0]);
        for option in [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF, 51, 52, libc::SO_TIMESTAMP, libc::SO_ZEROCOPY] {
            denied(libc::SYS_setsockopt, [3, libc::SOL_SOCKET as u64, option.cast_unsigned().into(), 0, 0, 0]);
        }
        denied(libc::SYS_setsockopt, [3, libc::IPPROTO_IPV6 as u64, 32, 0, 0, 0]);
        denied(libc::SYS_prctl, [libc::PR_SET_SECCOMP as u64, 2, 0, 0, 0, 0]);
        denied(libc::SYS_prctl, [libc::PR_SET_VMA as u64, 0, 0, 0, 0, 0]);
        denied(libc::SYS_ioctl, [3, 0x89a0, 0, 0, 0, 0]);
        denied(libc::SYS_inotify_init1, [0; 6]);
        denied(libc::SYS_mmap, [0, 1 << 21, 3, (libc::MAP_PRIVATE | libc::MAP_HUGETLB) as u64, 0, 0]);
        denied(libc::SYS_setrlimit, [libc::RLIMIT_CORE.into(), 1, 0, 0, 0, 0]);
        denied(libc::SYS_prlimit64, [0, libc::RLIMIT_CORE.into(), 1 << 32, 0, 0, 0]);
        denied(libc::SYS_clone, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]);
        denied(libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0]);
        denied(libc::SYS_ioctl, [0, libc::TIOCSTI | 1 << 32, 0, 0, 0, 0]);
    }
}
