//! Every limit, in one table: flags, variables, names in requests, defaults, bounds, help and documents come from it.
//!
//! A limit has one name on every face: `open_files` is the flag `--open-files`, and the variables `SANDBOX_OPEN_FILES` and
//! `SANDBOX_MAX_OPEN_FILES`. Some have an older name, which is accepted wherever the name is.

use super::{LimitKind, ServerCap, Unit};

/// All there is to know about one limit.
#[derive(Debug, Clone, Copy)]
pub struct LimitInfo {
    /// Which limit.
    pub kind: LimitKind,
    /// Its name in requests.
    pub name: &'static str,
    /// Its older name: in requests, and in variables like the name.
    pub alias: Option<&'static str>,
    /// The older name of the flag.
    pub flag_alias: Option<&'static str>,
    /// Its name in sentences.
    pub title: &'static str,
    /// The command-line flag, without dashes.
    pub flag: &'static str,
    /// The flag's short form.
    pub short: Option<char>,
    /// The variable with which an operator sets the default.
    pub default_variable: &'static str,
    /// The variable with which an operator sets the most that a request may ask for.
    pub cap_variable: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// What applies if nothing else is set; `None` is unlimited.
    pub default: Option<u64>,
    /// The least that is accepted.
    pub least: u64,
    /// The most that is accepted.
    pub most: u64,
    /// What a server caps it at, unless the operator sets another cap.
    pub server_cap: ServerCap,
    /// The limited resource, as the rest of a sentence that starts with "Limit".
    pub help: &'static str,
    /// More about it, for the reference; may be empty.
    pub note: &'static str,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Every limit, in the order of [`LimitKind`].
pub const TABLE: [LimitInfo; 12] = [
    LimitInfo {
        kind: LimitKind::WallTime,
        name: "timeout",
        alias: Some("wall_time"),
        flag_alias: Some("wall-time"),
        title: "time limit",
        flag: "timeout",
        short: Some('t'),
        default_variable: "SANDBOX_TIMEOUT",
        cap_variable: "SANDBOX_MAX_TIMEOUT",
        unit: Unit::Time,
        default: Some(3 * SECOND),
        least: MILLISECOND,
        most: DAY,
        server_cap: ServerCap::Fixed(300 * SECOND),
        help: "the time from start to end",
        note: "SIGTERM at the end, SIGKILL to all processes 200 ms later",
    },
    LimitInfo {
        kind: LimitKind::CpuTime,
        name: "cpu_time",
        alias: None,
        flag_alias: None,
        title: "CPU time limit",
        flag: "cpu-time",
        short: None,
        default_variable: "SANDBOX_CPU_TIME",
        cap_variable: "SANDBOX_MAX_CPU_TIME",
        unit: Unit::Time,
        default: None,
        least: MILLISECOND,
        most: DAY,
        server_cap: ServerCap::Fixed(3_600 * SECOND),
        help: "total CPU time",
        note: "of all processes together",
    },
    LimitInfo {
        kind: LimitKind::Memory,
        name: "memory",
        alias: None,
        flag_alias: None,
        title: "memory limit",
        flag: "memory",
        short: Some('m'),
        default_variable: "SANDBOX_MEMORY",
        cap_variable: "SANDBOX_MAX_MEMORY",
        unit: Unit::Bytes,
        default: Some(256 * MIB),
        least: 4 * MIB,
        most: TIB,
        server_cap: ServerCap::HalfOfMemory { most: 4 * GIB },
        help: "the total memory of all processes, without swap",
        note: "",
    },
    LimitInfo {
        kind: LimitKind::Cpus,
        name: "cpus",
        alias: None,
        flag_alias: None,
        title: "CPU limit",
        flag: "cpus",
        short: None,
        default_variable: "SANDBOX_CPUS",
        cap_variable: "SANDBOX_MAX_CPUS",
        unit: Unit::Cpus,
        default: Some(1_000),
        least: 10,
        most: 1_024_000,
        server_cap: ServerCap::AllCpus,
        help: "the number of CPUs, such as 0.5 or 2",
        note: "",
    },
    LimitInfo {
        kind: LimitKind::Processes,
        name: "processes",
        alias: Some("pids"),
        flag_alias: Some("pids"),
        title: "process limit",
        flag: "processes",
        short: None,
        default_variable: "SANDBOX_PROCESSES",
        cap_variable: "SANDBOX_MAX_PROCESSES",
        unit: Unit::Count,
        default: Some(64),
        least: 1,
        most: 32_768,
        server_cap: ServerCap::Fixed(1_024),
        help: "the number of processes and threads",
        note: "at one time",
    },
    LimitInfo {
        kind: LimitKind::Disk,
        name: "disk",
        alias: None,
        flag_alias: None,
        title: "disk limit",
        flag: "disk",
        short: None,
        default_variable: "SANDBOX_DISK",
        cap_variable: "SANDBOX_MAX_DISK",
        unit: Unit::Bytes,
        default: Some(64 * MIB),
        least: 64 * KIB,
        most: TIB,
        server_cap: ServerCap::HalfOfMemory { most: 2 * GIB },
        help: "the total size of all writable directories",
        note: "they are in memory; the cap is also that of all named volumes of a request together",
    },
    LimitInfo {
        kind: LimitKind::Inodes,
        name: "inodes",
        alias: None,
        flag_alias: None,
        title: "inode limit",
        flag: "inodes",
        short: None,
        default_variable: "SANDBOX_INODES",
        cap_variable: "SANDBOX_MAX_INODES",
        unit: Unit::Count,
        default: Some(16_384),
        least: 16,
        most: 10_000_000,
        server_cap: ServerCap::Fixed(262_144),
        help: "the number of files in all writable directories",
        note: "directories count too",
    },
    LimitInfo {
        kind: LimitKind::Output,
        name: "output_limit",
        alias: Some("output"),
        // Not `--output`, which would be taken for a file.
        flag_alias: None,
        title: "output limit",
        flag: "output-limit",
        short: None,
        default_variable: "SANDBOX_OUTPUT_LIMIT",
        cap_variable: "SANDBOX_MAX_OUTPUT_LIMIT",
        unit: Unit::Bytes,
        default: Some(MIB),
        least: 1,
        most: GIB,
        // Both streams, with every byte escaped, fit the memory that a server has for responses.
        server_cap: ServerCap::Fixed(16 * MIB),
        help: "the size of standard output, and of standard error",
        note: "",
    },
    LimitInfo {
        kind: LimitKind::OpenFiles,
        name: "open_files",
        alias: None,
        flag_alias: None,
        title: "open file limit",
        flag: "open-files",
        short: None,
        default_variable: "SANDBOX_OPEN_FILES",
        cap_variable: "SANDBOX_MAX_OPEN_FILES",
        unit: Unit::Count,
        default: Some(256),
        least: 8,
        most: 1_048_576,
        server_cap: ServerCap::Fixed(4_096),
        help: "the open files of each process",
        note: "",
    },
    LimitInfo {
        kind: LimitKind::FileSize,
        name: "file_size",
        alias: None,
        flag_alias: None,
        title: "file size limit",
        flag: "file-size",
        short: None,
        default_variable: "SANDBOX_FILE_SIZE",
        cap_variable: "SANDBOX_MAX_FILE_SIZE",
        unit: Unit::Bytes,
        default: Some(64 * MIB),
        least: 4 * KIB,
        most: TIB,
        server_cap: ServerCap::HalfOfMemory { most: 2 * GIB },
        help: "the size of each file",
        note: "",
    },
    LimitInfo {
        kind: LimitKind::OutputSize,
        name: "output_size",
        alias: Some("files_size"),
        flag_alias: None,
        title: "output files limit",
        flag: "output-size",
        short: None,
        default_variable: "SANDBOX_OUTPUT_SIZE",
        cap_variable: "SANDBOX_MAX_OUTPUT_SIZE",
        unit: Unit::Bytes,
        default: Some(16 * MIB),
        least: 1,
        most: TIB,
        // Results are in memory. An operator who has set less or more has set it for all requests.
        server_cap: ServerCap::Default,
        help: "the total size of the files in a result",
        note: "files beyond it are left out",
    },
    LimitInfo {
        kind: LimitKind::Stack,
        name: "stack",
        alias: None,
        flag_alias: None,
        title: "stack limit",
        flag: "stack",
        short: None,
        default_variable: "SANDBOX_STACK",
        cap_variable: "SANDBOX_MAX_STACK",
        unit: Unit::Bytes,
        default: Some(8 * MIB),
        least: 64 * KIB,
        most: TIB,
        server_cap: ServerCap::HalfOfMemory { most: 4 * GIB },
        help: "the stack with which each process starts",
        note: "a program can raise it for itself; stacks count against the memory limit; another value than the default starts cold",
    },
];
