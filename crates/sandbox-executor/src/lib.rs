//! One request to run untrusted code in, one result out.
//!
//! Data flows one way: a [`Request`] is checked completely, becomes a [`Plan`] (a pure function of the request and a
//! runtime), is carried out ([`Executor::run_last`]) in a fresh cell, and ends as a [`RunResult`], which says what happened,
//! why, and what was used. The same result type serves the command line, HTTP and stored jobs.

mod capture;
mod execute;
mod request;
mod result;
mod settings;
mod verdict;

pub use execute::{Executor, Input, Observer, Stream};
pub use request::{Plan, Request, RequestError, Source};
pub use result::{LimitHit, Metrics, OutputFile, Phases, RunResult, Status, Verdict};
pub use settings::{Settings, SettingsError, parse_layers};
