//! The limits of a run: one table says for each what it is called, its unit, its default and its bounds.
//!
//! A [`Limits`] cannot hold a value outside those bounds, so nothing further down checks again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{self, UnitError};

/// Something a run can use too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Time from start to end.
    WallTime,
    /// CPU time of the whole process tree.
    CpuTime,
    /// Memory of the whole process tree, with what it keeps in its writable directories.
    Memory,
    /// Share of the machine's CPUs.
    Cpus,
    /// Processes and threads at one time.
    Processes,
    /// Bytes in the writable directories.
    Disk,
    /// Files and directories in the writable directories.
    Inodes,
    /// Bytes on standard output, and as many again on standard error.
    Output,
    /// Open files of one process.
    OpenFiles,
    /// Size of a single file.
    FileSize,
}

/// How a limit is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds; written as a duration.
    Time,
    /// Bytes; written as a size.
    Bytes,
    /// Thousandths of a CPU; written as a decimal number of CPUs.
    Cpus,
    /// A plain number.
    Count,
}

/// All there is to know about one limit.
#[derive(Debug, Clone, Copy)]
pub struct LimitInfo {
    /// Which limit.
    pub kind: LimitKind,
    /// Its name in requests and results.
    pub name: &'static str,
    /// The command-line flag, without dashes.
    pub flag: &'static str,
    /// The variable with which an operator sets the default.
    pub default_variable: &'static str,
    /// The variable with which an operator sets the most that a request may ask for.
    pub cap_variable: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// What applies if nobody says anything; `None` is no limit of its own.
    pub default: Option<u64>,
    /// The least that makes sense.
    pub least: u64,
    /// The most that is accepted.
    pub most: u64,
    /// One line for help and reference.
    pub help: &'static str,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Every limit, in the order of [`LimitKind`].
pub const TABLE: [LimitInfo; 10] = [
    LimitInfo {
        kind: LimitKind::WallTime,
        name: "wall_time",
        flag: "timeout",
        default_variable: "SANDBOX_TIMEOUT",
        cap_variable: "SANDBOX_MAX_TIMEOUT",
        unit: Unit::Time,
        default: Some(3 * SECOND),
        least: MILLISECOND,
        most: DAY,
        help: "time from start to end; then SIGTERM, a short grace, and the whole tree is killed",
    },
    LimitInfo {
        kind: LimitKind::CpuTime,
        name: "cpu_time",
        flag: "cpu-time",
        default_variable: "SANDBOX_CPU_TIME",
        cap_variable: "SANDBOX_MAX_CPU_TIME",
        unit: Unit::Time,
        default: None,
        least: MILLISECOND,
        most: DAY,
        help: "CPU time of all processes together",
    },
    LimitInfo {
        kind: LimitKind::Memory,
        name: "memory",
        flag: "memory",
        default_variable: "SANDBOX_MEMORY",
        cap_variable: "SANDBOX_MAX_MEMORY",
        unit: Unit::Bytes,
        default: Some(256 * MIB),
        least: 4 * MIB,
        most: TIB,
        help: "memory of all processes together, without swap",
    },
    LimitInfo {
        kind: LimitKind::Cpus,
        name: "cpus",
        flag: "cpus",
        default_variable: "SANDBOX_CPUS",
        cap_variable: "SANDBOX_MAX_CPUS",
        unit: Unit::Cpus,
        default: Some(1_000),
        least: 10,
        most: 1_024_000,
        help: "share of the machine's CPUs, such as 0.5 or 2",
    },
    LimitInfo {
        kind: LimitKind::Processes,
        name: "processes",
        flag: "pids",
        default_variable: "SANDBOX_PROCESSES",
        cap_variable: "SANDBOX_MAX_PROCESSES",
        unit: Unit::Count,
        default: Some(64),
        least: 1,
        most: 32_768,
        help: "processes and threads at one time",
    },
    LimitInfo {
        kind: LimitKind::Disk,
        name: "disk",
        flag: "disk",
        default_variable: "SANDBOX_DISK",
        cap_variable: "SANDBOX_MAX_DISK",
        unit: Unit::Bytes,
        default: Some(64 * MIB),
        least: 64 * KIB,
        most: TIB,
        help: "bytes in all writable directories together (they are kept in memory)",
    },
    LimitInfo {
        kind: LimitKind::Inodes,
        name: "inodes",
        flag: "inodes",
        default_variable: "SANDBOX_INODES",
        cap_variable: "SANDBOX_MAX_INODES",
        unit: Unit::Count,
        default: Some(16_384),
        least: 16,
        most: 10_000_000,
        help: "files and directories in all writable directories together",
    },
    LimitInfo {
        kind: LimitKind::Output,
        name: "output",
        flag: "output-limit",
        default_variable: "SANDBOX_OUTPUT",
        cap_variable: "SANDBOX_MAX_OUTPUT",
        unit: Unit::Bytes,
        default: Some(MIB),
        least: 1,
        most: 1024 * MIB,
        help: "bytes on standard output, and as many on standard error",
    },
    LimitInfo {
        kind: LimitKind::OpenFiles,
        name: "open_files",
        flag: "open-files",
        default_variable: "SANDBOX_OPEN_FILES",
        cap_variable: "SANDBOX_MAX_OPEN_FILES",
        unit: Unit::Count,
        default: Some(256),
        least: 8,
        most: 1_048_576,
        help: "open files of one process",
    },
    LimitInfo {
        kind: LimitKind::FileSize,
        name: "file_size",
        flag: "file-size",
        default_variable: "SANDBOX_FILE_SIZE",
        cap_variable: "SANDBOX_MAX_FILE_SIZE",
        unit: Unit::Bytes,
        default: Some(64 * MIB),
        least: 4 * KIB,
        most: TIB,
        help: "size of a single file",
    },
];

impl LimitKind {
    /// Its row of the [`TABLE`].
    #[must_use]
    pub fn info(self) -> &'static LimitInfo {
        &TABLE[self as usize]
    }

    /// The limit with this name in requests.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|info| info.name == name).map(|info| info.kind)
    }

    /// Reads a value in this limit's unit.
    pub fn parse(self, text: &str) -> Result<u64, LimitError> {
        let info = self.info();
        let unit_error = |source| LimitError::Unit { name: info.name, source };
        let number_error = || LimitError::Number { name: info.name, given: units::shorten(text) };
        match info.unit {
            Unit::Time => {
                let duration = units::parse_duration(text).map_err(unit_error)?;
                u64::try_from(duration.as_micros()).map_err(|_| number_error())
            }
            Unit::Bytes => units::parse_size(text).map_err(unit_error),
            Unit::Count => text.trim().parse().map_err(|_| number_error()),
            Unit::Cpus => {
                let cpus: f64 = text.trim().parse().map_err(|_| number_error())?;
                if !cpus.is_finite() || !(0.0..=1e9).contains(&cpus) {
                    return Err(number_error());
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
                Ok((cpus * 1000.0).round() as u64)
            }
        }
    }

    /// Writes a value of this limit as people read it.
    #[must_use]
    pub fn format(self, value: u64) -> String {
        match self.info().unit {
            Unit::Time => units::format_duration(Duration::from_micros(value)),
            Unit::Bytes => units::format_size(value),
            Unit::Count => value.to_string(),
            #[expect(clippy::cast_precision_loss, reason = "at most seven digits")]
            Unit::Cpus => format!("{}", value as f64 / 1000.0),
        }
    }
}

/// Why a limit was refused. The message says what was given and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// It is not a duration or a size.
    #[error("{name}: {source}")]
    Unit {
        /// The limit.
        name: &'static str,
        /// What is wrong with it.
        source: UnitError,
    },
    /// It is not a number.
    #[error("{name}: '{given}' is not a number that makes sense here")]
    Number {
        /// The limit.
        name: &'static str,
        /// What was given.
        given: String,
    },
    /// It is below the least.
    #[error("{name}: {given} is too little, the least is {least}")]
    TooLittle {
        /// The limit.
        name: &'static str,
        /// What was given.
        given: String,
        /// The least accepted.
        least: String,
    },
    /// It is above the most.
    #[error("{name}: {given} is above the maximum of {most}{}", .setting.map(|name| format!(" ({name})")).unwrap_or_default())]
    TooMuch {
        /// The limit.
        name: &'static str,
        /// What was given.
        given: String,
        /// The most accepted.
        most: String,
        /// The setting that allows no more, if the limit itself would.
        setting: Option<&'static str>,
    },
}

/// The most that requests may ask for, as set by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps([u64; TABLE.len()]);

impl Default for Caps {
    fn default() -> Self {
        Self(TABLE.map(|info| info.most))
    }
}

impl Caps {
    /// The caps of a server that says nothing else, on a host with this much memory and so many CPUs: enough for what
    /// people send, and not enough for one run to be the only one.
    #[must_use]
    pub fn for_server(memory: u64, cpus: u64) -> Self {
        let memory = (memory / 2).clamp(256 * MIB, 4096 * MIB);
        let disk = memory.min(2048 * MIB);
        let mut caps = Self::default();
        for (kind, most) in [
            (LimitKind::WallTime, 300 * SECOND),
            (LimitKind::CpuTime, 3600 * SECOND),
            (LimitKind::Memory, memory),
            (LimitKind::Cpus, 1_000 * cpus.max(1)),
            (LimitKind::Processes, 1_024),
            // Writable directories are in memory.
            (LimitKind::Disk, disk),
            (LimitKind::Inodes, 262_144),
            // Both streams, with every byte escaped, fit the memory that the server has for answers.
            (LimitKind::Output, 16 * MIB),
            (LimitKind::OpenFiles, 4_096),
            (LimitKind::FileSize, disk),
        ] {
            caps.0[kind as usize] = most.min(kind.info().most);
        }
        caps
    }

    /// Lowers the most for one limit.
    pub fn lower(&mut self, kind: LimitKind, most: u64) -> Result<(), LimitError> {
        check(kind, most, kind.info().most)?;
        self.0[kind as usize] = most;
        Ok(())
    }

    /// The most for one limit.
    #[must_use]
    pub fn most(&self, kind: LimitKind) -> u64 {
        self.0[kind as usize]
    }
}

/// The limits of a run, each within its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits([Option<u64>; TABLE.len()]);

impl Default for Limits {
    fn default() -> Self {
        Self(TABLE.map(|info| info.default))
    }
}

impl Limits {
    /// Sets one limit, which must lie between the least that makes sense and the operator's cap.
    pub fn set(&mut self, kind: LimitKind, value: u64, caps: &Caps) -> Result<(), LimitError> {
        check(kind, value, caps.most(kind))?;
        self.0[kind as usize] = Some(value);
        Ok(())
    }

    /// Lowers defaults that exceed the operator's caps, so that a cap also holds for who asks for nothing. A limit
    /// that has no default gets the cap if the operator set one.
    pub fn clamp(&mut self, caps: &Caps) {
        for info in TABLE {
            let cap = caps.most(info.kind);
            let slot = &mut self.0[info.kind as usize];
            match slot {
                Some(value) => *value = (*value).min(cap),
                None if cap < info.most => *slot = Some(cap),
                None => {}
            }
        }
    }

    /// The value of a limit in its unit, if it has one.
    #[must_use]
    pub fn get(&self, kind: LimitKind) -> Option<u64> {
        self.0[kind as usize]
    }

    fn value(&self, kind: LimitKind) -> u64 {
        // Only the CPU time has no default, and it has a getter of its own.
        self.get(kind).unwrap_or(kind.info().most)
    }

    /// Time from start to end.
    #[must_use]
    pub fn wall_time(&self) -> Duration {
        Duration::from_micros(self.value(LimitKind::WallTime))
    }

    /// CPU time of the tree, if it is limited on its own.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.get(LimitKind::CpuTime).map(Duration::from_micros)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.value(LimitKind::Memory)
    }

    /// Thousandths of a CPU.
    #[must_use]
    pub fn milli_cpus(&self) -> u64 {
        self.value(LimitKind::Cpus)
    }

    /// Processes and threads.
    #[must_use]
    pub fn processes(&self) -> u64 {
        self.value(LimitKind::Processes)
    }

    /// Bytes in writable directories.
    #[must_use]
    pub fn disk(&self) -> u64 {
        self.value(LimitKind::Disk)
    }

    /// Files in writable directories.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.value(LimitKind::Inodes)
    }

    /// Bytes per output stream.
    #[must_use]
    pub fn output(&self) -> u64 {
        self.value(LimitKind::Output)
    }

    /// Open files per process.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        self.value(LimitKind::OpenFiles)
    }

    /// Bytes per file.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.value(LimitKind::FileSize)
    }

    /// Whether every value lies within the table's bounds. A value that came over a socket is checked with this.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        TABLE.iter().all(|info| match self.get(info.kind) {
            Some(value) => (info.least..=info.most).contains(&value),
            None => info.default.is_none(),
        })
    }
}

fn check(kind: LimitKind, value: u64, most: u64) -> Result<(), LimitError> {
    let info = kind.info();
    if value < info.least {
        let (given, least) = (kind.format(value), kind.format(info.least));
        return Err(LimitError::TooLittle { name: info.name, given, least });
    }
    if value > most {
        let setting = (most < info.most).then_some(info.cap_variable);
        let (given, most) = (kind.format(value), kind.format(most));
        return Err(LimitError::TooMuch { name: info.name, given, most, setting });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_table_is_in_order_and_consistent() {
        for (index, info) in TABLE.iter().enumerate() {
            assert_eq!(info.kind as usize, index, "{}", info.name);
            assert!(info.least <= info.most);
            if let Some(default) = info.default {
                assert!((info.least..=info.most).contains(&default), "{}", info.name);
            }
            assert_eq!(LimitKind::by_name(info.name), Some(info.kind));
        }
        assert!(Limits::default().is_valid());
    }

    #[test]
    fn zero_and_huge_are_refused_for_every_limit() {
        for info in TABLE {
            let mut limits = Limits::default();
            assert!(limits.set(info.kind, 0, &Caps::default()).is_err(), "{} zero", info.name);
            assert!(limits.set(info.kind, u64::MAX, &Caps::default()).is_err(), "{} huge", info.name);
            assert_eq!(limits, Limits::default());
        }
    }

    #[test]
    fn an_operators_cap_holds_for_requests_and_defaults() {
        let mut caps = Caps::default();
        caps.lower(LimitKind::Memory, 64 * MIB).expect("within bounds");
        let mut limits = Limits::default();
        let error = limits.set(LimitKind::Memory, 128 * MIB, &caps).unwrap_err();
        assert_eq!(error.to_string(), "memory: 128 MiB is above the maximum of 64 MiB (SANDBOX_MAX_MEMORY)");
        limits.clamp(&caps);
        assert_eq!(limits.memory(), 64 * MIB);
        caps.lower(LimitKind::CpuTime, SECOND).expect("within bounds");
        limits.clamp(&caps);
        assert_eq!(limits.cpu_time(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn parses_in_its_own_unit() {
        assert_eq!(LimitKind::WallTime.parse("1.5s"), Ok(1_500_000));
        assert_eq!(LimitKind::Cpus.parse("0.5"), Ok(500));
        assert_eq!(LimitKind::Processes.parse("64"), Ok(64));
        for bad in ["", "NaN", "inf", "-1", "1e400", "x"] {
            for info in TABLE {
                assert!(info.kind.parse(bad).is_err(), "{} {bad:?}", info.name);
            }
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            for info in TABLE {
                let _ = info.kind.parse(&text);
            }
        }
    }
}
