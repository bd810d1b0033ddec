//! The verdict: why a run ended, decided from evidence by a pure function. Each limit, memory among them, has its own.

use sandbox_base::limits::Unit;
use sandbox_base::{LimitKind, Limits, visible};
use sandbox_cell::{CellEnd, Layer, LayerSet, Outcome, RunStatus, StopReason, signal_name};
use sandbox_runtimes::Pattern;

use crate::result::{LimitHit, Verdict};

/// A verdict, the limit behind it, and the reason in one line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) limit: Option<LimitHit>,
    pub(crate) error: Option<String>,
}

/// Further facts about a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) isolation: LayerSet,
    /// The end of standard error.
    pub(crate) stderr: &'a [u8],
    /// Bytes written to the stream that wrote more.
    pub(crate) output: u64,
    /// The reason of the failure, as the language's runner saw it.
    pub(crate) reported: Option<&'a str>,
    /// The error messages of the language.
    pub(crate) error_patterns: &'a ErrorPatterns,
}

/// Patterns of error messages, whose first group is the reason.
#[derive(Debug, Clone, Default)]
pub(crate) struct ErrorPatterns {
    /// The first match is the reason, if `first`; otherwise the last one is.
    pub(crate) reasons: Vec<Pattern>,
    pub(crate) first: bool,
    /// Messages of programs that ran out of memory before the cell did.
    pub(crate) memory: Vec<Pattern>,
}

impl ErrorPatterns {
    fn reason(&self, text: &str) -> Option<String> {
        self.reasons.iter().find_map(|Pattern(pattern)| {
            let mut found = pattern.captures_iter(text);
            let found = if self.first { found.next() } else { found.last() };
            found.and_then(|groups| groups.get(1)).and_then(|group| clean(group.as_str()))
        })
    }
}

/// The longest reason.
const LONGEST_ERROR: usize = 500;

pub(crate) fn judge(outcome: &Outcome, evidence: Evidence<'_>) -> Judgement {
    let mut judgement = by_end(outcome, evidence);
    if outcome.end == CellEnd::Lost
        && let Some(error) = &mut judgement.error
    {
        error.push_str("; the cell could not be killed and was abandoned");
    }
    judgement
}

fn by_end(outcome: &Outcome, evidence: Evidence<'_>) -> Judgement {
    match outcome.stopped {
        Some(StopReason::Cancelled) => {
            Judgement { verdict: Verdict::Cancelled, limit: None, error: Some("cancelled by the caller".to_owned()) }
        }
        Some(StopReason::Limit(kind)) => {
            // A program that ran into its process limit and then hung did so because of that.
            let cause = match kind {
                LimitKind::WallTime | LimitKind::CpuTime => {
                    outcome.reached.iter().find(|(reached, _)| *reached == LimitKind::Processes)
                }
                _ => None,
            };
            match cause {
                Some(&(kind, used)) => by_limit(kind, used, evidence),
                None => by_limit(kind, used(kind, outcome, evidence), evidence),
            }
        }
        None if outcome.end == CellEnd::Lost => failed_cell("the cell does not respond"),
        // In a PID namespace no program can do that. Elsewhere the program, or one of its children, has killed init.
        None if outcome.end == CellEnd::InitDied && evidence.isolation.contains(Layer::Pid) => {
            failed_cell("the cell's init was killed, and the program with it")
        }
        None if outcome.status == RunStatus::Exited(0) => Judgement { verdict: Verdict::Ok, limit: None, error: None },
        None => match outcome.reached.first() {
            Some(&(kind, used)) => by_limit(kind, used, evidence),
            None => by_itself(outcome.status, evidence),
        },
    }
}

/// The sandbox failed, not the program.
fn failed_cell(error: &str) -> Judgement {
    Judgement { verdict: Verdict::InternalError, limit: None, error: Some(error.to_owned()) }
}

/// The usage of a limited resource, for a run that was ended because of its limit.
fn used(kind: LimitKind, outcome: &Outcome, evidence: Evidence<'_>) -> u64 {
    let micros = |duration: std::time::Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    match kind {
        LimitKind::WallTime => micros(outcome.usage.wall),
        LimitKind::CpuTime => micros(outcome.usage.cpu),
        LimitKind::Memory => outcome.usage.memory_peak,
        LimitKind::Output => evidence.output,
        LimitKind::Processes => outcome.usage.processes_peak,
        LimitKind::Disk => outcome.usage.disk,
        LimitKind::Cpus
        | LimitKind::Inodes
        | LimitKind::OpenFiles
        | LimitKind::FileSize
        | LimitKind::OutputSize
        | LimitKind::Stack => 0,
    }
}

fn by_limit(kind: LimitKind, used: u64, evidence: Evidence<'_>) -> Judgement {
    let verdict = Verdict::of_limit(kind);
    let cap = evidence.limits.get(kind).unwrap_or(used);
    let error = Some(format!("{} of {} reached", kind.info().title, kind.format(cap)));
    let limit = Some(LimitHit { kind, cap: in_units(kind, cap), used: in_units(kind, used) });
    Judgement { verdict, limit, error }
}

/// Results count time in seconds.
#[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
fn in_units(kind: LimitKind, value: u64) -> f64 {
    match kind.info().unit {
        Unit::Time => value as f64 / 1e6,
        Unit::Cpus => value as f64 / 1e3,
        Unit::Bytes | Unit::Count => value as f64,
    }
}

/// A program that failed by itself.
fn by_itself(status: RunStatus, evidence: Evidence<'_>) -> Judgement {
    let text = String::from_utf8_lossy(evidence.stderr);
    let last_line = text.lines().rev().find_map(clean);
    let reported = evidence.reported.and_then(clean).or_else(|| evidence.error_patterns.reason(&text));
    let mut judgement = Judgement { verdict: Verdict::RuntimeError, limit: None, error: None };
    // The kernel keeps no record of some refusals; the program's own words then tell which limit it was. They only
    // explain a failure, they never make one.
    let last_words = reported.as_deref().or(last_line.as_deref());
    if evidence.error_patterns.memory.iter().any(|Pattern(pattern)| pattern.is_match(&text)) {
        let cap = evidence.limits.memory();
        return by_limit(LimitKind::Memory, cap, evidence);
    }
    if let Some(kind) = last_words.and_then(|line| blamed_limit(line, evidence.isolation)) {
        let cap = evidence.limits.get(kind).unwrap_or(0);
        judgement = by_limit(kind, cap, evidence);
    }
    judgement.error = Some(match (reported, status, last_line) {
        (Some(reason), ..) => reason,
        (None, RunStatus::Signaled(signal), _) => format!("killed by {}{}", signal_name(signal), explain(signal)),
        (None, RunStatus::Exited(_), Some(line)) => line,
        (None, RunStatus::Exited(code), None) => format!("exited with code {code}"),
    });
    judgement
}

/// The limit that a program's last words blame.
fn blamed_limit(line: &str, isolation: LayerSet) -> Option<LimitKind> {
    let line = line.to_ascii_lowercase();
    if line.contains("too many open files") || line.contains("emfile") {
        Some(LimitKind::OpenFiles)
    } else if !isolation.contains(Layer::Pids) && line.contains("resource temporarily unavailable") {
        Some(LimitKind::Processes)
    } else {
        None
    }
}

/// A line without control characters and not too long, if anything is left of it.
pub(crate) fn clean(line: &str) -> Option<String> {
    let plain = |c: &char| !c.is_control() && *c == visible(*c);
    let clean: String = line.trim().chars().filter(plain).take(LONGEST_ERROR).collect();
    (!clean.is_empty()).then_some(clean)
}

/// The usual meaning of a signal.
fn explain(signal: i32) -> &'static str {
    match signal_name(signal).as_str() {
        "SIGSEGV" | "SIGBUS" => " (invalid memory access)",
        "SIGFPE" => " (arithmetic error)",
        "SIGILL" => " (invalid instruction)",
        "SIGABRT" => " (aborted)",
        "SIGSYS" => " (a system call of a foreign architecture)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_cell::Usage;
    use std::time::Duration;

    fn outcome(status: RunStatus, stopped: Option<StopReason>, reached: &[(LimitKind, u64)]) -> Outcome {
        let usage = Usage { wall: Duration::from_millis(3_050), memory_peak: 64 << 20, ..Usage::default() };
        Outcome { status, stopped, reached: reached.to_vec(), usage, end: CellEnd::Orderly }
    }

    fn verdict(outcome: &Outcome, stderr: &str) -> Judgement {
        let limits = Limits::default();
        let isolation = Layer::ALL.into_iter().collect();
        let error_patterns = ErrorPatterns::default();
        let (stderr, output, reported) = (stderr.as_bytes(), 2 << 20, None);
        judge(
            outcome,
            Evidence { limits: &limits, isolation, stderr, output, reported, error_patterns: &error_patterns },
        )
    }

    /// The reason that the language's patterns find.
    fn reason(language: &str, stderr: &str) -> Judgement {
        let registry = sandbox_runtimes::Registry::shipped().expect("valid");
        let errors = registry.by_name(language).expect("known").errors.clone();
        let error_patterns = ErrorPatterns { reasons: errors.run, first: false, memory: errors.memory };
        let (limits, isolation) = (Limits::default(), Layer::ALL.into_iter().collect());
        let (stderr, output, reported) = (stderr.as_bytes(), 0, None);
        let evidence =
            Evidence { limits: &limits, isolation, stderr, output, reported, error_patterns: &error_patterns };
        judge(&outcome(RunStatus::Exited(1), None, &[]), evidence)
    }

    #[test]
    fn every_language_has_its_way_to_fail() {
        for (language, stderr, expected) in [
            ("go", "x\npanic: boom\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2", "panic: boom"),
            (
                "go",
                "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine",
                "fatal error: all goroutines are asleep - deadlock!",
            ),
            (
                "rust",
                "\nthread 'main' panicked at main.rs:2:5:\nindex out of bounds\nnote: run with",
                "index out of bounds",
            ),
            ("rust", "\nthread 'main' (12) panicked at main.rs:2:5:\nold news\nnote: run with", "old news"),
            ("rust", "Error: ParseIntError { kind: InvalidDigit }\n", "Error: ParseIntError { kind: InvalidDigit }"),
            (
                "java",
                "Exception in thread \"main\" java.lang.ArithmeticException: / by zero\n\tat Main.main(Main.java:1)",
                "java.lang.ArithmeticException: / by zero",
            ),
            ("cpp", "terminate called after throwing an instance of 'std::runtime_error'\n  what():  boom\n", "boom"),
            ("bash", "main.sh: line 3: nope: command not found\n", "line 3: nope: command not found"),
        ] {
            assert_eq!(reason(language, stderr).error.as_deref(), Some(expected), "{language}");
        }
        let full = reason("java", "Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space");
        assert_eq!(
            (full.verdict, full.error.as_deref()),
            (Verdict::MemoryLimit, Some("memory limit of 256 MiB reached"))
        );
        let full =
            reason("javascript", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory");
        assert_eq!(full.verdict, Verdict::MemoryLimit);
    }

    #[test]
    fn exit_codes_and_signals() {
        let ok = verdict(&outcome(RunStatus::Exited(0), None, &[]), "warning: x");
        assert_eq!((ok.verdict, ok.error), (Verdict::Ok, None));
        let failed =
            verdict(&outcome(RunStatus::Exited(1), None, &[]), "Traceback\nNameError: name 'x' is not defined\n\n");
        assert_eq!(failed.verdict, Verdict::RuntimeError);
        assert_eq!(failed.error.as_deref(), Some("NameError: name 'x' is not defined"));
        let silent = verdict(&outcome(RunStatus::Exited(3), None, &[]), " \n");
        assert_eq!(silent.error.as_deref(), Some("exited with code 3"));
        let crashed = verdict(&outcome(RunStatus::Signaled(11), None, &[]), "");
        assert_eq!(crashed.error.as_deref(), Some("killed by SIGSEGV (invalid memory access)"));
    }

    #[test]
    fn limits_explain_themselves() {
        let stopped = |kind| Some(StopReason::Limit(kind));
        let late = verdict(&outcome(RunStatus::Signaled(15), stopped(LimitKind::WallTime), &[]), "");
        assert_eq!(late.verdict, Verdict::Timeout);
        assert_eq!(late.error.as_deref(), Some("time limit of 3s reached"));
        assert_eq!(late.limit, Some(LimitHit { kind: LimitKind::WallTime, cap: 3.0, used: 3.05 }));
        let full = verdict(&outcome(RunStatus::Signaled(9), stopped(LimitKind::Memory), &[]), "");
        assert_eq!(full.verdict, Verdict::MemoryLimit);
        assert_eq!(full.error.as_deref(), Some("memory limit of 256 MiB reached"));
        let loud = verdict(&outcome(RunStatus::Signaled(9), stopped(LimitKind::Output), &[]), "");
        assert_eq!(loud.verdict, Verdict::OutputLimit);
        assert!(loud.limit.is_some_and(|limit| limit.used > limit.cap));
    }

    #[test]
    fn a_limit_that_a_program_coped_with_is_no_failure() {
        let coped = verdict(&outcome(RunStatus::Exited(0), None, &[(LimitKind::Disk, 64 << 20)]), "");
        assert_eq!((coped.verdict, coped.limit), (Verdict::Ok, None));
        let failed = verdict(&outcome(RunStatus::Exited(1), None, &[(LimitKind::Disk, 64 << 20)]), "OSError");
        assert_eq!(failed.verdict, Verdict::DiskLimit);
    }

    #[test]
    fn a_fork_bomb_that_hangs_is_a_process_limit() {
        let late = Some(StopReason::Limit(LimitKind::WallTime));
        let bomb = verdict(&outcome(RunStatus::Signaled(9), late, &[(LimitKind::Processes, 64)]), "");
        assert_eq!(bomb.verdict, Verdict::ProcessLimit);
    }

    #[test]
    fn last_line_explains_a_failure_but_never_causes_one() {
        let line = "OSError: [Errno 24] Too many open files: '/dev/null'";
        let failed = verdict(&outcome(RunStatus::Exited(1), None, &[]), line);
        assert_eq!(failed.verdict, Verdict::RuntimeError);
        assert_eq!(failed.limit.map(|limit| limit.kind), Some(LimitKind::OpenFiles));
        assert_eq!(failed.error.as_deref(), Some(line));
        let fine = verdict(&outcome(RunStatus::Exited(0), None, &[]), line);
        assert_eq!((fine.verdict, fine.limit), (Verdict::Ok, None));
    }

    #[test]
    fn reasons_are_clean_and_short() {
        let nasty = format!("\x1b[31m{}\x07", "x".repeat(2000));
        let failed = verdict(&outcome(RunStatus::Exited(1), None, &[]), &nasty);
        let error = failed.error.expect("reason");
        assert!(error.len() <= LONGEST_ERROR && !error.contains('\x1b'), "{error}");
    }

    #[test]
    fn a_cell_that_failed_is_not_the_programs_fault() {
        let ended = |end, stopped| Outcome { end, ..outcome(RunStatus::Signaled(9), stopped, &[]) };
        let died = verdict(&ended(CellEnd::InitDied, None), "");
        assert_eq!(died.verdict, Verdict::InternalError);
        let lost = verdict(&ended(CellEnd::Lost, None), "");
        assert_eq!(lost.verdict, Verdict::InternalError);
        let late = verdict(&ended(CellEnd::Lost, Some(StopReason::Limit(LimitKind::WallTime))), "");
        assert_eq!(late.verdict, Verdict::Timeout);
        assert_eq!(
            late.error.as_deref(),
            Some("time limit of 3s reached; the cell could not be killed and was abandoned")
        );
        let full = verdict(&ended(CellEnd::InitDied, Some(StopReason::Limit(LimitKind::Memory))), "");
        assert_eq!(full.verdict, Verdict::MemoryLimit);
        let limits = Limits::default();
        let error_patterns = ErrorPatterns::default();
        let evidence = Evidence {
            limits: &limits,
            isolation: LayerSet::default(),
            stderr: b"",
            output: 0,
            reported: None,
            error_patterns: &error_patterns,
        };
        let reduced = judge(&ended(CellEnd::InitDied, None), evidence);
        assert_eq!(reduced.verdict, Verdict::RuntimeError);
    }

    #[test]
    fn cancelled_is_cancelled() {
        let cancelled = verdict(&outcome(RunStatus::Signaled(15), Some(StopReason::Cancelled), &[]), "x");
        assert_eq!(cancelled.verdict, Verdict::Cancelled);
    }
}
