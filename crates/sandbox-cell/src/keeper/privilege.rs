//! The privileges of a keeper: whether it can create namespaces, as root or in a user namespace, and assign ids to
//! cells.

use rustix::thread::CapabilitySet;
use sandbox_base::reason;
use sandbox_sys::process::{Namespaces, SingleThreaded, exit_now, fork_into, unshare};

use crate::error::Failure;
use crate::layer::{Layer, LayerSet};
use crate::rootfs;

/// The layers that are namespaces.
pub(super) fn namespaces() -> LayerSet {
    [Layer::User, Layer::Pid, Layer::Mount, Layer::Net, Layer::Ipc, Layer::Uts, Layer::Cgroup].into_iter().collect()
}

/// Whether this process can create namespaces and assign ids without a user namespace.
pub(super) fn is_privileged() -> bool {
    holds(
        CapabilitySet::SYS_ADMIN
            | CapabilitySet::SETUID
            | CapabilitySet::SETGID
            | CapabilitySet::CHOWN
            | CapabilitySet::NET_ADMIN,
    )
}

/// Whether this process can at least assign ids to cells and do what belongs to it, as root can in most containers.
pub(super) fn can_assign_ids() -> bool {
    holds(
        CapabilitySet::SETUID
            | CapabilitySet::SETGID
            | CapabilitySet::CHOWN
            | CapabilitySet::FOWNER
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::KILL,
    )
}

fn holds(needed: CapabilitySet) -> bool {
    rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Without privileges: enters a user namespace in which the keeper is root and may create the others.
pub(super) fn enter_user_namespace(alone: SingleThreaded) -> Result<(), Failure> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let user_failure = |why: String| Failure::missing(Layer::User, why);
    unshare(alone, Namespaces::USER)
        .map_err(|errno| user_failure(format!("the kernel refused a user namespace ({})", reason(&errno.into()))))?;
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| user_failure(format!("cannot write {file} ({})", reason(&error))))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {uid} 1"))?;
    write("gid_map", format!("0 {gid} 1"))
}

/// Tries what every cell needs, in a separate process: a filter or a security module may refuse it even to a privileged
/// keeper.
pub(super) fn try_namespaces(alone: SingleThreaded) -> Result<(), Failure> {
    let namespaces = Namespaces::PID.and(Namespaces::MOUNT).and(Namespaces::IPC).and(Namespaces::UTS);
    let refused = |layer, why: String| Failure::missing(layer, format!("the kernel refused {why}"));
    let attempt = || {
        let tried = unshare(alone, Namespaces::NET.and(Namespaces::CGROUP))
            .and_then(|()| rootfs::can_mount())
            .and_then(|()| unshare(alone, Namespaces::USER));
        exit_now(i32::from(tried.is_err()));
    };
    let child = fork_into(alone, namespaces, None, attempt)
        .map_err(|errno| refused(Layer::Pid, format!("new namespaces ({})", reason(&errno.into()))))?;
    let ended = rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty());
    match ended.ok().flatten().and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(refused(Layer::Mount, "a root file system or a network namespace".to_owned())),
    }
}
