//! How a run ended and what it used: the facts, from which the executor draws a verdict.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use sandbox_base::limits::LimitKind;

/// How the program itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStatus {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Why somebody asked for a run to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// It used too much of something. Output is counted by the caller, everything else by keeper and init.
    Limit(LimitKind),
    /// The caller wants it to end.
    Cancelled,
}

impl StopReason {
    /// Whether the program first gets a signal and a moment to end by itself.
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
    /// Limits that stood in its way, with what was used when it ended. A program may well have coped.
    pub reached: Vec<(LimitKind, u64)>,
    /// What it used.
    pub usage: Usage,
    /// How the cell itself ended.
    pub end: CellEnd,
}

/// How a cell ended, and so where the facts about its command come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CellEnd {
    /// As it should: init has reported.
    #[default]
    Orderly,
    /// Init was killed and everything with it. The keeper tells what the control group has counted.
    InitDied,
    /// Init neither answers nor dies. The caller has waited long enough; the keeper goes on trying to delete the cell.
    Lost,
}

/// What a run used, up to now or in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Time from the program's start.
    pub wall: Duration,
    /// CPU time of all processes.
    pub cpu: Duration,
    /// The part of it in user code.
    pub cpu_user: Duration,
    /// The part of it in the kernel.
    pub cpu_system: Duration,
    /// The most memory at one time, in bytes.
    pub memory_peak: u64,
    /// The most processes and threads at one time; 0 where the kernel does not say.
    pub processes_peak: u64,
    /// Bytes read by system calls.
    pub io_read: u64,
    /// Bytes written by system calls.
    pub io_write: u64,
    /// Bytes in the writable directories.
    pub disk: u64,
}
