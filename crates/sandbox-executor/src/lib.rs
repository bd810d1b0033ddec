//! From a request to run untrusted code to its result.
//!
//! Data flows one way: a [`Request`] is checked completely ([`RunService::check`]), becomes a plan (a function of the
//! request, a runtime, the operator's settings and facts about the host), is carried out in fresh cells, one for each
//! stage ([`RunService::run`]), and ends as a [`RunResult`] with the verdict, the output and the resource usage. The
//! same result type serves the command line, HTTP and stored jobs.

mod artifacts;
mod backend;
pub mod bounded;
mod cache_key;
mod event;
mod execute;
mod face;
#[cfg(fuzzing)]
pub mod fuzz;
mod hint;
mod images;
mod input_files;
mod json;
mod json_input;
mod last_value;
mod network;
mod output_capture;
mod output_files;
mod owner;
mod plan;
mod preparation;
mod request;
mod resolve;
mod result;
mod service;
mod settings;
pub mod shared;
mod stage;
mod status_line;
mod template;
mod terminal;
mod toolchains;
mod variables;
mod verdict;
mod volumes;
mod warm_start;

pub use event::{EventEncoder, Observer, OutputChunk, RunEvent};
pub use execute::Executor;
pub use face::Face;
pub use images::{NotFound, own_command};
pub use input_files::{InputFile, MOST_BYTES, MOST_FILES};
pub use json::{
    FieldError, FileLink, FullFile, FullNetwork, JsonFile, JsonNetwork, JsonRequest, JsonSchedule, JsonTemplate,
    JsonWebhook, Quantity, own_size,
};
pub use json_input::{EncodedInput, JsonInput};
pub use network::{NetworkMode, NetworkRequest};
pub use owner::Sharing;
pub use plan::Step;
pub use preparation::{Preparation, PreparationState, PreparePriority};
pub use request::{Request, RequestError, Source};
pub use resolve::HostVariables;
pub use result::{
    CompileResult, FileEncoding, LimitHit, Metrics, OmittedFile, OutputFile, Phases, RunResult, Status, Verdict,
};
pub use sandbox_cell::WindowSize;
pub use sandbox_network::{GATEWAY_THREAD, HostRule, HostUse, NetworkUse, Refusal};
pub use sandbox_pool::{PoolStatistics, StartKind, WarmStart};
pub use service::{CheckedRequest, Refused, RunService};
pub use settings::{Isolation, Settings, SettingsError, parse_layers};
pub use stage::{Input, Stream};
pub use template::{RENDER_COMMAND, TemplateRequest, render};
pub use terminal::{TerminalInput, TerminalWindow};
pub use variables::{VARIABLES, Variable, VariableDefault};
pub use volumes::VolumeRequest;
