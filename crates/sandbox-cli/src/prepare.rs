//! `sandbox-run prepare`: prepares toolchains ahead of their first use, one after the other.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sandbox_base::printable;
use sandbox_base::units::format_duration;
use sandbox_executor::{
    HostVariables, Observer, Preparation, PreparePriority, Refused, RunService, Settings, Step, Stream, Verdict,
};
use sandbox_runtimes::Definition;
use sandbox_sys::signal::{SignalFd, SignalSet};
use serde::Serialize;

use crate::args::PrepareOptions;
use crate::exit_code;
use crate::output::{BAD, DIM, GOOD, print_error, say};
use crate::progress::StepProgress;
use crate::request;
use crate::run::{Started, close_data_dir};
use crate::terminal::neutralise;

/// The outcome of preparing a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum PrepareStatus {
    Prepared,
    AlreadyPrepared,
    NothingToPrepare,
    Failed,
    Cancelled,
}

/// A language in the report.
#[derive(Debug, Serialize)]
struct PreparedLanguage {
    language: String,
    /// The version of the toolchain, if it was found.
    version: Option<String>,
    /// What is prepared for the language, if anything is.
    what: Option<String>,
    status: PrepareStatus,
    /// How long it took, including the wait for another process that was preparing it.
    seconds: f64,
    error: Option<String>,
    /// What the script printed before it failed.
    #[serde(skip)]
    messages: String,
    /// Whether the sandbox failed, and not the script.
    #[serde(skip)]
    internal: bool,
}

/// Prepares the toolchains of some languages, or of all that are installed.
pub(crate) fn prepare(options: &PrepareOptions, executor: Started) -> u8 {
    match act(options, executor) {
        Ok(code) => code,
        Err((error, code)) => {
            print_error(&error);
            code
        }
    }
}

/// Prepares the toolchains; the exit code, or why nothing could be prepared and the exit code.
fn act(options: &PrepareOptions, executor: Started) -> Result<u8, (String, u8)> {
    let usage = |error: String| (error, exit_code::USAGE);
    let internal = |error: String| (error, exit_code::INTERNAL);
    let settings = Settings::read(|name| std::env::var(name).ok()).map_err(|error| usage(error.to_string()))?;
    let registry = request::registry(options.runtimes.as_deref()).map_err(usage)?;
    if settings.data_dir.is_none() {
        return Err(usage("no data directory; set SANDBOX_DATA_DIR".to_owned()));
    }
    close_data_dir(&settings);
    let executor = executor.and_then(|executor| executor.use_backend(&settings.backend).map(|()| executor));
    let executor = executor.map_err(|failure| internal(failure.to_string()))?;
    let own =
        std::env::current_exe().map_err(|error| internal(format!("cannot find the path of this program: {error}")))?;
    let service = RunService::new(executor, settings, registry, HostVariables::of_this_process(), own);
    let languages = wanted(&service, &options.languages).map_err(usage)?;
    // Blocked here, so that threads inherit it: the signal is delivered only to the descriptor.
    let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let interruption = signals.block().and_then(|()| SignalFd::new(&signals));
    let interruption = interruption.map_err(|errno| internal(format!("cannot watch for signals: {errno}")))?;
    let unwritten = |error: std::io::Error| internal(format!("cannot print: {error}"));
    let mut report = vec![];
    for language in languages {
        let prepared = prepare_one(&service, language, &interruption);
        if !options.json {
            show(&prepared).map_err(unwritten)?;
        }
        report.push(prepared);
        if report.last().is_some_and(|last| last.status == PrepareStatus::Cancelled) {
            break;
        }
    }
    if options.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| internal(error.to_string()))?;
        writeln!(anstream::stdout().lock(), "{text}").map_err(unwritten)?;
    }
    let signal = interruption.next().and_then(|signal| u8::try_from(signal).ok());
    Ok(exit_code(&report, signal))
}

/// The languages with these names, or all whose toolchain is installed.
fn wanted<'s>(service: &'s RunService, names: &[String]) -> Result<Vec<&'s Definition>, String> {
    if names.is_empty() {
        return Ok(service.languages().filter_map(|(definition, found)| found.is_ok().then_some(definition)).collect());
    }
    let mut languages: Vec<&Definition> = vec![];
    for name in names {
        let definition = service.language(name).map_err(|error| error.to_string())?;
        if !languages.iter().any(|known| known.name == definition.name) {
            languages.push(definition);
        }
    }
    Ok(languages)
}

fn prepare_one(service: &RunService, language: &Definition, interruption: &SignalFd) -> PreparedLanguage {
    let began = Instant::now();
    let mut steps = Steps { language: &language.name, shown: None };
    let ended = service.prepare(language, PreparePriority::Foreground, &[interruption.as_fd()], &mut steps);
    drop(steps);
    let mut prepared = PreparedLanguage {
        language: language.name.clone(),
        version: service.toolchain(language).ok().map(|runtime| runtime.version.clone()),
        what: language.prepare.as_ref().map(|prepare| prepare.what.clone()),
        status: PrepareStatus::Failed,
        seconds: (began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        error: None,
        messages: String::new(),
        internal: ended.as_ref().is_err_and(Refused::is_internal),
    };
    prepared.status = match ended {
        Ok(Preparation::Nothing) => PrepareStatus::NothingToPrepare,
        Ok(Preparation::Found { waited: false }) => PrepareStatus::AlreadyPrepared,
        Ok(Preparation::Found { waited: true } | Preparation::Made) => PrepareStatus::Prepared,
        Ok(Preparation::Failed(result)) => {
            prepared.messages = format!("{}{}", result.stdout, result.stderr);
            prepared.error.clone_from(&result.error);
            if result.verdict == Verdict::Cancelled { PrepareStatus::Cancelled } else { PrepareStatus::Failed }
        }
        Err(refused) => {
            prepared.error = Some(refused.to_string());
            PrepareStatus::Failed
        }
    };
    prepared
}

/// Prints a language's line, after what its script had to say if it failed.
fn show(prepared: &PreparedLanguage) -> std::io::Result<()> {
    let messages = neutralise(&prepared.messages);
    if prepared.status == PrepareStatus::Failed && !messages.is_empty() {
        say(messages.trim_end());
    }
    let what = prepared.what.as_deref().unwrap_or_default();
    let error = printable(prepared.error.as_deref().unwrap_or_default());
    let time = format_duration(Duration::from_secs_f64(prepared.seconds));
    let (mark, style, text) = match prepared.status {
        PrepareStatus::Prepared => ("✓", GOOD, format!("prepared {what} in {time}")),
        PrepareStatus::AlreadyPrepared => ("✓", GOOD, format!("already prepared: {what}")),
        PrepareStatus::NothingToPrepare => ("✓", GOOD, "nothing to prepare".to_owned()),
        PrepareStatus::Failed => ("✗", BAD, error),
        PrepareStatus::Cancelled => ("✗", BAD, format!("cancelled after {time}")),
    };
    let version = prepared.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let name = &prepared.language;
    writeln!(anstream::stdout().lock(), "{style}{mark} {name}{style:#}{DIM}{version}{DIM:#} · {text}")
}

/// 0 if every language is prepared or needs nothing.
fn exit_code(report: &[PreparedLanguage], signal: Option<u8>) -> u8 {
    let any = |status| report.iter().any(|prepared| prepared.status == status);
    if any(PrepareStatus::Cancelled) {
        128 + signal.unwrap_or_default()
    } else if report.iter().any(|prepared| prepared.internal) {
        exit_code::INTERNAL
    } else {
        u8::from(any(PrepareStatus::Failed))
    }
}

/// Shows the steps of a preparation.
struct Steps<'a> {
    language: &'a str,
    shown: Option<StepProgress>,
}

impl Observer for Steps<'_> {
    fn output(&mut self, _: Stream, _: &[u8]) {}

    fn step(&mut self, _: Step, what: &str, _: bool) {
        self.shown = Some(StepProgress::begin(&format!("{}: {what}", self.language)));
    }

    fn step_status(&mut self, _: Step, line: &str) {
        if let Some(shown) = &self.shown {
            shown.status(line);
        }
    }

    fn step_over(&mut self, _: Step) {
        self.shown = None;
    }
}
