//! The parts of a zygote that an interpreter cannot implement, and the protocol that zygotes speak ([`protocol`]).
//!
//! These sources are compiled twice. `build.rs` makes a shared library of them, with `cfg(zygote_library)`, which is
//! loaded into the interpreter's process. So it depends only on the kernel and on that process's `fork`: no standard
//! library, no allocation. As a crate they embed that library as a file ([`ZYGOTE_LIBRARY`]), share the protocol with
//! the other sides, and are linted like all other code; they export no symbol then.
//!
//! # Theory of operation
//!
//! `sandbox_zygote` turns the process that calls it into a zygote. For every cell that it receives it forks a child
//! into that cell, and only in those children does the call return. A child goes through the same steps as a program
//! between fork and exec (`sandbox-sys/src/spawn.rs`). When the call returns, the child is locked and has seen nothing
//! of any request; the interpreter can prepare it further. `sandbox_wait` then reports that it is ready, waits for its
//! command, and returns that to the interpreter.
//!
//! The child has to be in the cell's PID namespace, and the cell's init has to be its parent: init reaps it, and its
//! status is the run's. So there are two forks. The zygote creates its next child in the cell's PID namespace; that
//! child borrows the zygote's memory, forks the real one, and ends, whereupon init adopts the real one.
//!
//! The children inherit the zygote's syscall filter and get no other. It allows `setns` only with a key above the
//! arguments (`sandbox-cell/src/syscalls/policy.rs`), which comes with each cell and is wiped from a child's memory
//! before the call returns in it.
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
pub mod heap;
#[cfg(target_arch = "x86_64")]
pub mod jvm;
#[cfg(target_arch = "x86_64")]
pub mod large_pages;
#[cfg(target_arch = "x86_64")]
pub mod node;
pub mod protocol;
#[cfg(target_arch = "x86_64")]
pub mod rehearsal;
#[cfg(target_arch = "x86_64")]
mod syscall;
#[cfg(target_arch = "x86_64")]
pub mod threads;

/// The name of the empty file beside the library that asks a zygote to use large pages for its code. That is memory which
/// its children share, but only a cgroup can tell so: elsewhere each of them would seem to use it.
pub const LARGE_PAGES_FILE: &str = "large-pages";

/// The content of the shared library that interpreters load to become zygotes; empty on architectures without one.
#[cfg(not(zygote_library))]
pub const ZYGOTE_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/zygote.so"));
