//! What this host can do: each layer of isolation, tried for real.

use sandbox_sys::process::{Namespaces, SingleThreaded, fork_into};

use crate::error::Failure;
use crate::keeper::Keeper;
use crate::layer::{Layer, LayerSet};
use crate::pools;
pub use crate::pools::SharedPool;
use crate::spec::CellSpec;
use sandbox_base::reason;

/// What was found out about a host.
#[derive(Debug, Clone)]
pub struct HostReport {
    /// The kernel's release.
    pub kernel: String,
    /// Whether this process has root's power, or makes do with a user namespace.
    pub privileged: bool,
    /// `v1`, `v2` or `none`.
    pub cgroups: &'static str,
    /// Each layer.
    pub findings: Vec<Finding>,
    /// Why no cell can be made that meets the policy, if none can.
    pub failure: Option<Failure>,
    /// Whether cells can be made, but only without namespaces.
    pub reduced: bool,
    /// What cells share with the whole kernel without a bound.
    pub shared: Vec<SharedPool>,
}

/// What was found out about a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The layer.
    pub layer: Layer,
    /// Whether it works here.
    pub works: bool,
    /// Why it does not.
    pub why: Option<String>,
}

impl HostReport {
    /// Whether cells that meet the policy can be made.
    #[must_use]
    pub fn meets_policy(&self) -> bool {
        self.failure.is_none()
    }
}

/// Examines the host by making cells. The policy is that these layers must be there. The process must have a single
/// thread.
pub fn examine(required: LayerSet) -> Result<HostReport, Failure> {
    let keeper = Keeper::start()?;
    let full = make(&keeper, LayerSet::required_by_default());
    let reduced = full.is_err();
    // What is missing then is left out, as far as it can be.
    let made = full.or_else(|_| make(&keeper, LayerSet::default()));
    let failure = make(&keeper, required).err();
    let findings = Layer::ALL
        .into_iter()
        .map(|layer| match &made {
            Ok(present) if present.contains(layer) => Finding { layer, works: true, why: None },
            Ok(_) if reduced && LayerSet::required_by_default().contains(layer) => {
                let alone = alone(layer).why;
                let why = alone.unwrap_or_else(|| "it works by itself, but not together with the others".to_owned());
                Finding { layer, works: false, why: Some(why) }
            }
            Ok(_) => Finding { layer, works: false, why: why_missing(&keeper, layer) },
            Err(_) => alone(layer),
        })
        .collect();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let privileged = rustix::process::geteuid().is_root();
    let shared = pools::shared(made.clone().unwrap_or_default(), privileged, &kernel);
    Ok(HostReport {
        kernel,
        privileged,
        shared,
        cgroups: crate::cgroup::version(),
        findings,
        failure,
        reduced: reduced && made.is_ok(),
    })
}

fn make(keeper: &Keeper, required: LayerSet) -> Result<LayerSet, Failure> {
    let mut cell = keeper.create(&CellSpec { required, ..CellSpec::new() })?;
    let ready = cell.ready()?;
    cell.delete()?;
    Ok(ready.isolation)
}

/// Asks for a cell that must have the layer; the refusal gives the reason.
fn why_missing(keeper: &Keeper, layer: Layer) -> Option<String> {
    make(keeper, [layer].into_iter().collect()).err().map(|failure| failure.why)
}

/// Tries a layer by itself, on a host where the whole does not work.
fn alone(layer: Layer) -> Finding {
    let namespace = match layer {
        Layer::User => Some(Namespaces::USER),
        Layer::Pid => Some(Namespaces::PID),
        Layer::Mount => Some(Namespaces::MOUNT),
        Layer::Net => Some(Namespaces::NET),
        Layer::Ipc => Some(Namespaces::IPC),
        Layer::Uts => Some(Namespaces::UTS),
        Layer::Cgroup => Some(Namespaces::CGROUP),
        Layer::Seccomp | Layer::Landlock | Layer::Memory | Layer::Pids | Layer::Cpu => None,
    };
    let why = match (layer, namespace) {
        (_, Some(namespace)) => try_namespace(namespace),
        (Layer::Seccomp, None) if sandbox_sys::seccomp::is_supported() => None,
        (Layer::Landlock, None) if sandbox_sys::landlock::abi_version() > 0 => None,
        (Layer::Seccomp | Layer::Landlock, None) => Some("the kernel does not offer it".to_owned()),
        _ => Some("not examined, because no cell can be made".to_owned()),
    };
    Finding { layer, works: why.is_none(), why }
}

/// Makes a process in a new namespace; without privilege that takes a user namespace with it.
fn try_namespace(namespace: Namespaces) -> Option<String> {
    let proof = SingleThreaded::prove()?;
    let wanted = if rustix::process::geteuid().is_root() { namespace } else { namespace.and(Namespaces::USER) };
    match fork_into(proof, wanted, None, || {}) {
        Ok(child) => {
            let _ = rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty());
            None
        }
        Err(errno) => Some(format!("the kernel refused it ({})", reason(&errno.into()))),
    }
}
