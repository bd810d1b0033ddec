//! The limits of a run. One table defines the name, unit, default and bounds of each.
//!
//! A [`Limits`] cannot hold a value outside those bounds, so later stages do not check again.

use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{self, UnitError};

mod table;

pub use table::{LimitInfo, TABLE};

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
    /// Bytes of the files in a result.
    OutputSize,
    /// Stack of a process's first thread, and of others that do not choose a size.
    Stack,
}

/// The unit of a limit.
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

/// The cap of a limit on a server: enough for ordinary requests, and not enough for one run to take the whole host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCap {
    /// A value in the unit of the limit.
    Fixed(u64),
    /// Half of the memory of the host or container, up to a number of bytes.
    HalfOfMemory {
        /// The most, in bytes.
        most: u64,
    },
    /// The CPUs of the host.
    AllCpus,
    /// The default, which the operator may have set.
    Default,
}

impl ServerCap {
    /// The value on a host with this much memory and so many CPUs; 0 for the default, which is the least cap.
    fn on_host(self, memory: u64, cpus: u64) -> u64 {
        match self {
            Self::Fixed(value) => value,
            Self::HalfOfMemory { most } => (memory / 2).clamp(256 << 20, most),
            Self::AllCpus => 1_000 * cpus.max(1),
            Self::Default => 0,
        }
    }
}

impl LimitKind {
    /// Its row of the [`TABLE`].
    #[must_use]
    pub fn info(self) -> &'static LimitInfo {
        &TABLE[self as usize]
    }

    /// The limit with this name, or older name, in requests.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|info| info.name == name || info.alias == Some(name)).map(|info| info.kind)
    }

    /// Reads a value in this limit's unit.
    pub fn parse(self, text: &str) -> Result<u64, LimitError> {
        let info = self.info();
        let unit_error = |error: UnitError| LimitError::Unit(error.about(info.title));
        let number_error = |expected| LimitError::Number { title: info.title, given: units::shorten(text), expected };
        match info.unit {
            Unit::Time => {
                let duration = units::parse_duration(text).map_err(unit_error)?;
                Ok(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
            }
            Unit::Bytes => units::parse_size(text).map_err(unit_error),
            Unit::Count => text.trim().parse().map_err(|error: ParseIntError| match error.kind() {
                IntErrorKind::PosOverflow => number_error("a smaller number"),
                _ => number_error("a whole number"),
            }),
            Unit::Cpus => {
                let error = || number_error("a number such as 0.5 or 2");
                let cpus: f64 = text.trim().parse().map_err(|_| error())?;
                if !cpus.is_finite() || !(0.0..=1e9).contains(&cpus) {
                    return Err(error());
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
                Ok((cpus * 1000.0).round() as u64)
            }
        }
    }

    /// Writes a value of this limit as users write it, in flags and requests.
    #[must_use]
    pub fn write(self, value: u64) -> String {
        match self.info().unit {
            Unit::Bytes => units::write_size(value),
            Unit::Time | Unit::Count | Unit::Cpus => self.format(value),
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

impl LimitInfo {
    /// The variables that set the default: the one to use, and an older one.
    pub fn default_variables(&self) -> impl Iterator<Item = String> {
        let older = self.alias.map(|alias| format!("SANDBOX_{}", alias.to_ascii_uppercase()));
        std::iter::once(self.default_variable.to_owned()).chain(older)
    }

    /// The variables that set the cap: the one to use, and an older one.
    pub fn cap_variables(&self) -> impl Iterator<Item = String> {
        let older = self.alias.map(|alias| format!("SANDBOX_MAX_{}", alias.to_ascii_uppercase()));
        std::iter::once(self.cap_variable.to_owned()).chain(older)
    }

    /// Its help as a flag.
    #[must_use]
    pub fn flag_help(&self) -> String {
        format!("Limit {} [default: {}]", self.help, self.default_text())
    }

    /// What stands for the flag's value in help.
    #[must_use]
    pub fn value_name(&self) -> &'static str {
        match self.unit {
            Unit::Time => "DURATION",
            Unit::Bytes => "SIZE",
            Unit::Cpus | Unit::Count => "NUMBER",
        }
    }

    /// Its default as users write it.
    #[must_use]
    pub fn default_text(&self) -> String {
        self.default.map_or_else(|| "unlimited".to_owned(), |value| self.kind.write(value))
    }

    /// The default cap of a server, in words.
    #[must_use]
    pub fn server_cap_text(&self) -> String {
        match self.server_cap {
            ServerCap::Fixed(value) => self.kind.write(value),
            ServerCap::HalfOfMemory { most } => {
                format!("half of the memory of the host or container, at most {}", self.kind.write(most))
            }
            ServerCap::AllCpus => "the number of CPUs".to_owned(),
            ServerCap::Default => format!("the default ({})", self.default_variable),
        }
    }
}

/// Why a limit was refused. The message names the limit, the value and the constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// It is not a duration or a size.
    #[error(transparent)]
    Unit(UnitError),
    /// It is not a number.
    #[error("invalid {title} \"{given}\": expected {expected}")]
    Number {
        /// The limit.
        title: &'static str,
        /// What was given.
        given: String,
        /// The form of the values that are accepted.
        expected: &'static str,
    },
    /// It is below the minimum.
    #[error("{title} {given} is below the minimum of {least}")]
    TooLittle {
        /// The limit.
        title: &'static str,
        /// What was given.
        given: String,
        /// The least accepted.
        least: String,
    },
    /// It is above the maximum.
    #[error("{title} {given} is above the maximum of {most}{}", .setting.map(|name| format!(" ({name})")).unwrap_or_default())]
    TooMuch {
        /// The limit.
        title: &'static str,
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
    /// The default caps of a server on a host with this much memory and so many CPUs.
    #[must_use]
    pub fn for_server(memory: u64, cpus: u64) -> Self {
        Self(TABLE.map(|info| info.server_cap.on_host(memory, cpus).min(info.most)))
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

    /// Lowers defaults that exceed the operator's caps, so that a cap also applies to requests without the limit. A limit
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
        // Only the CPU time has no default, and it has a separate getter.
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

    /// Bytes of all files in a result.
    #[must_use]
    pub fn output_size(&self) -> u64 {
        self.value(LimitKind::OutputSize)
    }

    /// Bytes of the stack with which a process starts.
    #[must_use]
    pub fn stack(&self) -> u64 {
        self.value(LimitKind::Stack)
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
        return Err(LimitError::TooLittle { title: info.title, given, least });
    }
    if value > most {
        let setting = (most < info.most).then_some(info.cap_variable);
        let (given, most) = (kind.format(value), kind.format(most));
        return Err(LimitError::TooMuch { title: info.title, given, most, setting });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000;

    #[test]
    fn written_values_are_read_back() {
        for info in TABLE {
            for value in info.default.into_iter().chain([info.least, info.most]) {
                assert_eq!(info.kind.parse(&info.kind.write(value)), Ok(value), "{}", info.name);
            }
        }
        assert_eq!(
            LimitKind::Memory.info().flag_help(),
            "Limit the total memory of all processes, without swap [default: 256m]"
        );
        assert_eq!(LimitKind::Disk.info().server_cap_text(), "half of the memory of the host or container, at most 2g");
    }

    #[test]
    fn the_table_is_in_order_and_consistent() {
        for (index, info) in TABLE.iter().enumerate() {
            assert_eq!(info.kind as usize, index, "{}", info.name);
            assert!(info.least <= info.most);
            if let Some(default) = info.default {
                assert!((info.least..=info.most).contains(&default), "{}", info.name);
            }
            assert_eq!(LimitKind::by_name(info.name), Some(info.kind));
            assert_eq!(info.flag, info.name.replace('_', "-"), "one name on every face");
            let variable = info.name.to_ascii_uppercase();
            assert_eq!(info.default_variable, format!("SANDBOX_{variable}"));
            assert_eq!(info.cap_variable, format!("SANDBOX_MAX_{variable}"));
            if let Some(alias) = info.alias {
                assert_eq!(LimitKind::by_name(alias), Some(info.kind));
            }
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
        assert_eq!(error.to_string(), "memory limit 128 MiB is above the maximum of 64 MiB (SANDBOX_MAX_MEMORY)");
        limits.clamp(&caps);
        assert_eq!(limits.memory(), 64 * MIB);
        caps.lower(LimitKind::CpuTime, SECOND).expect("within bounds");
        limits.clamp(&caps);
        assert_eq!(limits.cpu_time(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn errors_name_the_limit_the_value_and_the_constraint() {
        let parse = |kind: LimitKind, text| kind.parse(text).unwrap_err().to_string();
        assert_eq!(
            parse(LimitKind::Memory, "lots"),
            "invalid memory limit \"lots\": expected bytes (1048576) or a size such as 64k, 256m, 1g"
        );
        assert_eq!(parse(LimitKind::Processes, "1.5"), "invalid process limit \"1.5\": expected a whole number");
        assert_eq!(parse(LimitKind::Cpus, "two"), "invalid CPU limit \"two\": expected a number such as 0.5 or 2");
        let set = |kind, value| Limits::default().set(kind, value, &Caps::default()).unwrap_err().to_string();
        assert_eq!(set(LimitKind::Memory, 1024), "memory limit 1 KiB is below the minimum of 4 MiB");
        assert_eq!(set(LimitKind::WallTime, 172_800 * SECOND), "time limit 48h is above the maximum of 24h");
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
