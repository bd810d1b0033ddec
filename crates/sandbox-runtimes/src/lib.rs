//! Languages as this host can run them.
//!
//! A language is a definition file ([`Definition`]); together with the toolchain that is found on the host it becomes
//! a [`Runtime`], from which a command is planned. Discovery asks each toolchain to describe itself and remembers
//! the answer ([`Memory`]), because starting an interpreter only to ask its version would double the cost of a run.

mod definition;
mod discover;
mod memory;
mod registry;

pub use definition::{Definition, DefinitionError};
pub use discover::{Missing, Runtime};
pub use memory::Memory;
pub use registry::{Registry, UnknownLanguage};
