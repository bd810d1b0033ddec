//! Output: streamed bytes, events, results and summaries.

use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use rustix::event::{EventfdFlags, eventfd};
use sandbox_base::units::{format_duration, format_size};
use sandbox_base::{counted, printable};
use sandbox_executor::{EventEncoder, Observer, RunResult, Step, Stream, Verdict};
use serde::Serialize;

use crate::args::Format;
use crate::progress::StepProgress;
use crate::save::{Unsaved, left_out_message};
use crate::terminal::{Colours, Neutraliser};

/// Bytes to write, and the stream.
type Portion = (Stream, Vec<u8>);

/// Writes a run's output as it arrives.
///
/// A separate thread writes, because the reader of our output may be slow, and the program must not wait for it. The
/// output limit of the run bounds the queue.
pub(crate) struct Printer {
    format: Format,
    /// For each stream that goes to a terminal.
    neutralisers: [Option<Neutraliser>; 2],
    /// Which streams go to a terminal.
    terminals: [bool; 2],
    /// For `--format stream-json`.
    events: EventEncoder,
    /// The last byte on a terminal.
    last_byte: Option<u8>,
    /// Started with the first bytes to write.
    writer: Option<(Sender<Portion>, JoinHandle<()>)>,
    /// Becomes readable when the reader of our output is gone.
    broken: Arc<OwnedFd>,
    /// Whether progress is not shown.
    quiet: bool,
    progress: Option<StepProgress>,
}

impl Printer {
    /// A printer; `raw` passes control sequences to a terminal, `quiet` prints no messages.
    pub(crate) fn new(format: Format, raw: bool, quiet: bool) -> std::io::Result<Self> {
        let broken = eventfd(0, EventfdFlags::CLOEXEC)?;
        let terminals = [std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
        let is_filtered = format == Format::Text && !raw;
        let stdout = (is_filtered && terminals[0]).then(|| Colours::of(&std::io::stdout()));
        let stderr = (is_filtered && terminals[1]).then(|| Colours::of(&std::io::stderr()));
        Ok(Self {
            format,
            neutralisers: [stdout, stderr].map(|colours| colours.map(Neutraliser::with)),
            terminals,
            events: EventEncoder::default(),
            last_byte: None,
            writer: None,
            broken: Arc::new(broken),
            quiet,
            progress: None,
        })
    }

    /// Becomes readable when the reader of our output is gone.
    pub(crate) fn broken(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.broken)
    }

    fn queue(&mut self, stream: Stream, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let (queue, _) = self.writer.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let broken = Arc::clone(&self.broken);
            (sender, std::thread::spawn(move || write_all(&receiver, &broken)))
        });
        let _ = queue.send((stream, bytes));
    }

    /// Writes output that is meant for a terminal as it is.
    pub(crate) fn pass(&mut self, bytes: Vec<u8>) {
        self.last_byte = bytes.last().copied().or(self.last_byte);
        self.queue(Stream::Stdout, bytes);
    }

    /// Writes a line of JSON.
    fn line(&mut self, value: &impl Serialize) {
        if let Ok(mut line) = serde_json::to_vec(value) {
            line.push(b'\n');
            self.queue(Stream::Stdout, line);
        }
    }

    /// Writes the remaining output and, in the formats for programs, the result and the files that were not saved.
    /// Waits until everything is written.
    pub(crate) fn end(&mut self, result: &RunResult, unsaved: &[Unsaved]) -> std::io::Result<()> {
        let whole = Whole { result, files_unsaved: unsaved };
        match self.format {
            Format::Text => {
                self.show_messages(result);
                for stream in [Stream::Stdout, Stream::Stderr] {
                    let neutraliser = self.neutralisers[stream as usize].as_mut();
                    let rest = neutraliser.map(Neutraliser::finish).unwrap_or_default();
                    self.queue(stream, rest);
                }
                let terminal =
                    [Stream::Stdout, Stream::Stderr].into_iter().find(|stream| self.terminals[*stream as usize]);
                if let Some(stream) = terminal.filter(|_| self.last_byte.is_some_and(|byte| byte != b'\n')) {
                    self.queue(stream, b"\n".to_vec());
                }
            }
            Format::StreamJson => {
                for event in self.events.finish() {
                    self.line(&event);
                }
                self.line(&ResultEvent { event: "result", result: whole });
            }
            Format::Json => {
                let mut stdout = std::io::stdout().lock();
                serde_json::to_writer(&mut stdout, &whole)?;
                stdout.write_all(b"\n")?;
            }
        }
        if let Some((queue, writer)) = self.writer.take() {
            drop(queue);
            let _ = writer.join();
        }
        Ok(())
    }

    /// The output of a compiler or installer, which was not printed yet.
    fn show_messages(&mut self, result: &RunResult) {
        let stopped = matches!(result.verdict, Verdict::CompileError | Verdict::PackageError);
        let warnings = result.compile.as_ref().map(|compile| compile.stderr.as_str());
        let messages = if stopped {
            format!("{}{}", result.stdout, result.stderr)
        } else {
            warnings.unwrap_or_default().to_owned()
        };
        self.output(Stream::Stderr, messages.as_bytes());
    }
}

impl Observer for Printer {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        if self.format == Format::StreamJson {
            self.line(&EventEncoder::start(language, version));
        }
    }

    fn step(&mut self, step: Step, what: &str, waiting: bool) {
        if self.format == Format::StreamJson {
            self.line(&EventEncoder::step(step, what, waiting));
        }
        if self.quiet {
            return;
        }
        self.progress = Some(StepProgress::begin(what));
    }

    fn step_status(&mut self, _: Step, line: &str) {
        if let Some(progress) = &self.progress {
            progress.status(line);
        }
    }

    fn step_over(&mut self, _: Step) {
        self.progress = None;
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        match self.format {
            Format::Json => {}
            Format::Text => {
                if self.terminals[stream as usize] {
                    self.last_byte = bytes.last().copied().or(self.last_byte);
                }
                let bytes = match &mut self.neutralisers[stream as usize] {
                    Some(neutraliser) => neutraliser.filter(bytes),
                    None => bytes.to_vec(),
                };
                self.queue(stream, bytes);
            }
            Format::StreamJson => {
                if let Some(event) = self.events.output(stream, bytes) {
                    self.line(&event);
                }
            }
        }
    }
}

/// [`RunEvent::Result`](sandbox_executor::RunEvent::Result), with the fields that the command line adds.
#[derive(Serialize)]
struct ResultEvent<'a> {
    event: &'static str,
    result: Whole<'a>,
}

/// A result, with the fields that the command line adds.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    result: &'a RunResult,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    files_unsaved: &'a [Unsaved],
}

/// The writing thread.
fn write_all(portions: &Receiver<Portion>, broken: &OwnedFd) {
    for (stream, bytes) in portions {
        let written = match stream {
            Stream::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(&bytes).and_then(|()| stdout.flush())
            }
            Stream::Stderr => std::io::stderr().lock().write_all(&bytes),
        };
        if written.is_err() {
            let _ = rustix::io::write(broken, &1_u64.to_ne_bytes());
            return;
        }
    }
}

pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// A one-line summary, for people.
pub(crate) fn summary(result: &RunResult) -> String {
    let metrics = &result.metrics;
    let (mark, style) = if result.success { ("✓", GOOD) } else { ("✗", BAD) };
    // Only a person cancels a run of the command line.
    let verdict = if result.verdict == Verdict::Cancelled { "interrupted" } else { result.verdict.name() };
    let mut line = format!("{style}{mark} {verdict}{style:#}");
    if let Some(why) = reason(result) {
        line.push_str(": ");
        line.push_str(&why);
    }
    let mut facts = vec![];
    if let (Some(language), Some(version)) = (&result.language, &result.version) {
        facts.push(format!("{language} {version}"));
    }
    let time = |seconds: f64| format_duration(Duration::from_secs_f64(seconds.max(0.0)));
    if metrics.phases.toolchain > 0.1 {
        facts.push(format!("toolchain prepared in {}", time(metrics.phases.toolchain)));
    }
    if metrics.phases.packages > 0.1 {
        facts.push(format!("packages {}", time(metrics.phases.packages)));
    }
    if let Some(compile) = result.compile.as_ref().filter(|compile| !compile.cached) {
        facts.push(format!("compiled in {}", time(compile.time)));
    }
    facts.push(time(metrics.wall_time));
    facts.push(format!("CPU {}", time(metrics.cpu_time)));
    facts.push(format_size(metrics.memory_peak));
    if metrics.processes_peak > 1 {
        facts.push(format!("{} processes", metrics.processes_peak));
    }
    if let Some(network) = metrics.network.as_ref().filter(|network| network.connections + network.refused > 0) {
        facts.push(format!("{} connections, {} refused", network.connections, network.refused));
    }
    if result.files_omitted_count > 0 {
        // What should have come out is an error below the summary.
        let first = result.files_omitted.first().filter(|_| left_out_message(result).is_none());
        let first = first.map(|file| format!(" ({}: {})", printable(&file.path), file.why.describe()));
        let count = usize::try_from(result.files_omitted_count).unwrap_or(usize::MAX);
        facts.push(format!("{} left out{}", counted(count, "file"), first.unwrap_or_default()));
    }
    format!("{line} {DIM}· {}{DIM:#}", facts.join(" · "))
}

/// Why the run failed.
fn reason(result: &RunResult) -> Option<String> {
    let error = printable(result.error.as_ref()?);
    match (result.verdict, result.exit_code) {
        (Verdict::Cancelled, _) => None,
        (Verdict::RuntimeError, Some(code)) if !error.starts_with("exited") => {
            Some(format!("{error} (exit code {code})"))
        }
        _ => Some(error),
    }
}

/// Whether a list was printed; not if its reader has gone, which wants no more.
pub(crate) fn unless_unread(written: std::io::Result<()>) -> std::io::Result<()> {
    written.or_else(|error| if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Prints a line to standard error, coloured if that is a terminal that wants it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Prints the hint of a result, if it has one.
pub(crate) fn print_hint(result: &RunResult) {
    if let Some(hint) = &result.hint {
        say(&format!("{HINT}hint:{HINT:#} {}", printable(hint)));
    }
}

/// Prints an error. Parts of it may be untrusted.
pub(crate) fn print_error(what: &str) {
    say(&format!("{BAD}sandbox-run:{BAD:#} {}", printable(what)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_the_limit() {
        let mut result = RunResult::internal_error("memory limit of 64 MiB reached".to_owned());
        result.verdict = Verdict::MemoryLimit;
        let kind = sandbox_base::LimitKind::Memory;
        result.limit = Some(sandbox_executor::LimitHit { kind, cap: 1.0, used: 1.0 });
        let line = anstream::adapter::strip_str(&summary(&result)).to_string();
        assert_eq!(line, "✗ memory_limit: memory limit of 64 MiB reached · 0s · CPU 0s · 0 B");
    }
}
