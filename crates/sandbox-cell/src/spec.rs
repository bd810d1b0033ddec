//! The specification of a cell, and of a command in it.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::archive::FileCaps;
use crate::layer::LayerSet;
use sandbox_base::limits::Limits;

/// The working directory of programs, by its path in the cell.
pub const WORK_DIR: &str = "/sandbox";

/// The home directory of the user in a cell.
pub const HOME_DIR: &str = "/home/sandbox";

/// Everything about a cell that is decided before it is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// An unpacked image that replaces the host's system directories; absolute and free of symbolic links.
    pub image: Option<PathBuf>,
    /// Mounted host directories and files.
    pub mounts: Vec<Mount>,
    /// Additional writable directories, each with its own size. Their content arrives with a command's input files and
    /// leaves with its output files.
    pub volumes: Vec<Volume>,
    /// Empty directories at which a command can mount host directories ([`crate::Start::mounts`]), so that a cell can
    /// be created before they are known. Absolute, under the same rules as a mount's target.
    pub slots: Vec<PathBuf>,
    /// Whether it is for a zygote, or for a zygote's child.
    pub role: Role,
    /// The limits of its programs.
    pub limits: Limits,
    /// The network of the cell.
    pub network: Network,
    /// The size of the pseudo-terminal that its program gets as standard streams, if it gets one; see
    /// [`crate::Cell::take_terminal`].
    pub terminal: Option<WindowSize>,
    /// Layers without which the cell must not be created.
    pub required: LayerSet,
    /// Layers that the cell is created without, so that tests can check that their absence is noticed. A disabled layer
    /// is not required, whatever `required` says. A confined keeper refuses such cells ([`crate::Keeper::confine`]).
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
            terminal: None,
            required: LayerSet::required_by_default(),
            #[cfg(feature = "canary")]
            disabled_layers: LayerSet::default(),
        }
    }

    /// The layers that the cell is deliberately created without: none, except in builds for tests of the layers.
    #[must_use]
    pub fn disabled_layers(&self) -> LayerSet {
        #[cfg(feature = "canary")]
        return self.disabled_layers;
        #[cfg(not(feature = "canary"))]
        LayerSet::default()
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl Default for WindowSize {
    /// The size of the terminals that programs were first written for.
    fn default() -> Self {
        Self { rows: 24, columns: 80 }
    }
}

/// The relation of a cell to a zygote: a warm program that is forked into other cells.
///
/// A zygote must be able to enter the cells of its children, and no others. So it has a zygote namespace: a user and
/// PID namespace that contains only the zygote and its children. In it, the zygote has the one capability that entering
/// needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// None.
    #[default]
    Plain,
    /// A zygote runs in it. Its programs are in the user and PID namespace of the zygote namespace, and have no
    /// Landlock rules, which their children would inherit.
    Zygote,
    /// A child of this zygote will run in it; see [`crate::Cell::take_parking`].
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
    /// The path on the host; absolute and free of symbolic links.
    pub source: PathBuf,
    /// The path in the cell; absolute, and not below a directory that programs can write.
    pub target: PathBuf,
    /// Whether programs can write to it, with the rights of its owner. Otherwise they can read files that everyone can.
    pub writable: bool,
    /// Whether a caller chose it, so that it may hold sockets of processes outside.
    pub foreign: bool,
}

impl Mount {
    /// A read-only mount.
    #[must_use]
    pub fn read_only(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), target: target.into(), writable: false, foreign: false }
    }
}

/// A writable directory with its own size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// The path in the cell, under the same rules as a mount.
    pub target: PathBuf,
    /// The size in bytes.
    pub size: u64,
    /// The maximum number of files and directories.
    pub inodes: u64,
}

impl Volume {
    /// The limits on its output: no more than it can hold.
    #[must_use]
    pub fn caps(&self) -> FileCaps {
        FileCaps { count: self.inodes, bytes: self.size }
    }
}

/// The network of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// No network: no interface is up.
    None,
    /// A dedicated loopback interface.
    Localhost,
    /// A dedicated loopback interface with sockets that the caller serves: see [`crate::Cell::take_gateway`]. The cell
    /// reaches the outside only through them.
    Gateway(Gateway),
}

/// The sockets of a gateway. None of them leads anywhere unless the caller serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Whether there is a socket for a proxy, at [`PROXY_PORT`].
    pub proxy: bool,
    /// Whether there is a socket for a resolver.
    pub dns: bool,
    /// Ports at which every address in the world is local to the cell: whatever address a program connects to, the
    /// connection arrives at the port's socket, whose local address is the one that the program wanted. At most
    /// [`MOST_PORTS`].
    pub ports: Vec<u16>,
}

/// The port of the proxy on a cell's loopback interface.
pub const PROXY_PORT: u16 = 3128;

/// The port of the resolver.
pub(crate) const DNS_PORT: u16 = 53;

/// The maximum number of ports of a gateway.
pub const MOST_PORTS: usize = 8;

impl Gateway {
    pub(crate) fn is_valid(&self) -> bool {
        let fits = |port: &u16| ![0, DNS_PORT, PROXY_PORT].contains(port);
        let once = |at: usize| !self.ports[..at].contains(&self.ports[at]);
        self.ports.len() <= MOST_PORTS && self.ports.iter().all(fits) && (0..self.ports.len()).all(once)
    }
}

/// A command to run in a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments. A name without a slash is looked up along `PATH` inside the cell.
    pub argv: Vec<OsString>,
    /// The complete environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory inside the cell.
    pub cwd: PathBuf,
}

impl Command {
    /// A program with its arguments and a minimal environment, in the working directory.
    #[must_use]
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), env: base_environment(), cwd: PathBuf::from(WORK_DIR) }
    }
}

/// The environment of every program in a cell.
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
