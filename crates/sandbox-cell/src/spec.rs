//! What a cell should be, and what it should run.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::archive::FileCaps;
use crate::layer::LayerSet;
use sandbox_base::limits::Limits;

/// The directory in which programs run, as they see it.
pub const WORK_DIR: &str = "/sandbox";

/// The home directory of the user in a cell.
pub const HOME_DIR: &str = "/home/sandbox";

/// Everything about a cell that is decided before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// An unpacked image whose directories the cell has instead of the host's system directories; absolute and free of
    /// symbolic links.
    pub image: Option<PathBuf>,
    /// Host directories and files that the cell sees.
    pub mounts: Vec<Mount>,
    /// Writable places besides the usual ones, each with a size of its own. What is to be in them comes with a
    /// command's input files, what they hold in the end goes out with its output files.
    pub volumes: Vec<Volume>,
    /// Empty directories at which a command can have something of the host shown ([`crate::Start::mounts`]), so that a
    /// cell can be made before it is known what. Absolute, under the same rules as a mount's target.
    pub slots: Vec<PathBuf>,
    /// Whether it is a zygote's, or for a zygote's child.
    pub role: Role,
    /// What its programs may use.
    pub limits: Limits,
    /// What they can reach.
    pub network: Network,
    /// Layers without which the cell must not be made.
    pub required: LayerSet,
    /// Layers that the cell is made without, so that tests can check that their absence is noticed. A disabled layer is
    /// not required, whatever `required` says. A confined keeper refuses such cells ([`crate::Keeper::confine`]).
    #[cfg(feature = "canary")]
    pub disabled_layers: LayerSet,
}

impl CellSpec {
    /// A cell with the host's system directories, default limits and no network.
    #[must_use]
    pub fn new() -> Self {
        Self {
            image: None,
            mounts: vec![],
            volumes: vec![],
            slots: vec![],
            role: Role::Plain,
            limits: Limits::default(),
            network: Network::None,
            required: LayerSet::required_by_default(),
            #[cfg(feature = "canary")]
            disabled_layers: LayerSet::default(),
        }
    }

    /// The layers that the cell is made without on purpose: none, except in builds for tests of the layers themselves.
    #[must_use]
    pub fn disabled_layers(&self) -> LayerSet {
        #[cfg(feature = "canary")]
        return self.disabled_layers;
        #[cfg(not(feature = "canary"))]
        LayerSet::default()
    }
}

/// What a cell is to a zygote: a program that was warmed up and is forked into other cells.
///
/// A zygote must be able to enter the cells of its children, and those of nobody else. So it has a user and a PID
/// namespace in which nothing but it and they live, the zygote namespace; in it, it has the one capability that entering
/// needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Nothing.
    #[default]
    Plain,
    /// A zygote runs in it. Its programs are in the user and PID namespace of the zygote namespace, not in any of their
    /// own, and have no Landlock rules, which their children would inherit.
    Zygote,
    /// A child of this zygote's is going to run in it; see [`crate::Cell::take_parking`].
    Child(ZygoteNamespaceId),
}

/// A zygote namespace; it ends with the zygote's cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteNamespaceId(pub(crate) u64);

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
    /// Whether it was chosen by a caller and not made by this program, so that it may hold sockets of processes outside.
    pub foreign: bool,
}

impl Mount {
    /// A mount that nothing can be written to.
    #[must_use]
    pub fn read_only(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), target: target.into(), writable: false, foreign: false }
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
    pub fn caps(&self) -> FileCaps {
        FileCaps { count: self.inodes, bytes: self.size }
    }
}

/// What a cell can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing: no interface is up.
    None,
    /// A loopback interface of its own.
    Localhost,
    /// A loopback interface of its own with sockets on it that the caller is handed and serves as it likes: see
    /// [`crate::Cell::take_gateway`]. Whatever the cell reaches, it reaches through them.
    Gateway(Gateway),
}

/// The ways out of a cell. None of them leads anywhere unless the caller serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Whether there is a socket for a proxy, at [`PROXY_PORT`].
    pub proxy: bool,
    /// Whether there is a socket for a resolver of names.
    pub dns: bool,
    /// Ports at which every address in the world seems to be at home in the cell: whatever address a program connects to,
    /// the connection arrives at the port's socket, which knows the address by its own local one. At most
    /// [`MOST_PORTS`].
    pub ports: Vec<u16>,
}

/// The port of the proxy on a cell's loopback interface.
pub const PROXY_PORT: u16 = 3128;

/// The port of the resolver.
pub(crate) const DNS_PORT: u16 = 53;

/// The most ports of a gateway.
pub const MOST_PORTS: usize = 8;

impl Gateway {
    pub(crate) fn is_valid(&self) -> bool {
        let fits = |port: &u16| ![0, DNS_PORT, PROXY_PORT].contains(port);
        let once = |at: usize| !self.ports[..at].contains(&self.ports[at]);
        self.ports.len() <= MOST_PORTS && self.ports.iter().all(fits) && (0..self.ports.len()).all(once)
    }
}

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
