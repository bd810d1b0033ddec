//! Backends: cells in containers of an OCI runtime, Docker or Podman, instead of native cells.
//!
//! # Theory of operation
//!
//! To callers a [`Cell`](sandbox_cell::Cell) is a connection that carries commands, descriptors and outcomes, whichever
//! process serves it. The keeper serves native cells itself. For other backends it forks a bridge for each cell
//! (`bridge`), which starts a `Container` and runs this same program in it, the guest ([`serve_in_container()`]). The
//! two communicate over the container's standard streams (`frames`), and the bridge translates between the guest and
//! the caller.
//!
//! So files enter and leave as a stream, as in native cells, and the host never opens a path in a container. Inside,
//! the guest creates a cell with reduced isolation, so that the syscall filter and Landlock apply in the container as
//! well. Both the guest and the bridge enforce deadlines: a container that does not respond is killed.

mod bridge;
mod docker;
mod environment;
mod frames;
mod group;
mod guest;
mod oci;
mod profile;
mod root;

use serde::{Deserialize, Serialize};

pub use guest::serve_in_container;

use environment::ToolEnvironment;

use sandbox_base::random::random_token;
use sandbox_cell::bridge::{BridgeParams, Counters};
use sandbox_cell::{CellSpec, Failure, Keeper, LayerSet};

/// The first argument of a program that shall call [`serve_in_container()`] with the next one.
pub const GUEST_COMMAND: &str = "__cell";
/// The argument after it if the container was created for one cell.
const CONTAINED: &str = "contained";

/// The mechanism that creates cells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// The keeper.
    #[default]
    Native,
    /// An OCI runtime, by name or path: runc, crun, youki, runsc.
    Oci(String),
    /// Docker, Podman, or another engine with the same command line.
    Docker(Docker),
}

/// The settings of the Docker backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Docker {
    /// The path or name of the client.
    pub program: String,
    /// The mapping of cells to containers.
    pub mode: DockerMode,
    /// The user of programs [default: a dedicated user].
    pub user: Option<String>,
    /// The directory for jobs in an existing container.
    pub job_dir: String,
    /// The network of new containers.
    pub network: String,
}

/// The mapping of cells to containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DockerMode {
    /// A dedicated container for each cell.
    Run,
    /// A few processes in the existing container with this name.
    Exec(String),
}

impl Backend {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Oci(_) => "oci",
            Self::Docker(_) => "docker",
        }
    }
}

/// [`sandbox_cell::keeper_main_if_asked`] for programs that can use other backends.
pub fn keeper_main_if_asked() {
    sandbox_cell::keeper_main_if_asked(Some(bridge_main));
}

/// [`Keeper::start_first`] for programs that can use other backends.
pub fn start_keeper_first() -> Result<Keeper, Failure> {
    Keeper::start_first(Some(bridge_main))
}

/// The settings of a backend's bridges.
#[derive(Debug, Serialize, Deserialize)]
struct BridgeSettings {
    backend: Backend,
    environment: ToolEnvironment,
}

/// Makes a keeper create all further cells with this backend.
pub fn use_backend(keeper: &Keeper, backend: &Backend) -> Result<(), Failure> {
    if *backend == Backend::Native {
        return keeper.use_bridges(None);
    }
    // Only the programs of other backends read variables, so the keeper gets none for native cells.
    let settings = BridgeSettings { backend: backend.clone(), environment: ToolEnvironment::of_this_process() };
    let settings = postcard::to_stdvec(&settings).map_err(|error| failed(&error))?;
    keeper.use_bridges(Some(settings))
}

fn failed(error: &postcard::Error) -> Failure {
    Failure::new("cannot use the backend", error.to_string())
}

/// The bridge to one cell.
fn bridge_main(params: &BridgeParams<'_>) {
    let BridgeParams { settings, spec, caller, ids } = params;
    // The container's user must be able to traverse the directory.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let settings: Result<BridgeSettings, _> = postcard::from_bytes(settings).map_err(|error| failed(&error));
    let container =
        settings.and_then(|BridgeSettings { backend, environment }| container(&backend, &environment, spec, *ids));
    bridge::bridge(spec, caller, container);
}

/// An unpredictable name for a container and its directory, because other users can write to the parent directory.
fn new_id() -> Result<String, Failure> {
    let token = random_token::<8>().map_err(|errno| Failure::os("cannot name the container", errno))?;
    Ok(format!("sandbox-cell-{token}"))
}

/// A container for one cell.
trait Container {
    /// Prepares everything and returns the command that starts the container. The container uses this command's
    /// standard streams.
    fn prepare(&mut self) -> Result<std::process::Command, Failure>;

    /// The specification for the guest.
    fn inner(&self) -> CellSpec;

    /// The layers that the container itself provides.
    fn provides(&self) -> LayerSet;

    /// The resource usage, if it can be determined.
    fn counters(&self) -> Option<Counters>;

    /// Kills everything in the container.
    fn kill(&self);

    /// Removes everything that was created. No process of the container is left.
    fn remove(&mut self);
}

/// Creates the container of a cell. The ids of its root and its user are dedicated to it while it exists.
fn container(
    backend: &Backend,
    environment: &ToolEnvironment,
    spec: &CellSpec,
    ids: Option<((u32, u32), (u32, u32))>,
) -> Result<Box<dyn Container>, Failure> {
    match backend {
        Backend::Native => Err(Failure::new("cannot create a container", "the native backend has none")),
        Backend::Oci(program) => Ok(Box::new(oci::Oci::new(program, environment, spec, ids)?)),
        Backend::Docker(docker) => Ok(docker::container(docker, environment, spec, ids)?),
    }
}
