//! `sandbox-run`: runs untrusted code in single-use sandboxes, and reports precisely what happened.

mod archive;
mod args;
mod attack;
mod cache;
mod doctor;
mod escape_filter;
mod exit_code;
mod image;
mod interactive;
mod interrupt;
mod invocation;
mod languages;
mod manual;
mod output;
mod packages;
mod prepare;
mod progress;
mod project;
mod request;
mod run;
mod save;
mod source;
mod template;
mod terminal;
mod terminal_flags;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use args::{Action, Arguments};
use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use rustix::stdio::stdin;
use rustix::termios::isatty;
use sandbox_backends::GUEST_COMMAND;
use sandbox_cell::Failure;
use sandbox_executor::{Executor, RENDER_COMMAND};
use sandbox_images::UNPACK_COMMAND;
use sandbox_sys::start_block::StartBlock;

fn main() -> ExitCode {
    sandbox_backends::keeper_main_if_asked();
    // The keeper is started first: it must not know arguments and variables, and it examines the host while they are
    // parsed. It creates nothing until a cell is requested.
    let executor = match StartBlock::get() {
        Ok(block) => start_executor(block.arguments().nth(1), Executor::start_first),
        Err(_) => start_executor(std::env::args_os().nth(1).as_deref().map(OsStr::as_bytes), Executor::start),
    };
    let code = match invocation::parse() {
        Ok(arguments) => act(arguments, executor),
        Err(error) => invocation::answer(error),
    };
    ExitCode::from(code)
}

/// Starts an executor, unless the first argument shows that no cell will be needed.
fn start_executor(
    first: Option<&[u8]>,
    start: impl FnOnce() -> Result<Executor, Failure>,
) -> Option<Result<Executor, Failure>> {
    let others = ["doctor", "completions", "man", "help", "languages", "cache", sandbox_attack::NEIGHBOUR_COMMAND];
    let cell_commands = [RENDER_COMMAND, UNPACK_COMMAND, GUEST_COMMAND];
    // Alone on a terminal, it prints help. Without one, code may come.
    if first.is_none() && isatty(stdin()) {
        return None;
    }
    let first = first.unwrap_or_default();
    if others.iter().chain(&cell_commands).any(|other| first == other.as_bytes()) {
        return None;
    }
    if first == b"attack"
        && let Err(error) = sandbox_attack::restart_with_secret()
    {
        output::print_error(&error);
    }
    Some(start())
}

fn act(arguments: Arguments, executor: Option<Result<Executor, Failure>>) -> u8 {
    match (arguments.action, executor) {
        (None, Some(executor)) if arguments.run.is_program() => {
            run::program(&arguments.run.run, arguments.words, executor)
        }
        (None, Some(executor)) => run::code(&arguments.run, arguments.words, executor),
        (Some(Action::Exec { run, argv }), Some(executor)) => run::program(&run, argv, executor),
        (Some(Action::Prepare(options)), Some(executor)) => prepare::prepare(&options, executor),
        (Some(Action::Languages { json, runtimes }), _) => languages::languages(json, runtimes.as_deref()),
        (Some(Action::Cache { action }), _) => cache::cache(action),
        (Some(Action::Image { action }), executor) => image::image(action, executor),
        (Some(Action::Cell { what }), _) => match sandbox_backends::serve_in_container(what.as_deref()) {
            Ok(()) => 0,
            Err(failure) => {
                output::print_error(&failure.to_string());
                exit_code::INTERNAL
            }
        },
        (Some(Action::UnpackImage { job }), _) => image::unpack(&job),
        (Some(Action::Doctor { json }), _) => doctor::doctor(json),
        (Some(Action::Attack(options)), Some(executor)) => attack::attack(&options, executor),
        (Some(Action::Neighbour), _) => sandbox_attack::run_neighbour(),
        (Some(Action::RenderTemplate), _) => template::render(),
        (Some(Action::Completions { shell }), _) => {
            clap_complete::generate(shell, &mut completed(), "sandbox-run", &mut std::io::stdout());
            0
        }
        (Some(Action::Man { dir }), _) => manual::manual(dir.as_deref()),
        (None | Some(Action::Exec { .. } | Action::Prepare(_) | Action::Attack(_)), None) => {
            invocation::print_help();
            exit_code::USAGE
        }
    }
}

/// The command line with the values that shells can complete.
fn completed() -> clap::Command {
    let registry = request::registry(None).unwrap_or_default();
    let names: Vec<&'static str> = registry.all().map(|language| &*language.name.clone().leak()).collect();
    let complete = |arg: clap::Arg| arg.value_parser(PossibleValuesParser::new(&names));
    Arguments::command()
        .mut_arg("lang", complete)
        .mut_subcommand("prepare", |prepare| prepare.mut_arg("languages", complete))
}
