//! Init: the small trusted program that is PID 1 in a cell.
//!
//! # Theory of operation
//!
//! Init is a fork of the keeper, not a program of its own: nothing has to be installed or executed, and nothing can
//! be swapped under it. It is born in new namespaces with the keeper's power over them, and gives that power away
//! step by step ([`lock`]): it builds the root, takes ids that mean nothing outside, drops every capability but the
//! few it needs inside its own user namespace, and enters the syscall filter. Only then does it say that it is ready,
//! and only then does a byte of a request reach it.
//!
//! From then on ([`serve`]) it does five things: make the input files, start a program, reap what ends, kill what is
//! left, and send the output files out. It is the only process in the cell that can talk to the outside, over one socket to the keeper, and if
//! that socket closes it ends, which ends everything in its PID namespace.

mod files;
mod kill;
mod launch;
mod lock;
mod network;
mod park;
mod reduced;
mod serve;
mod watch;
mod writable;

use std::os::fd::OwnedFd;

use rustix::net::SendFlags;
use sandbox_sys::process::SingleThreaded;
use sandbox_sys::seccomp::Instruction;
use serde::{Deserialize, Serialize};

use crate::environment::CellEnvironment;
use crate::layer::{Layer, LayerSet};
use crate::rootfs;
use crate::spec::CellSpec;
use crate::wire::{self, FromInit};

/// What a new init is given. It inherits these by being forked.
pub(crate) struct InitParams<'a> {
    pub(crate) alone: SingleThreaded,
    /// Its connection to the keeper.
    pub(crate) socket: &'a OwnedFd,
    /// What the cell should be.
    pub(crate) spec: &'a CellSpec,
    /// What it is made in. In a zygote's namespaces init gives the cell's user namespace its ids itself, from this map.
    pub(crate) environment: CellEnvironment<'a, &'a str>,
    /// The owner of the writable directories, in the keeper's numbering.
    pub(crate) owner: (u32, u32),
    /// Layers that the cell does not get.
    pub(crate) without: LayerSet,
    /// The ids that init takes where it makes no user namespace, in the keeper's numbering.
    pub(crate) init_ids: Option<(u32, u32)>,
    /// The ids that the program takes, in the cell's numbering, if they differ from init's.
    pub(crate) program_ids: Option<(u32, u32)>,
    /// The compiled syscall filters.
    pub(crate) filters: &'a Filters,
    /// What init must do because no cgroup does.
    pub(crate) duties: Duties,
}

impl InitParams<'_> {
    /// Whether the cell gets a layer.
    fn has(&self, layer: Layer) -> bool {
        !self.without.contains(layer)
    }
}

/// The syscall filters that a cell may get; which one shows when its root is built.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// What programs usually get.
    pub(crate) usual: Vec<Instruction>,
    /// Without named Unix sockets, for a cell that shows some that belong to processes outside.
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

/// What no cgroup limits and init therefore does.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Duties {
    /// Watch the memory.
    pub(crate) memory: bool,
    /// Watch the CPU time.
    pub(crate) cpu_time: bool,
    /// Limit processes.
    pub(crate) processes: ProcessLimit,
}

/// How processes are limited where no cgroup does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProcessLimit {
    /// A cgroup does it, or nobody.
    Elsewhere,
    /// By a resource limit of the user, who has no others.
    ByUser,
    /// By counting them.
    ByCounting,
}

impl Duties {
    fn include_watching(self) -> bool {
        self.memory || self.cpu_time || self.processes == ProcessLimit::ByCounting
    }
}

/// The life of an init.
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
