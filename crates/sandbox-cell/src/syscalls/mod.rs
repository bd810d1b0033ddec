//! Which system calls a cell may make.
//!
//! The policy ([`mod@policy`]) lists what is allowed; everything else fails. It is compiled ([`mod@compile`]) to a balanced
//! tree over ranges of call numbers, because the kernel's cost of installing and of running a filter grows with
//! its length: a list of 300 comparisons takes ten times as long to install as this tree.

mod compile;
mod policy;

pub(crate) use compile::compile;
pub(crate) use policy::policy;
