//! What a cell should be, and what it should run.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::archive::Caps;
use crate::layer::LayerSet;
use crate::limits::Limits;

/// The directory in which programs run, as they see it.
pub const WORK_DIR: &str = "/sandbox";

/// The home directory of the user in a cell.
pub const HOME_DIR: &str = "/home/sandbox";

/// Everything about a cell that is decided before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Host directories and files that the cell sees.
    pub mounts: Vec<Mount>,
    /// Writable places besides the usual ones, each with a size of its own. What is to be in them comes with a
    /// command's input files, what they hold in the end goes out with its output files.
    pub volumes: Vec<Volume>,
    /// What its programs may use.
    pub limits: Limits,
    /// What they can reach.
    pub network: Network,
    /// Layers without which the cell must not be made.
    pub required: LayerSet,
}

impl CellSpec {
    /// A cell with the host's system directories, default limits and no network.
    #[must_use]
    pub fn new() -> Self {
        Self {
            mounts: vec![],
            volumes: vec![],
            limits: Limits::default(),
            network: Network::None,
            required: LayerSet::required_by_default(),
        }
    }
}

impl Default for CellSpec {
    fn default() -> Self {
        Self::new()
    }
}

/// A host directory or file shown inside a cell, in addition to the system directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is on the host; absolute and free of symbolic links.
    pub source: PathBuf,
    /// Where it appears in the cell; absolute, and not below a directory that programs can write.
    pub target: PathBuf,
    /// Whether programs can write to it, with the rights of its owner. Otherwise they can read what everyone can.
    pub writable: bool,
}

impl Mount {
    /// A mount that nothing can be written to.
    #[must_use]
    pub fn read_only(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), target: target.into(), writable: false }
    }
}

/// A writable place of its own size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// Where it appears in the cell, under the same rules as a mount.
    pub target: PathBuf,
    /// How many bytes it can hold.
    pub size: u64,
    /// How many files and directories it can hold.
    pub inodes: u64,
}

impl Volume {
    /// What may come out of it: no more than it can hold.
    #[must_use]
    pub fn caps(&self) -> Caps {
        Caps { count: self.inodes, bytes: self.size }
    }
}

/// What a cell can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing: no interface is up.
    None,
    /// A loopback interface of its own.
    Localhost,
    /// A loopback interface of its own with a listening socket on it ([`PROXY_PORT`]) that the caller is handed and
    /// serves as it likes: see [`crate::Cell::take_proxy`].
    Proxy,
}

/// The port of the proxy on a cell's loopback interface.
pub const PROXY_PORT: u16 = 3128;

/// A program to run in a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments. A name without a slash is looked up along `PATH` inside the cell.
    pub argv: Vec<OsString>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory inside the cell.
    pub cwd: PathBuf,
}

impl Command {
    /// A program with its arguments, a minimal environment, in the working directory.
    #[must_use]
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), env: base_environment(), cwd: PathBuf::from(WORK_DIR) }
    }
}

/// The environment that every program in a cell starts with.
#[must_use]
pub fn base_environment() -> Vec<(OsString, OsString)> {
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", HOME_DIR),
        ("USER", "sandbox"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        ("TZ", "UTC"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into()
}
