//! The part of a zygote that an interpreter cannot do itself, and the protocol that zygotes speak ([`protocol`]).
//!
//! These sources are compiled twice. `build.rs` makes a shared library of them, with `cfg(zygote_library)`, which
//! is loaded into the interpreter's process. So it stands on nothing but the kernel and that process's own `fork`: no
//! standard library, no allocation. As a crate they hold that library as a file ([`ZYGOTE_LIBRARY`]), share the protocol
//! with the other sides, and are checked like all other code; they export no symbol then.
//!
//! # Theory of operation
//!
//! `sandbox_zygote` turns the process that calls it into a zygote. For every cell that it is sent it forks a child into
//! that cell, and only in those children does the call return. A child goes through the same steps as a program between
//! fork and exec (`sandbox-sys/src/spawn.rs`). When the call returns it is locked, and has seen nothing of any request; the
//! interpreter can make it ready further. `sandbox_wait` then says that it is, waits for what it is to run, and hands
//! that to the interpreter.
//!
//! The child has to be in the cell's PID namespace, and the cell's init has to be its parent: init reaps it, and its
//! status is the run's. So there are two forks. The zygote lets its next child be born into the cell's PID namespace;
//! that child borrows the zygote's memory, forks the real one, and ends, whereupon the real one is init's.
//!
//! The zygote's syscall filter is the children's too: none is made for each of them. It lets `setns` through only with a key
//! above the arguments (`sandbox-cell/src/syscalls/policy.rs`), which comes with each cell and is wiped from a child's
//! memory before the call returns in it.
#![no_std]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the kernel takes and returns words, whatever they mean"
)]

#[cfg(test)]
extern crate std;

#[cfg(target_arch = "x86_64")]
pub mod entry;
#[cfg(target_arch = "x86_64")]
pub mod node;
pub mod protocol;
#[cfg(target_arch = "x86_64")]
mod syscall;
#[cfg(target_arch = "x86_64")]
pub mod threads;

/// The shared library that interpreters load to become zygotes, as a file's content; empty where there is none for this
/// architecture.
#[cfg(not(zygote_library))]
pub const ZYGOTE_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/zygote.so"));
