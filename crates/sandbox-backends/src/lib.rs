//! Other ways to make a cell than the keeper's own: by an OCI runtime, or by Docker or Podman.
//!
//! # Theory of operation
//!
//! To callers a [`Cell`](sandbox_cell::Cell) is a connection on which commands, descriptors and outcomes travel; who serves it does
//! not matter. The keeper serves native cells itself. For other backends it forks a bridge for each cell
//! (`bridge`), which has a `Container` made and starts this same program in it ([`serve_in_container()`]). The two talk over the
//! container's standard streams (`frames`); the bridge turns what it hears into what callers expect.
//!
//! So files go in and out as a stream, as they always do, and nothing of a container is ever opened from outside. Inside,
//! the program makes a cell as it does where there are no namespaces, so that the syscall filter and Landlock hold in the
//! container as well. Time is kept inside, and from outside once more: a container that does not answer is killed.

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

/// The first argument with which a program calls [`serve_in_container()`], with what follows it.
pub const GUEST_COMMAND: &str = "__cell";
/// What follows it if the container was made for the one cell.
const CONTAINED: &str = "contained";

/// Who makes cells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// The keeper.
    #[default]
    Native,
    /// An OCI runtime, by its name or path: runc, crun, youki, runsc.
    Oci(String),
    /// Docker, Podman, or what else has the same command line.
    Docker(Docker),
}

/// How Docker makes cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Docker {
    /// The program.
    pub program: String,
    /// What a cell is.
    pub mode: DockerMode,
    /// The user of programs; one that nobody else has if nobody says.
    pub user: Option<String>,
    /// The directory for jobs in a container that is there already.
    pub job_dir: String,
    /// The network of containers that are made.
    pub network: String,
}

/// What a cell is to Docker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DockerMode {
    /// A container of its own.
    Run,
    /// A few processes in a container that is there already, which has this name.
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

/// Runs the keeper and ends with it, if this process was started as one: [`sandbox_cell::keeper_main_if_asked`] for programs
/// whose cells may be made by other backends.
pub fn keeper_main_if_asked() {
    sandbox_cell::keeper_main_if_asked(Some(bridge_main));
}

/// What the bridges of a backend need.
#[derive(Debug, Serialize, Deserialize)]
struct BridgeSettings {
    backend: Backend,
    environment: ToolEnvironment,
}

/// Has a keeper make all cells from now on by this backend.
pub fn use_backend(keeper: &Keeper, backend: &Backend) -> Result<(), Failure> {
    if *backend == Backend::Native {
        return keeper.use_bridges(None);
    }
    // Only programs of other backends read variables, and only then does the keeper get any.
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
    // The container's user has to come by.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let settings: Result<BridgeSettings, _> = postcard::from_bytes(settings).map_err(|error| failed(&error));
    let container =
        settings.and_then(|BridgeSettings { backend, environment }| container(&backend, &environment, spec, *ids));
    bridge::bridge(spec, caller, container);
}

/// A name for a container and its directory that nobody can foresee: others can write where that is.
fn new_id() -> Result<String, Failure> {
    let token = random_token::<8>().map_err(|errno| Failure::os("cannot name the container", errno))?;
    Ok(format!("sandbox-cell-{token}"))
}

/// A container for one cell.
trait Container {
    /// Makes all that it needs, and says how to start it. Its standard streams are this command's.
    fn prepare(&mut self) -> Result<std::process::Command, Failure>;

    /// What the program inside is to make.
    fn inner(&self) -> CellSpec;

    /// The layers that it has by itself.
    fn provides(&self) -> LayerSet;

    /// What has been used in it, if that can be known.
    fn counters(&self) -> Option<Counters>;

    /// Ends everything in it.
    fn kill(&self);

    /// Removes all that was made. Everything in it has ended.
    fn remove(&mut self);
}

/// A container for a cell. The ids of its root and of its user are its own as long as it exists.
fn container(
    backend: &Backend,
    environment: &ToolEnvironment,
    spec: &CellSpec,
    ids: Option<((u32, u32), (u32, u32))>,
) -> Result<Box<dyn Container>, Failure> {
    match backend {
        Backend::Native => Err(Failure::new("cannot make a container", "native cells are none")),
        Backend::Oci(program) => Ok(Box::new(oci::Oci::new(program, environment, spec, ids)?)),
        Backend::Docker(docker) => Ok(docker::container(docker, environment, spec, ids)?),
    }
}
