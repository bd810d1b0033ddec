//! One request to run untrusted code in, one result out.
//!
//! Data flows one way: a [`Request`] is checked completely, becomes a [`Plan`] (a function of the request, a runtime and
//! the operator's settings), is carried out ([`Executor::run`]) in fresh cells, one for each stage, and ends as a
//! [`RunResult`], which says what happened, why, and what was used. The same result type serves the command line, HTTP
//! and stored jobs.

mod backend;
pub mod bounded;
mod capture;
mod event;
mod execute;
mod files;
#[cfg(fuzzing)]
pub mod fuzz;
mod images;
mod json;
mod literal;
mod make;
mod network;
mod owner;
mod plan;
mod prestart;
mod request;
mod resolve;
mod result;
mod service;
mod settings;
mod stage;
mod template;
mod toolchains;
mod variables;
mod verdict;
mod volumes;

pub use event::{EventEncoder, Observer, OutputChunk, RunEvent};
pub use execute::Executor;
pub use files::InputFile;
pub use images::{NotFound, own_command};
pub use json::{
    FieldError, FullFile, FullNetwork, JsonFile, JsonNetwork, JsonRequest, JsonTemplate, JsonWebhook, Quantity,
};
pub use network::{NetworkMode, NetworkRequest};
pub use owner::Sharing;
pub use plan::Step;
pub use request::{Request, RequestError, Source};
pub use resolve::HostVariables;
pub use result::{
    CompileResult, FileEncoding, LimitHit, Metrics, OmittedFile, OutputFile, Phases, RunResult, Status, Verdict,
};
pub use sandbox_network::{GATEWAY_THREAD, HostRule, HostUse, NetworkUse, Refusal};
pub use sandbox_pool::{StartKind, WarmStart};
pub use service::{CheckedRequest, Refused, RunService};
pub use settings::{Isolation, Settings, SettingsError, parse_layers};
pub use stage::{Input, Stream};
pub use template::{RENDER_COMMAND, TemplateRequest, render};
pub use variables::{VARIABLES, Variable, limits};
pub use volumes::VolumeRequest;
