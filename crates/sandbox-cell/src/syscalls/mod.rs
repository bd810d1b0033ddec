//! The system calls that a cell may make.
//!
//! The policy ([`mod@policy`]) lists what is allowed; everything else fails. It is compiled ([`mod@compile`]) to a
//! balanced tree over ranges of call numbers, because the cost of installing and running a filter grows with its
//! length: a list of 300 comparisons takes ten times as long to install as this tree.

mod compile;
#[cfg(test)]
mod equivalence;
mod operations;
mod own;
mod policy;
mod reduced;

pub(crate) use compile::compile;
pub(crate) use own::{policy_of_keeper, policy_of_service, policy_of_waiting_init};
pub use policy::{EntryKey, Exception, Policy, Rule, Sockets, SyscallAction, Test, policy};
pub(crate) use policy::{policy_of_zygotes, policy_with_terminals};
pub(crate) use reduced::policy_without_namespaces;

/// The syscall filter of a cell without a network, in the kernel's format: an array of `struct sock_filter`. For
/// inspection, and for use by other tools.
#[must_use]
pub fn filter_bytes() -> Vec<u8> {
    let mut bytes = vec![];
    for instruction in compile(&policy(Sockets { internet: false, named: true })) {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jump_true, instruction.jump_false]);
        bytes.extend(instruction.operand.to_ne_bytes());
    }
    bytes
}
