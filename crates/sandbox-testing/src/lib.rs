//! Helpers that the tests of this workspace share: the command line, servers, Redis, a package index, and checks of
//! what the host offers. It is only a development dependency, and depends on no other crate of the workspace.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a test that cannot continue should panic"
)]

pub mod command;
pub mod features;
pub mod frozen;
mod gate;
pub mod memory;
pub mod needs;
pub mod package_index;
pub mod redact;
mod redis;
mod server;
mod shell_image;
mod staged;
mod terminal;
mod wait;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use gate::Gate;
pub use redis::RedisServer;
pub use server::TestServer;
pub use shell_image::shell_image;
pub use staged::staged_languages;
pub use terminal::TestTerminal;
pub use wait::{GuardedChild, PATIENCE, eventually};

/// The root of the repository.
pub fn repository() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        own.ancestors().nth(2).unwrap().to_owned()
    })
}

/// Where cargo puts the programs of the profile under test: the parent of the directory that holds test programs.
pub fn build_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        own.ancestors().find(|dir| dir.ends_with("deps")).and_then(Path::parent).unwrap().to_owned()
    })
}

/// The directory in which test programs may keep files, `CARGO_TARGET_TMPDIR`.
pub fn scratch_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = build_dir().parent().unwrap().join("tmp");
        std::fs::create_dir_all(&dir).unwrap();
        dir
    })
}

/// The cache of the tests: compiled programs and packages.
pub fn data_dir() -> PathBuf {
    scratch_dir().join("data")
}
