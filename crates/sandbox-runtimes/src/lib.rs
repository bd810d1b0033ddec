//! Languages as this host can run them.
//!
//! A language is a definition file ([`Definition`]). Together with the toolchain that is found on the host it becomes a
//! [`Runtime`], from which the commands of its stages are planned. Discovery queries each toolchain for its version and
//! paths and caches the answer ([`ToolchainCache`]), because a query starts the interpreter and would double the cost
//! of a run. Artifacts that stages make for many runs (packages, compiled programs) are kept in an [`ArtifactStore`].

mod artifact_store;
mod definition;
mod discover;
mod image_toolchains;
mod inline_metadata;
mod literals;
mod missing_module;
mod nearest;
mod python_version;
mod registry;
mod runtime;
mod shebang;
mod toolchain_cache;

pub use artifact_store::{ArtifactKind, ArtifactStore, Claim, Entry, ListedArtifact, Staging};
pub use definition::{
    AllowedArguments, ArgumentError, Definition, DefinitionError, EntryFrom, Errors, MissingModule, Packages, Pattern,
    Prepare, PreparePackages, StageName, Standards, TestedVersions, Warm, WholePattern,
};
pub use discover::{Missing, SearchPaths};
pub use image_toolchains::ToolchainImage;
pub use inline_metadata::{InlineError, InlineFormat, InlineMetadata};
pub use literals::{LiteralTypes, Literals};
pub use missing_module::LackedModule;
pub use nearest::nearest;
pub use python_version::Requirement;
pub use registry::{Registry, UnknownLanguage};
pub use runtime::{
    Environment, Invocation, OUT_DIR, RESULT_DIR, RUNNER_FILE, RunMode, Runtime, StageCommand, WarmSelfTest, WarmUp,
    ZYGOTE_LIBRARY_FILE, set_all,
};
pub use shebang::interpreter;
pub use toolchain_cache::ToolchainCache;
