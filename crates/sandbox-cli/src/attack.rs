//! `sandbox-run attack`: carries out the attack suite, and prints its report.

use std::io::Write;
use std::os::fd::AsFd;

use sandbox_attack::{ResultDisplay, SuiteOptions, SuiteReport};
use sandbox_executor::Settings;
use sandbox_sys::signal::{SignalFd, SignalSet};

use crate::args::AttackOptions;
use crate::exit_code;
use crate::output::{print_error, summary};
use crate::run::{Started, close_data_dir};
use crate::terminal::neutralise;

/// Attacks the sandbox. Returns 1 if something was breached, or nothing was attempted.
pub(crate) fn attack(options: &AttackOptions, executor: Started) -> u8 {
    match carry_out(options, executor) {
        Ok(code) => code,
        Err(error) => {
            print_error(&error);
            exit_code::INTERNAL
        }
    }
}

fn carry_out(options: &AttackOptions, executor: Started) -> Result<u8, String> {
    if options.list {
        return Ok(print(&sandbox_attack::list(options.only.as_deref(), options.json)?));
    }
    let executor = executor.map_err(|failure| failure.to_string())?;
    // Blocked before any thread starts, so that the signal is delivered only to the descriptor.
    let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let interruption = signals.block().and_then(|()| SignalFd::new(&signals));
    let interruption = interruption.map_err(|errno| format!("cannot watch for signals: {errno}"))?;
    let settings = Settings::read(|name| std::env::var(name).ok()).map_err(|error| error.to_string())?;
    close_data_dir(&settings);
    let suite = SuiteOptions {
        only: options.only.clone(),
        warm: options.warm,
        #[cfg(feature = "canary")]
        canary: options.canary,
        json: options.json,
    };
    let display = ResultDisplay { output: neutralise, summary };
    let SuiteReport { text, success } = sandbox_attack::run(&suite, executor, settings, interruption.as_fd(), display)?;
    let printed = print(&text);
    if let Some(signal) = interruption.next() {
        return Ok(128 + u8::try_from(signal).unwrap_or(2));
    }
    Ok(if success { printed } else { 1 })
}

fn print(text: &str) -> u8 {
    u8::from(anstream::stdout().lock().write_all(text.as_bytes()).is_err())
}
