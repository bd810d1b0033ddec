//! Runs code or a program, and reports the result.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::Duration;

use clap::ValueEnum;
use sandbox_base::counted;
use sandbox_base::data_dir::keep_private;
use sandbox_cell::Failure;
use sandbox_executor::{
    CheckedRequest, Executor, HostVariables, Refused, RequestError, RunResult, RunService, Settings,
};
use sandbox_runtimes::Registry;
use sandbox_sys::signal::{SignalFd, SignalSet};

use crate::args::{BackendName, CodeOptions, Format, RunOptions};
use crate::exit_code;
use crate::output::{Printer, print_error, say, summary};
use crate::request::{self, PreparedRequest, UsageError};
use crate::save::Destination;

/// An executor, or why it could not be started.
pub(crate) type Started = Result<Executor, Failure>;

/// Runs code in a language.
pub(crate) fn code(options: &CodeOptions, args: Vec<OsString>, executor: Started) -> u8 {
    report(&options.run, executor, |settings| request::code(options, args, settings))
}

/// Runs a program.
pub(crate) fn program(options: &RunOptions, argv: Vec<OsString>, executor: Started) -> u8 {
    report(options, executor, |settings| request::program(options, argv, settings))
}

fn report(
    options: &RunOptions,
    executor: Started,
    prepare: impl FnOnce(&mut Settings) -> Result<PreparedRequest, UsageError>,
) -> u8 {
    let backend = options.backend.map(BackendName::name);
    let variable = |name: &str| match (name, backend) {
        ("SANDBOX_BACKEND", Some(backend)) => Some(backend.to_owned()),
        _ => std::env::var(name).ok(),
    };
    let format = options.format();
    let mut settings = match Settings::read(variable) {
        Ok(settings) => settings,
        Err(error) => return refuse(format, &error.to_string()),
    };
    let prepared = match prepare(&mut settings) {
        Ok(prepared) => prepared,
        Err(error) => return refuse(format, &error),
    };
    close_data_dir(&settings);
    let executor = executor.and_then(|executor| executor.use_backend(&settings.backend).map(|()| executor));
    let executor = match executor {
        Ok(executor) => executor.for_one_run(),
        Err(failure) => return internal(format, &failure.to_string()),
    };
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return internal(format, &format!("cannot find the path of this program: {error}")),
    };
    let variables = HostVariables::of_this_process();
    let service = RunService::new(executor, settings, Registry::default(), variables, own);
    match service.check(prepared.request, prepared.language.as_ref(), prepared.input, &[]) {
        Ok(checked) => execute(options, &service, checked),
        Err(refused) => refuse_or_fail(format, &refused),
    }
}

/// Closes the data directory to others. A failure is reported only when the directory is needed.
pub(crate) fn close_data_dir(settings: &Settings) {
    let passed = settings.passes_data_dir(false);
    if let Some(dir) = settings.data_dir.as_deref().filter(|dir| passed || dir.is_dir()) {
        let _ = keep_private(dir, passed);
    }
}

/// The request was refused.
fn refuse(format: Format, error: &str) -> u8 {
    print_result(format, &RunResult::refused(error.to_owned()));
    print_error(error);
    exit_code::USAGE
}

/// The request was refused, or the sandbox failed.
fn refuse_or_fail(format: Format, refused: &Refused) -> u8 {
    let flag = if let Refused::Request(RequestError::AmbiguousEntry { .. }) = refused { " (--entry)" } else { "" };
    let why = format!("{refused}{flag}");
    if refused.is_internal() { internal(format, &why) } else { refuse(format, &why) }
}

/// The sandbox failed before anything ran.
fn internal(format: Format, error: &str) -> u8 {
    print_result(format, &RunResult::internal_error(error.to_owned()));
    print_error(error);
    exit_code::INTERNAL
}

/// Prints a result without preceding events, if the format is for programs.
fn print_result(format: Format, result: &RunResult) {
    if format != Format::Text
        && let Ok(mut printer) = Printer::new(format, true, true)
    {
        let _ = printer.end(result, &[]);
    }
}

/// Prints a refusal as a result, if the command line requests that. It could not be parsed, so its raw arguments are
/// examined.
pub(crate) fn print_refusal(message: &str) {
    let words: Vec<_> = std::env::args().skip(1).take_while(|word| word != "--").collect();
    let is_run = words.first().is_some_and(|first| first.starts_with('-') || first == "exec");
    let format = words.iter().enumerate().find_map(|(at, word)| match word.as_str() {
        "--json" => Some("json"),
        "--format" => words.get(at + 1).map(String::as_str),
        word => word.strip_prefix("--format="),
    });
    let format = format.filter(|_| is_run).and_then(|format| Format::from_str(format, false).ok());
    let first_line = message.lines().next().unwrap_or_default();
    let error = first_line.strip_prefix("error: ").unwrap_or(first_line);
    print_result(format.unwrap_or(Format::Text), &RunResult::refused(error.to_owned()));
}

fn execute(options: &RunOptions, service: &RunService, checked: CheckedRequest) -> u8 {
    let format = options.format();
    let destination = options.output_dir.as_deref().map(|dir| Destination::open(dir, &options.output_allow));
    let destination = match destination.transpose() {
        Ok(destination) => destination,
        Err(error) => return refuse(format, &error),
    };
    // Blocked here, so that the writing thread inherits it: the signal is delivered only to the descriptor.
    let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let interruption = match signals.block().and_then(|()| SignalFd::new(&signals)) {
        Ok(interruption) => interruption,
        Err(errno) => return internal(format, &format!("cannot watch for signals: {errno}")),
    };
    let mut printer = match Printer::new(format, options.raw, options.quiet) {
        Ok(printer) => printer,
        Err(error) => return internal(format, &format!("cannot prepare the output: {error}")),
    };
    let broken = printer.broken();
    let cancel = [interruption.as_fd(), broken.as_fd()];
    match service.run(checked, Duration::ZERO, &cancel, &mut printer) {
        Ok(result) => {
            let saved = destination.as_ref().map(|destination| destination.save(&result)).unwrap_or_default();
            let written = printer.end(&result, &saved.unsaved);
            if format == Format::Text && !options.quiet {
                say(&summary(&result));
            }
            if format == Format::Text && !options.quiet && saved.stripped > 0 {
                let files = counted(saved.stripped, "file");
                say(&format!("{files} without execute permission (keep it with --output-allow executable)"));
            }
            let interrupted = interruption.next();
            let unsaved = destination.and_then(|destination| destination.unsaved_message(&saved.unsaved));
            match (written, unsaved) {
                (_, Some(unsaved)) => {
                    print_error(&unsaved);
                    exit_code::INTERNAL
                }
                (Ok(()), None) => exit_code::of_result(&result, interrupted),
                (Err(_), None) => exit_code::INTERNAL,
            }
        }
        Err(refused) if refused.is_internal() => {
            end_with(&mut printer, &RunResult::internal_error(refused.to_string()), exit_code::INTERNAL)
        }
        Err(refused) => end_with(&mut printer, &RunResult::refused(refused.to_string()), exit_code::USAGE),
    }
}

/// Ends a run of which only the failure is known.
fn end_with(printer: &mut Printer, result: &RunResult, code: u8) -> u8 {
    let _ = printer.end(result, &[]);
    print_error(result.error.as_deref().unwrap_or_default());
    code
}
