//! Probes the host: tries each layer of isolation.

use sandbox_sys::process::{Namespaces, SingleThreaded, fork_into};

use crate::error::Failure;
use crate::keeper::Keeper;
use crate::layer::{Layer, LayerSet};
use crate::spec::CellSpec;
use crate::unbounded_resources;
pub use crate::unbounded_resources::SharedPool;
use sandbox_base::reason;

/// The result of probing a host.
#[derive(Debug, Clone)]
pub struct HostReport {
    /// The kernel's release.
    pub kernel: String,
    /// Whether this process has root privileges, or needs a user namespace.
    pub privileged: bool,
    /// `v1`, `v2` or `none`.
    pub cgroups: &'static str,
    /// Each layer.
    pub findings: Vec<Finding>,
    /// Why no cell that meets the policy can be created, if so.
    pub failure: Option<Failure>,
    /// Whether cells can be created, but only without namespaces.
    pub reduced: bool,
    /// Kernel resources that cells share without a bound.
    pub shared: Vec<SharedPool>,
}

/// The result for one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The layer.
    pub layer: Layer,
    /// Whether it works here.
    pub works: bool,
    /// Why it does not work.
    pub why: Option<String>,
}

impl HostReport {
    /// Whether cells that meet the policy can be created.
    #[must_use]
    pub fn meets_policy(&self) -> bool {
        self.failure.is_none()
    }
}

/// Probes the host by creating cells. The policy lists the layers that must work. The process must have a single
/// thread.
pub fn examine(required: LayerSet) -> Result<HostReport, Failure> {
    let keeper = Keeper::start()?;
    let full = make(&keeper, LayerSet::required_by_default());
    let reduced = full.is_err();
    // Then missing layers are left out, as far as possible.
    let made = full.or_else(|_| make(&keeper, LayerSet::default()));
    let failure = make(&keeper, required).err();
    let findings = Layer::ALL
        .into_iter()
        .map(|layer| match &made {
            Ok(present) if present.contains(layer) => Finding { layer, works: true, why: None },
            Ok(_) if reduced && LayerSet::required_by_default().contains(layer) => {
                let alone = alone(layer).why;
                let why = alone.unwrap_or_else(|| "it works alone, but not together with the other layers".to_owned());
                Finding { layer, works: false, why: Some(why) }
            }
            Ok(_) => Finding { layer, works: false, why: why_missing(&keeper, layer) },
            Err(_) => alone(layer),
        })
        .collect();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let privileged = rustix::process::geteuid().is_root();
    let shared = unbounded_resources::shared(made.clone().unwrap_or_default(), privileged, &kernel);
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

/// Requests a cell that must have the layer; the refusal gives the reason.
fn why_missing(keeper: &Keeper, layer: Layer) -> Option<String> {
    make(keeper, [layer].into_iter().collect()).err().map(|failure| failure.why)
}

/// Tries a layer alone, on a host where a cell with all layers fails.
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
        (Layer::Seccomp | Layer::Landlock, None) => Some("the kernel does not support it".to_owned()),
        _ => Some("not examined, because no cell can be created".to_owned()),
    };
    Finding { layer, works: why.is_none(), why }
}

/// Creates a process in a new namespace; without privileges, in a new user namespace too.
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
