//! What another crate needs to make cells in its own way.
//!
//! To its caller a cell is a connection. For a keeper that was told to use bridges ([`Keeper::use_bridges`](crate::Keeper::use_bridges)),
//! the process at the other end is a bridge: a fork of the keeper that runs the [`BridgeMain`] of the program and answers what the
//! keeper would answer. The keeper itself knows nothing of other backends.

use std::os::fd::OwnedFd;

pub use crate::cgroup::Counters;
pub use crate::rootfs::system_paths;
pub use crate::syscalls::{EntryKey, Exception, Policy, Rule, Sockets, SyscallAction, Test, policy};
pub use crate::wire::{FromCell, MAX_MESSAGE, Received, RunParams, ToCell, read_command, receive, send};

use crate::spec::CellSpec;

/// The parameters of a bridge.
#[derive(Debug)]
pub struct BridgeParams<'a> {
    /// What the caller told the keeper about its bridges. The keeper does not read it.
    pub settings: &'a [u8],
    /// What the cell should be.
    pub spec: &'a CellSpec,
    /// The connection to the cell's caller.
    pub caller: &'a OwnedFd,
    /// User and group of the cell's root and of its programs, which are its own as long as the bridge lives. None where the
    /// keeper has no ids to give.
    pub ids: Option<((u32, u32), (u32, u32))>,
}

/// A bridge's main function. It serves the cell until its caller closes the connection.
pub type BridgeMain = fn(&BridgeParams<'_>);
