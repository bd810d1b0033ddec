//! How a run ended and what it used: the facts from which the executor derives a verdict.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use sandbox_base::limits::LimitKind;

/// The end of the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStatus {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Why a run was ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// A limit was exceeded. The caller counts output; keeper and init count everything else.
    Limit(LimitKind),
    /// The caller cancelled it.
    Cancelled,
}

impl StopReason {
    /// Whether the program first gets SIGTERM and time to exit by itself.
    #[must_use]
    pub fn is_graceful(self) -> bool {
        matches!(self, Self::Cancelled | Self::Limit(LimitKind::WallTime | LimitKind::CpuTime))
    }
}

/// Facts about a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the program ended.
    pub status: RunStatus,
    /// Why it was ended from outside, if it was.
    pub stopped: Option<StopReason>,
    /// Limits that the program ran into, with the usage at its end. The program may have handled it.
    pub reached: Vec<(LimitKind, u64)>,
    /// The resource usage.
    pub usage: Usage,
    /// How the cell itself ended.
    pub end: CellEnd,
}

/// The end of a cell, which decides where the facts about its command come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CellEnd {
    /// Normally: init has reported.
    #[default]
    Orderly,
    /// Init was killed with everything in the cell. The keeper reports the counters of the cgroup.
    InitDied,
    /// Init survives SIGKILL. The caller does not wait any longer; the keeper keeps trying to delete the cell.
    Lost,
}

/// The resource usage of a run, so far or in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Time since the program's start.
    pub wall: Duration,
    /// CPU time of all processes.
    pub cpu: Duration,
    /// The part of it in user code.
    pub cpu_user: Duration,
    /// The part of it in the kernel.
    pub cpu_system: Duration,
    /// Peak memory usage in bytes.
    pub memory_peak: u64,
    /// Peak number of processes and threads; 0 where the kernel does not report it.
    pub processes_peak: u64,
    /// Bytes read by system calls.
    pub io_read: u64,
    /// Bytes written by system calls.
    pub io_write: u64,
    /// Bytes in the writable directories.
    pub disk: u64,
}
