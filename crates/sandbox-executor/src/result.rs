//! The result of a run: one type for the JSON of the command line, HTTP responses and stored jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use sandbox_base::LimitKind;
use sandbox_cell::archive::Omission;
use sandbox_cell::{LayerSet, Usage};
use sandbox_network::NetworkUse;
use sandbox_pool::StartKind;
use serde::{Deserialize, Serialize};

/// Whether the run succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The program exited with code 0.
    Success,
    /// Any other outcome; the verdict names it.
    Error,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The program exited with code 0.
    Ok,
    /// The program exited with another code or was ended by a signal.
    RuntimeError,
    /// Compilation failed, or the compiler reached a limit.
    CompileError,
    /// The packages could not be installed.
    PackageError,
    /// The time limit or the CPU time limit was reached.
    Timeout,
    /// The memory limit was reached.
    MemoryLimit,
    /// The output limit of standard output or standard error was reached.
    OutputLimit,
    /// The disk, inode or file size limit was reached.
    DiskLimit,
    /// The process limit was reached.
    ProcessLimit,
    /// The caller cancelled the run.
    Cancelled,
    /// The sandbox failed, not the program.
    InternalError,
    /// The request was refused and nothing ran. Only the command line uses it; HTTP responds with a problem.
    InvalidRequest,
}

impl Verdict {
    /// The verdict on a program that reached this limit.
    #[must_use]
    pub fn of_limit(kind: LimitKind) -> Self {
        match kind {
            LimitKind::WallTime | LimitKind::CpuTime => Self::Timeout,
            LimitKind::Memory => Self::MemoryLimit,
            LimitKind::Output => Self::OutputLimit,
            LimitKind::Disk | LimitKind::Inodes | LimitKind::FileSize => Self::DiskLimit,
            LimitKind::Processes => Self::ProcessLimit,
            LimitKind::OpenFiles | LimitKind::Cpus | LimitKind::OutputSize | LimitKind::Stack => Self::RuntimeError,
        }
    }

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::RuntimeError => "runtime_error",
            Self::CompileError => "compile_error",
            Self::PackageError => "package_error",
            Self::Timeout => "timeout",
            Self::MemoryLimit => "memory_limit",
            Self::OutputLimit => "output_limit",
            Self::DiskLimit => "disk_limit",
            Self::ProcessLimit => "process_limit",
            Self::Cancelled => "cancelled",
            Self::InternalError => "internal_error",
            Self::InvalidRequest => "invalid_request",
        }
    }
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitHit {
    /// The name of the limit.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: LimitKind,
    /// The value of the limit: seconds, bytes or a count.
    #[serde(serialize_with = "number")]
    pub cap: f64,
    /// The amount used, in the same unit.
    #[serde(serialize_with = "number")]
    pub used: f64,
}

/// Writes a whole number as one.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn number<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: whole and in range")]
    if value.fract() == 0.0 && (0.0..9e15).contains(value) {
        serializer.serialize_u64(*value as u64)
    } else {
        serializer.serialize_f64(*value)
    }
}

/// The duration of each phase, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Phases {
    /// Waiting for a slot.
    pub queue: f64,
    /// Preparing the toolchain, or waiting until another run has prepared it. Only in the first runs on a host.
    #[serde(skip_serializing_if = "is_no_time")]
    pub toolchain: f64,
    /// Installing packages.
    pub packages: f64,
    /// Creating the cell.
    pub prepare: f64,
    /// Compiling the program.
    pub compile: f64,
    /// Running the program.
    pub run: f64,
    /// Collecting the files of the result.
    pub collect: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_no_time(seconds: &f64) -> bool {
    *seconds <= 0.0
}

impl Phases {
    /// The parts that took time, in their order, each with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("queue", self.queue),
            ("toolchain", self.toolchain),
            ("packages", self.packages),
            ("prepare", self.prepare),
            ("compile", self.compile),
            ("run", self.run),
            ("collect", self.collect),
        ];
        all.into_iter().filter(|(_, seconds)| *seconds > 0.0)
    }
}

/// The resource usage of a run, in seconds and bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Metrics {
    /// Time from the start of the program to its end.
    pub wall_time: f64,
    /// CPU time of all processes.
    pub cpu_time: f64,
    /// CPU time in user mode.
    pub cpu_user: f64,
    /// CPU time in kernel mode.
    pub cpu_system: f64,
    /// Peak memory usage.
    pub memory_peak: u64,
    /// Peak number of processes and threads.
    pub processes_peak: u64,
    /// Bytes read by system calls.
    pub io_read: u64,
    /// Bytes written by system calls.
    pub io_write: u64,
    /// The duration of each phase.
    pub phases: Phases,
    /// How the cell of the program was started.
    pub start: StartKind,
    /// Network usage, if the program had access beyond its loopback interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkUse>,
}

impl Metrics {
    pub(crate) fn new(usage: &Usage, phases: Phases) -> Self {
        Self {
            wall_time: seconds(usage.wall),
            cpu_time: seconds(usage.cpu),
            cpu_user: seconds(usage.cpu_user),
            cpu_system: seconds(usage.cpu_system),
            memory_peak: usage.memory_peak,
            processes_peak: usage.processes_peak,
            io_read: usage.io_read,
            io_write: usage.io_write,
            phases,
            start: StartKind::Cold,
            network: None,
        }
    }
}

/// Seconds with microseconds, which is as exact as the clocks behind them.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct RunResult {
    /// Whether the run succeeded.
    pub status: Status,
    /// Why the run ended.
    pub verdict: Verdict,
    /// The same as `status`, as a boolean.
    pub success: bool,
    /// The language; none for a run of a command.
    pub language: Option<String>,
    /// The version of the toolchain.
    pub version: Option<String>,
    /// Standard output as text.
    pub stdout: String,
    /// Standard error as text.
    pub stderr: String,
    /// The exact bytes of standard output, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// The exact bytes of standard error, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// Whether standard output was truncated.
    pub stdout_truncated: bool,
    /// Whether standard error was truncated.
    pub stderr_truncated: bool,
    /// The exit code; none if a signal ended the program.
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    pub signal: Option<String>,
    /// The value of the program's last expression, or standard output without its last newline.
    pub result: Option<String>,
    /// Why the run failed, in one line.
    pub error: Option<String>,
    /// What to change so that the next run succeeds, in one line. It is advice, and may rest on the program's own words.
    pub hint: Option<String>,
    /// The same as `metrics.wall_time`.
    pub execution_time: f64,
    /// The same as `metrics.memory_peak`.
    pub memory_used: u64,
    /// The limit that was reached, if one was.
    pub limit: Option<LimitHit>,
    /// The result of the compilation, for compiled languages.
    pub compile: Option<CompileResult>,
    /// Resource usage.
    pub metrics: Metrics,
    /// The isolation layers that were in force.
    #[serde(serialize_with = "layer_names", deserialize_with = "layers_named")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub isolation: LayerSet,
    /// Files that the program created or changed, by their path in the working directory.
    pub files: BTreeMap<String, OutputFile>,
    /// Files in the working directory that were not returned; at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files_omitted: Vec<OmittedFile>,
    /// The number of files that were not returned.
    #[serde(skip_serializing_if = "is_zero")]
    pub files_omitted_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The result of a compilation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompileResult {
    /// Whether the compilation succeeded.
    pub success: bool,
    /// Whether the program came from the cache.
    pub cached: bool,
    /// How the cell of the compiler was started. None if the program came from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartKind>,
    /// The exit code of the compiler.
    pub exit_code: Option<i32>,
    /// Standard output of the compiler.
    pub stdout: String,
    /// Standard error of the compiler.
    pub stderr: String,
    /// The duration in seconds.
    pub time: f64,
    /// Peak memory usage in bytes.
    pub memory_peak: u64,
}

/// A file that was not returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OmittedFile {
    /// The path in the working directory.
    pub path: String,
    /// Why it was not returned.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub why: Omission,
}

/// The encoding of the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FileEncoding {
    /// Text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Base64, for bytes that are not UTF-8.
    #[serde(rename = "base64")]
    Base64,
}

/// A file that the program created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputFile {
    /// The content, as text or base64.
    pub content: String,
    /// The encoding of the content.
    pub encoding: FileEncoding,
    /// The size in bytes.
    pub size: u64,
    /// Whether it may be executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

impl OutputFile {
    /// Its content. Fails if the encoding is base64 and the content is not.
    pub fn bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        match self.encoding {
            FileEncoding::Utf8 => Ok(self.content.clone().into_bytes()),
            FileEncoding::Base64 => base64::engine::general_purpose::STANDARD.decode(&self.content),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn layer_names<S: serde::Serializer>(layers: &LayerSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(layers.iter().map(sandbox_cell::Layer::name))
}

/// Reads names of layers. One that this version does not know is left out: a stored result may be newer.
fn layers_named<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<LayerSet, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let known = names.iter().filter_map(|name| sandbox_cell::Layer::ALL.into_iter().find(|layer| layer.name() == name));
    let mut layers = LayerSet::default();
    known.for_each(|layer| layers.insert(layer));
    Ok(layers)
}

/// Fields that a stored result lacks have the values of a run that never started.
impl Default for RunResult {
    fn default() -> Self {
        Self { error: None, ..Self::internal_error(String::new()) }
    }
}

impl RunResult {
    /// About how many bytes it takes, as text and while it is written.
    #[must_use]
    pub fn size(&self) -> usize {
        let files: usize = self.files.values().map(|file| file.content.len()).sum();
        let value = self.result.as_ref().map_or(0, String::len);
        2 * (self.stdout.len() + self.stderr.len() + value) + files + 1024
    }

    /// The result of a request that was refused.
    #[must_use]
    pub fn refused(error: String) -> Self {
        Self { verdict: Verdict::InvalidRequest, ..Self::internal_error(error) }
    }

    /// The result of a run whose caller went away before its program began.
    #[must_use]
    pub fn cancelled() -> Self {
        Self { verdict: Verdict::Cancelled, ..Self::internal_error("cancelled by the caller".to_owned()) }
    }

    /// The result of a run that the sandbox could not carry out.
    #[must_use]
    pub fn internal_error(error: String) -> Self {
        Self {
            status: Status::Error,
            verdict: Verdict::InternalError,
            success: false,
            language: None,
            version: None,
            stdout: String::new(),
            stderr: String::new(),
            stdout_base64: None,
            stderr_base64: None,
            stdout_truncated: false,
            stderr_truncated: false,
            exit_code: None,
            signal: None,
            result: None,
            error: Some(error),
            hint: None,
            execution_time: 0.0,
            memory_used: 0,
            limit: None,
            compile: None,
            metrics: Metrics::default(),
            isolation: LayerSet::default(),
            files: BTreeMap::new(),
            files_omitted: vec![],
            files_omitted_count: 0,
        }
    }
}

/// Bytes as text and, if that loses something, as base64 too.
pub(crate) fn text(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.into_bytes();
            let exact = base64::engine::general_purpose::STANDARD.encode(&bytes);
            (String::from_utf8_lossy(&bytes).into_owned(), Some(exact))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_not_lost() {
        assert_eq!(text(b"abc".to_vec()), ("abc".to_owned(), None));
        assert_eq!(text(vec![b'a', 0xff]), ("a\u{fffd}".to_owned(), Some("Yf8=".to_owned())));
    }

    #[test]
    fn verdicts_are_written_as_they_are_named() {
        for verdict in [Verdict::Ok, Verdict::Timeout, Verdict::InternalError, Verdict::ProcessLimit] {
            assert_eq!(serde_json::to_value(verdict).expect("json"), verdict.name());
        }
    }
}
