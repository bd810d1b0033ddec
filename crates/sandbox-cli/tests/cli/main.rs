//! The command line, tested as its users use it: the real binary, real cells, real programs.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod bad_input;
mod cleanup;
mod files;
mod formats;
mod hints;
mod hostile_files;
mod interactive;
mod invocation;
mod isolation;
mod limits;
mod metrics;
mod ordinary_user;
mod prepare;
mod reduced;
mod results;
mod secrets;
mod shared_pools;
mod streaming;
mod templates;
mod time;
mod volumes;
