//! Tests that the compiled filter answers as its policy does: for every call, every ABI, and every class of arguments
//! at which a rule changes its answer. Nothing here is taken from the compiler: the interpreter uses the kernel's
//! numbers, and expectations come from the ABI alone.

use proptest::prelude::*;
use sandbox_sys::seccomp::Instruction;

use super::compile::compile;
use super::own::{policy_of_keeper, policy_of_service, policy_of_waiting_init};
use super::policy::{
    EntryKey, Exception, Policy, Rule, Sockets, SyscallAction, Test, policy, policy_of_zygotes, policy_with_terminals,
};
use super::reduced::policy_without_namespaces;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const AARCH64: u32 = 0xc000_00b7;
const ARM: u32 = 0x4000_0028;
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = X86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = AARCH64;

const KILL: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

/// A call as a filter sees it.
#[derive(Debug, Clone, Copy)]
struct Call {
    arch: u32,
    number: u32,
    arguments: [u64; 6],
}

impl Call {
    /// `struct seccomp_data`: number, architecture, instruction pointer, arguments.
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0xa5; 64];
        bytes[..4].copy_from_slice(&self.number.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.arch.to_ne_bytes());
        for (slot, argument) in bytes[16..].chunks_exact_mut(8).zip(self.arguments) {
            slot.copy_from_slice(&argument.to_ne_bytes());
        }
        bytes
    }
}

/// Runs a filter as the kernel does. Panics on a program that the kernel would not load.
fn run(program: &[Instruction], call: &Call) -> u32 {
    let data = call.bytes();
    let (mut accumulator, mut index) = (0_u32, 0_u32);
    let mut at = 0;
    loop {
        let Instruction { code, jump_true, jump_false, operand } = program[at];
        at += 1;
        let jump = |holds| usize::from(if holds { jump_true } else { jump_false });
        match code {
            // BPF_LD | BPF_W | BPF_ABS
            0x20 => {
                assert_eq!(operand % 4, 0, "the kernel refuses a load that is not aligned");
                let from = operand as usize;
                accumulator = u32::from_ne_bytes(data[from..from + 4].try_into().expect("four bytes"));
            }
            // BPF_JMP with BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET and a constant; BPF_JA
            0x15 => at += jump(accumulator == operand),
            0x25 => at += jump(accumulator > operand),
            0x35 => at += jump(accumulator >= operand),
            0x45 => at += jump(accumulator & operand != 0),
            0x05 => at += operand as usize,
            // BPF_ALU | BPF_SUB | BPF_K; BPF_MISC | BPF_TAX; BPF_LD | BPF_IMM; BPF_ALU | BPF_LSH | BPF_X
            0x14 => accumulator = accumulator.wrapping_sub(operand),
            0x07 => index = accumulator,
            0x00 => accumulator = operand,
            0x6c => {
                accumulator = accumulator.checked_shl(index).expect("the effect of a wider shift depends on the CPU");
            }
            // BPF_RET | BPF_K
            0x06 => return operand,
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

/// The expected answer: foreign ABIs are fatal, and the policy decides everything else.
fn expected(policy: &Policy, call: &Call) -> u32 {
    if call.arch != NATIVE || call.number >= 0x4000_0000 {
        return KILL;
    }
    match policy.answer(call.number, &call.arguments) {
        SyscallAction::Allow => ALLOW,
        SyscallAction::Errno(errno) => ERRNO | u32::from(errno),
    }
}

fn compare(policy: &Policy, program: &[Instruction], call: &Call) {
    assert_eq!(run(program, call), expected(policy, call), "{call:x?}");
}

/// Call numbers: all that exist and more, those of x32, huge ones and negative ones.
fn numbers() -> impl Iterator<Item = u32> {
    let edges = [0x3fff_fffe, 0x3fff_ffff, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX - 1, u32::MAX];
    let x32 = (0..=600).map(|number| number | 0x4000_0000);
    let negative = (0..=600).map(|number| number | 0x8000_0000);
    (0..=1100).chain(x32).chain(negative).chain((10..31).map(|bit| 1 << bit)).chain(edges)
}

/// The value that a test compares with, in the low half.
fn low(test: Test) -> u32 {
    match test {
        Test::Equals(value) | Test::AnyBit(value) => value,
        Test::HighIsZero | Test::HighEquals(_) => 0,
        Test::OneOf { base, bits } => base.wrapping_add(bits.trailing_zeros() % 32),
    }
}

/// The value that a test compares with, in both halves.
fn wanted(test: Test) -> u64 {
    match test {
        Test::HighEquals(high) => u64::from(high) << 32,
        other => low(other).into(),
    }
}

/// Values of an argument around the one that a test compares with: exactly that, one more and one less, each bit
/// flipped, zero, all ones; each also with the high half set, which few tests consider.
fn around(test: Test) -> Vec<u64> {
    let wanted = low(test);
    let mut values = vec![0, u32::MAX, wanted, !wanted, wanted.wrapping_add(1), wanted.wrapping_sub(1)];
    for bit in (0..32).map(|bit| 1_u32 << bit) {
        values.extend([bit, wanted & bit, wanted | bit, wanted & !bit, wanted ^ bit, !wanted | bit]);
    }
    if let Test::OneOf { base, .. } = test {
        values.extend((0..35).map(|n| base.wrapping_add(n).wrapping_sub(1)));
    }
    values.sort_unstable();
    values.dedup();
    let mut uppers = vec![0, 1, 0x8000_0000, 0xffff_ffff];
    if let Test::HighEquals(high) = test {
        uppers.extend([high, high ^ 1, !high].map(u64::from));
    }
    let wide = |value: u32| uppers.iter().map(move |upper| upper << 32 | u64::from(value)).collect::<Vec<_>>();
    values.into_iter().flat_map(wide).collect()
}

fn tests(rule: &Rule) -> impl Iterator<Item = &(u8, Test)> {
    rule.exceptions.iter().flat_map(|exception| &exception.tests)
}

/// Arguments at which a rule could change its answer: each test's values in each argument, combined with every way in
/// which one exception's tests hold.
fn classes(rule: &Rule) -> Vec<[u64; 6]> {
    let mut bases = vec![[0; 6], [u64::MAX; 6], [7; 6]];
    for exception in &rule.exceptions {
        let mut holds = [0; 6];
        for &(argument, test) in &exception.tests {
            holds[usize::from(argument)] |= wanted(test);
        }
        bases.push(holds);
    }
    let mut classes = bases.clone();
    for &(_, test) in tests(rule) {
        for value in around(test) {
            for base in &bases {
                classes.extend((0..6).map(|argument| {
                    let mut arguments = *base;
                    arguments[argument] = value;
                    arguments
                }));
            }
        }
    }
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// All policies.
fn policies() -> Vec<Policy> {
    let key = EntryKey(0x1234_5678_9abc_def0);
    let with_namespaces =
        Sockets::ALL.into_iter().flat_map(|sockets| [policy(sockets), policy_of_zygotes(sockets, key)]);
    // What it adds does not depend on the sockets.
    let with_terminals = policy_with_terminals(Sockets { internet: true, named: true });
    let own = [policy_of_keeper(), policy_of_service(), policy_of_waiting_init(), with_terminals];
    with_namespaces.chain([true, false].map(policy_without_namespaces)).chain(own).collect()
}

#[test]
fn every_call_under_every_abi_is_answered_as_by_the_policy() {
    policies().iter().for_each(every_call_of);
}

fn every_call_of(policy: &Policy) {
    let program = compile(policy);
    for number in numbers() {
        for arch in [X86_64, I386, AARCH64, ARM, 0, u32::MAX, NATIVE ^ 1, NATIVE | 0x0100_0000] {
            for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]] {
                compare(policy, &program, &Call { arch, number, arguments });
            }
        }
    }
}

#[test]
fn every_class_of_arguments_is_answered_as_by_the_policy() {
    policies().iter().for_each(every_class_of);
}

fn every_class_of(policy: &Policy) {
    let program = compile(policy);
    let mut looked_at = 0;
    for (number, rule) in policy.rules.iter().filter(|(_, rule)| !rule.exceptions.is_empty()) {
        for arguments in classes(rule) {
            compare(policy, &program, &Call { arch: NATIVE, number: *number, arguments });
            looked_at += 1;
        }
    }
    assert!(looked_at > 10_000, "{looked_at} calls");
}

#[test]
fn calls_without_exceptions_ignore_arguments() {
    policies().iter().for_each(no_other_call_of);
}

fn no_other_call_of(policy: &Policy) {
    let program = compile(policy);
    let mut values: Vec<u64> =
        policy.rules.iter().flat_map(|(_, rule)| tests(rule)).map(|&(_, test)| wanted(test)).collect();
    values.sort_unstable();
    values.dedup();
    for number in 0..=600 {
        for &value in &values {
            for argument in 0..6 {
                let mut arguments = [7; 6];
                arguments[argument] = value;
                compare(policy, &program, &Call { arch: NATIVE, number, arguments });
            }
        }
    }
}

/// Jumps go forward and stay inside, and every path ends in a return: the kernel checks the same before it loads a
/// filter.
#[test]
fn the_kernel_would_load_every_filter() {
    policies().iter().map(compile).for_each(|program| would_load(&program));
}

fn would_load(program: &[Instruction]) {
    assert!(program.len() <= 4096 && program.last().is_some_and(|last| last.code == 0x06));
    for (at, instruction) in program.iter().enumerate() {
        let reach = match instruction.code {
            0x15 | 0x25 | 0x35 | 0x45 => usize::from(instruction.jump_true.max(instruction.jump_false)),
            0x05 => instruction.operand as usize,
            _ => 0,
        };
        assert!(at + reach + usize::from(instruction.code != 0x06) < program.len(), "instruction {at}");
    }
}

fn answers() -> impl Strategy<Value = SyscallAction> {
    prop_oneof![Just(SyscallAction::Allow), (1_u16..100).prop_map(SyscallAction::Errno)]
}

fn rules() -> impl Strategy<Value = Rule> {
    let test = prop_oneof![any::<u32>().prop_map(Test::Equals), any::<u32>().prop_map(Test::AnyBit)];
    let small =
        prop_oneof![(0_u32..4).prop_map(Test::Equals), (0_u32..4).prop_map(Test::AnyBit), Just(Test::HighIsZero)];
    let window =
        (prop_oneof![0_u32..4, any::<u32>()], any::<u32>()).prop_map(|(base, bits)| Test::OneOf { base, bits });
    let small = prop_oneof![small, window, (0_u32..4).prop_map(Test::HighEquals)];
    let tests = prop::collection::vec((0_u8..6, prop_oneof![test, small]), 1..4);
    let exception = (tests, answers()).prop_map(|(tests, answer)| Exception { tests, answer });
    (prop::collection::vec(exception, 0..4), answers())
        .prop_map(|(exceptions, otherwise)| Rule { exceptions, otherwise })
}

proptest! {
    /// Over all policies.
    #[test]
    fn any_call(number in any::<u32>(), arch in prop_oneof![Just(NATIVE), any::<u32>()], arguments in any::<[u64; 6]>()) {
        for policy in policies() {
            let program = compile(&policy);
            for number in [number, number & 0x1ff] {
                compare(&policy, &program, &Call { arch, number, arguments });
            }
        }
    }

    /// The compiler is correct for random policies, not only for the existing ones.
    #[test]
    fn any_policy(
        rules in prop::collection::btree_map(0_u32..600, rules(), 0..150),
        unlisted in answers(),
    ) {
        let policy = Policy { rules: rules.into_iter().collect(), unlisted };
        let program = compile(&policy);
        for number in (0..=601).chain([0x3fff_ffff, 0x4000_0000, u32::MAX]) {
            compare(&policy, &program, &Call { arch: NATIVE, number, arguments: [1; 6] });
        }
        for (number, rule) in &policy.rules {
            for exception in &rule.exceptions {
                let mut arguments = [0; 6];
                for &(argument, test) in &exception.tests {
                    arguments[usize::from(argument)] |= wanted(test);
                }
                for upper in [0, 1 << 40] {
                    let arguments = arguments.map(|argument| argument | upper);
                    compare(&policy, &program, &Call { arch: NATIVE, number: *number, arguments });
                }
            }
        }
    }
}
