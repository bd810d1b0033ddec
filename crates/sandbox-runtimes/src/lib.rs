//! Languages as this host can run them.
//!
//! A language is a definition file ([`Definition`]); together with the toolchain that is found on the host it becomes
//! a [`Runtime`], from which the commands of its stages are planned. Discovery asks each toolchain to describe itself
//! and remembers the answer ([`Memory`]), because starting an interpreter only to ask its version would double the cost
//! of a run. What stages make once for many runs (packages, compiled programs) is kept in a [`Store`].

mod definition;
mod discover;
mod inside;
mod memory;
mod registry;
mod runtime;
mod store;

pub use definition::{
    Definition, DefinitionError, EntryFrom, Errors, Packages, Pattern, Prepare, StageName, TestedVersions, Warm,
};
pub use discover::{Missing, Places};
pub use inside::Inside;
pub use memory::Memory;
pub use registry::{Registry, UnknownLanguage};
pub use runtime::{
    Environment, Invocation, OUT_DIR, RESULT_DIR, RUNNER_FILE, Runtime, Stage, WarmSelfTest, WarmUp,
    ZYGOTE_LIBRARY_FILE, set_all,
};
pub use store::{Claim, Entry, Kind, Listed, Staging, Store};
