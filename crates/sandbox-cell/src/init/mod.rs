//! Init: the small trusted program that is PID 1 in a cell.
//!
//! # Theory of operation
//!
//! Init is a fork of the keeper, not a separate program: nothing has to be installed or executed, and nothing can be
//! swapped under it. It starts in new namespaces with the keeper's privileges over them, and gives these up step by
//! step ([`lock`]): it builds the root, takes ids that mean nothing outside, drops every capability except the few it
//! needs inside its user namespace, and enters the syscall filter. Only then does it report that it is ready, and only
//! then does a byte of a request reach it.
//!
//! From then on ([`serve`]) it does five things: create the input files, start a program, reap children, kill the
//! remaining processes, and send the output files. It is the only process in the cell that can communicate with the
//! outside, over one socket to the keeper. If that socket closes init exits, which ends everything in its PID
//! namespace.

mod files;
mod kill;
mod launch;
mod lock;
mod network;
mod park;
mod reduced;
mod serve;
mod terminal;
mod watch;
mod writable;

pub(crate) use self::lock::set_host_name;

use std::os::fd::OwnedFd;

use rustix::net::SendFlags;
use sandbox_sys::process::SingleThreaded;
use sandbox_sys::seccomp::Instruction;
use serde::{Deserialize, Serialize};

use crate::environment::{CellEnvironment, ZygoteParts};
use crate::layer::{Layer, LayerSet};
use crate::rootfs;
use crate::spec::CellSpec;
use crate::wire::{self, FromInit};

/// The parameters of a new init, inherited through the fork.
pub(crate) struct InitParams<'a> {
    pub(crate) alone: SingleThreaded,
    /// The connection to the keeper.
    pub(crate) socket: &'a OwnedFd,
    /// The specification of the cell.
    pub(crate) spec: &'a CellSpec,
    /// The environment of the cell.
    pub(crate) environment: CellEnvironment<'a, ZygoteParts<'a>>,
    /// The owner of the writable directories, as the keeper numbers ids.
    pub(crate) owner: (u32, u32),
    /// Layers that the cell does not get.
    pub(crate) without: LayerSet,
    /// The ids that init takes where it creates no user namespace, as the keeper numbers ids.
    pub(crate) init_ids: Option<(u32, u32)>,
    /// The ids that the program takes, as the cell numbers ids, if they differ from init's.
    pub(crate) program_ids: Option<(u32, u32)>,
    /// The compiled syscall filters.
    pub(crate) filters: &'a Filters,
    /// What init has to enforce because no cgroup does.
    pub(crate) duties: Duties,
}

impl InitParams<'_> {
    /// Whether the cell gets a layer.
    fn has(&self, layer: Layer) -> bool {
        !self.without.contains(layer)
    }
}

/// The syscall filters that a cell may get; the choice is made when its root is built.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// The usual filter.
    pub(crate) usual: Vec<Instruction>,
    /// A filter without named Unix sockets, for a cell whose mounts contain sockets of processes outside.
    pub(crate) no_named_sockets: Vec<Instruction>,
}

impl Filters {
    fn choose(&self, sockets: rootfs::SocketsShown) -> &[Instruction] {
        match sockets {
            rootfs::SocketsShown::None => &self.usual,
            rootfs::SocketsShown::Some => &self.no_named_sockets,
        }
    }
}

/// The limits that no cgroup enforces, so that init does.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Duties {
    /// Sample the memory usage.
    pub(crate) memory: bool,
    /// Sample the CPU time.
    pub(crate) cpu_time: bool,
    /// Limit the number of processes.
    pub(crate) processes: ProcessLimit,
}

/// The limit of processes without a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProcessLimit {
    /// Not by init.
    Elsewhere,
    /// By a resource limit of the user, who has no other processes.
    ByUser,
    /// By counting them.
    ByCounting,
}

impl Duties {
    fn include_watching(self) -> bool {
        self.memory || self.cpu_time || self.processes == ProcessLimit::ByCounting
    }
}

/// The main function of init.
pub(crate) fn main(params: &InitParams<'_>) {
    let locked = match params.environment {
        CellEnvironment::Namespaces { .. } | CellEnvironment::ZygoteNamespace(_) => lock::lock(params),
        CellEnvironment::Reduced(layout) => reduced::lock(params, layout),
    };
    match locked {
        Ok(locked) => serve::serve(params, locked),
        Err(error) => {
            let _ = wire::send(params.socket, &FromInit::Failed(error), &[], SendFlags::empty());
        }
    }
}
