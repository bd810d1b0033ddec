//! `sandbox-run`: runs code nobody trusts and says exactly what happened.

mod args;
mod doctor;
mod output;
mod prepare;
mod run;
mod terminal;

use std::process::ExitCode;

use args::{Action, Arguments};
use clap::{CommandFactory, Parser};

/// Exit codes that are not the program's own.
pub(crate) mod exit {
    /// The command line or the request makes no sense.
    pub(crate) const USAGE: u8 = 2;
    /// The program's time was up.
    pub(crate) const TIMEOUT: u8 = 124;
    /// The sandbox itself failed.
    pub(crate) const INTERNAL: u8 = 125;
    /// The program was killed because of a limit.
    pub(crate) const LIMIT: u8 = 137;
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let code = match arguments.action {
        None => run::code(&arguments.run, arguments.program_args),
        Some(Action::Exec { run, argv }) => run::program(&run, argv),
        Some(Action::Doctor { json }) => doctor::doctor(json),
        Some(Action::Completions { shell }) => {
            clap_complete::generate(shell, &mut Arguments::command(), "sandbox-run", &mut std::io::stdout());
            0
        }
    };
    ExitCode::from(code)
}
