//! A cell: one single-use Linux sandbox.
//!
//! ```no_run
//! use sandbox_cell::{CellSpec, Command, Keeper, Stdio, null};
//! use std::os::fd::AsFd;
//!
//! // First thing in `main`: the keeper is this same program, started once more.
//! sandbox_cell::keeper_main_if_asked(None);
//! let keeper = Keeper::start()?;
//! let mut cell = keeper.create(&CellSpec::new())?;
//! let (null, stdout) = (null()?, std::io::stdout());
//! let stdio = Stdio { stdin: null.as_fd(), stdout: stdout.as_fd(), stderr: null.as_fd() };
//! let outcome = cell.run(&Command::new(["echo", "hello"]), stdio, None)?;
//! println!("{:?} in {:?}", outcome.status, outcome.usage.wall);
//! cell.delete()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The process dance is explained where it happens: the keeper's loop in `keeper/serve.rs`, init's locking in
//! `init/mod.rs`, control groups in `cgroup/mod.rs`, the root file system in `rootfs/mod.rs`.

pub mod archive;
pub mod bridge;
mod cgroup;
mod confine_service;
mod descendants;
mod environment;
mod error;
#[cfg(fuzzing)]
pub mod fuzz;
mod identity;
mod init;
mod keeper;
mod landlock_rules;
mod layer;
pub mod outcome;
pub mod probe;
mod reduced;
mod rootfs;
mod spec;
mod stdio;
mod step;
mod syscalls;
mod unbounded_resources;
mod wire;

pub use confine_service::{ServiceFiles, confine_service};
pub use error::Failure;
pub use keeper::{Cell, GatewaySockets, Keeper, Parking, Ready, Start, Stdio, keeper_main_if_asked, null};
pub use layer::{Layer, LayerSet};
pub use outcome::{CellEnd, Outcome, RunStatus, StopReason, Usage};
pub use rootfs::own_files;
pub use sandbox_sys::signal::name as signal_name;
pub use spec::{
    CellSpec, Command, Gateway, HOME_DIR, MOST_PORTS, Mount, Network, PROXY_PORT, Role, Volume, WORK_DIR, WindowSize,
    ZygoteNamespaceId, base_environment,
};
pub use syscalls::filter_bytes;
pub use wire::Sources;
