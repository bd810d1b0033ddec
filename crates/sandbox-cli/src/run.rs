//! Runs code or a program, and reports the result.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, ValueEnum};
use sandbox_base::counted;
use sandbox_base::data_dir::keep_private;
use sandbox_base::wait::is_readable;
use sandbox_cell::Failure;
use sandbox_executor::{
    CheckedRequest, Executor, HostVariables, Refused, RequestError, RunResult, RunService, Settings,
};
use sandbox_runtimes::Registry;

use crate::args::{Arguments, BackendName, CodeOptions, Format, RunOptions};
use crate::exit_code;
use crate::interactive::{self, Screen, Session};
use crate::interrupt::Interrupts;
use crate::output::{Printer, print_error, print_hint, say, summary};
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
        Ok(checked) => execute(options, &service, checked, prepared.session),
        Err(refused) => fail(format, &result_of(&refused)),
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
    fail(format, &RunResult::refused(error.to_owned()))
}

/// The sandbox failed before anything ran.
fn internal(format: Format, error: &str) -> u8 {
    fail(format, &RunResult::internal_error(error.to_owned()))
}

/// Ends without a run.
fn fail(format: Format, result: &RunResult) -> u8 {
    print_result(format, result);
    print_failure(result)
}

/// The result of a request that was refused, or with which the sandbox failed.
fn result_of(refused: &Refused) -> RunResult {
    let (why, mut hint) = refused.reason_and_hint();
    if let Refused::Request(RequestError::AmbiguousEntry { .. }) = refused {
        hint = Some("choose the file with --entry".to_owned());
    }
    let result = if refused.is_internal() { RunResult::internal_error(why) } else { RunResult::refused(why) };
    RunResult { hint, ..result }
}

/// Prints why there was no run, and what to do about it; the exit code.
fn print_failure(result: &RunResult) -> u8 {
    print_error(result.error.as_deref().unwrap_or_default());
    print_hint(result);
    exit_code::of_result(result, None)
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
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<_> = words.take_while(|word| word != "--").collect();
    let command = Arguments::command();
    let is_other = |word: &String| word != "exec" && command.find_subcommand(word).is_some();
    let format = words.iter().enumerate().find_map(|(at, word)| match word.as_str() {
        "--json" => Some("json"),
        "--format" => words.get(at + 1).map(String::as_str),
        word => word.strip_prefix("--format="),
    });
    let format = format.filter(|_| !words.first().is_some_and(is_other));
    let format = format.and_then(|format| Format::from_str(format, false).ok());
    print_result(format.unwrap_or(Format::Text), &RunResult::refused(message.to_owned()));
}

fn execute(options: &RunOptions, service: &RunService, checked: CheckedRequest, mut session: Option<Session>) -> u8 {
    let format = options.format();
    let destination =
        options.output_dir.as_deref().map(|dir| Destination::open(dir, &options.output_permissions.all_given()));
    let destination = match destination.transpose() {
        Ok(destination) => destination,
        Err(error) => return refuse(format, &error),
    };
    let others: &[i32] = if session.is_some() { &interactive::SIGNALS } else { &[] };
    let interrupts = match Interrupts::watch(others, !options.quiet) {
        Ok(interrupts) => interrupts,
        Err(error) => return internal(format, &format!("cannot watch for signals: {error}")),
    };
    let mut printer = match Printer::new(format, options.raw, options.quiet) {
        Ok(printer) => printer,
        Err(error) => return internal(format, &format!("cannot prepare the output: {error}")),
    };
    let broken = printer.broken();
    let cancel = [interrupts.as_fd(), broken.as_fd()];
    match run(service, checked, session.as_mut(), &mut printer, &interrupts, &cancel) {
        Ok(result) => {
            let saved = destination.as_ref().map(|destination| destination.save(&result)).unwrap_or_default();
            let written = printer.end(&result, &saved.unsaved);
            let interrupted = interrupts.first();
            // A reader that has gone knows what it has read, and wants no summary.
            let has_reader = !is_readable(&[&*broken], Duration::ZERO);
            let for_people = format == Format::Text && !options.quiet && has_reader;
            if for_people {
                say(&summary(&result));
            }
            if for_people && saved.stripped > 0 {
                let files = counted(saved.stripped, "file");
                say(&format!("{files} without execute permission (keep it with --all)"));
            }
            let absent = destination.map(|destination| destination.messages(&result, &saved)).unwrap_or_default();
            for message in &absent {
                print_error(message);
            }
            if for_people {
                print_hint(&result);
            }
            if !absent.is_empty() {
                return exit_code::INTERNAL;
            }
            if !has_reader && interrupted.is_none() {
                return exit_code::UNREAD;
            }
            if written.is_err() {
                return exit_code::INTERNAL;
            }
            exit_code::of_result(&result, interrupted)
        }
        Err(refused) => {
            let result = result_of(&refused);
            let _ = printer.end(&result, &[]);
            print_failure(&result)
        }
    }
}

/// Runs to the end, in a terminal if there is a session.
fn run(
    service: &RunService,
    checked: CheckedRequest,
    session: Option<&mut Session>,
    printer: &mut Printer,
    interrupts: &Interrupts,
    cancel: &[BorrowedFd<'_>],
) -> Result<Arc<RunResult>, Refused> {
    let Some(session) = session else { return service.run(checked, Duration::ZERO, cancel, printer) };
    let mut screen = Screen { session, printer, interrupts };
    let result = service.run(checked, Duration::ZERO, cancel, &mut screen);
    let undo = session.end();
    printer.pass(undo);
    result
}
