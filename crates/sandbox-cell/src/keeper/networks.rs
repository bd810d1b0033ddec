//! Network namespaces for cells without a network, used by one cell after another.
//!
//! Creating and destroying a network namespace costs the kernel more than anything else in a cell. A cell without a network
//! leaves nothing in its namespace when its processes have ended:
//!
//! - It has no capability over the namespace, which belongs to another user namespace, so it cannot change interfaces,
//!   routes or settings. Its only interface is a loopback that is down.
//! - Its filter refuses sockets of every family but Unix. A bound Unix socket exists as long as a process has it open, or as
//!   long as it is in flight between two sockets that nothing has open until the kernel's collector finds them.
//! - The kernel counts the sockets of a namespace. A namespace is used again only if init, and with it every process of the
//!   cell, has ended and the count is that of a new namespace. Otherwise it is given up.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox_base::wait::is_readable;
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, unshare};

use crate::spec::{CellSpec, Network};

/// Makes network namespaces for cells, and keeps those that can be used again.
#[derive(Debug)]
pub(super) struct Networks {
    /// How many are kept, used or not. Each takes some hundred KiB of kernel memory.
    most_kept: usize,
    /// Whether a cell has got one.
    used: bool,
    /// Where this process is while it makes none: its own sockets must not be in a namespace of a cell.
    home: Option<OwnedFd>,
    kept: Vec<UsedNetwork>,
}

#[derive(Debug)]
struct UsedNetwork {
    namespace: OwnedFd,
    /// The pidfd of the init of the cell that has used it last.
    user: OwnedFd,
    /// The number of sockets that it had before its first cell.
    sockets: u64,
}

/// A network namespace for a cell that does not exist yet.
#[derive(Debug)]
pub(super) struct FreshNetwork {
    pub(super) namespace: OwnedFd,
    /// The number of sockets in it, if it may be used again.
    sockets: Option<u64>,
}

impl Networks {
    /// Keeps at most so many.
    pub(super) fn new(most_kept: usize) -> Self {
        Self { most_kept, used: false, home: None, kept: vec![] }
    }

    /// A network namespace for a cell.
    pub(super) fn take(&mut self, alone: SingleThreaded, spec: &CellSpec) -> rustix::io::Result<FreshNetwork> {
        // The first cell of a keeper may be its only one. A namespace for this process would then be created for nothing.
        if !std::mem::replace(&mut self.used, true) {
            return create(alone, false);
        }
        if self.home.is_none() {
            unshare(alone, Namespaces::NET)?;
            self.home = Some(open_here()?);
        }
        let found = if spec.network == Network::None && spec.disabled_layers().is_empty() {
            self.find().map_or_else(|| create(alone, true), Ok)
        } else {
            create(alone, false)
        };
        self.home.as_ref().map_or(Ok(()), enter)?;
        found
    }

    /// A namespace whose cell has ended and has left nothing.
    fn find(&mut self) -> Option<FreshNetwork> {
        while let Some(index) = self.kept.iter().position(|network| is_readable(&[&network.user], Duration::ZERO)) {
            let UsedNetwork { namespace, sockets, .. } = self.kept.swap_remove(index);
            if enter(&namespace).is_ok() && sockets_here() == Some(sockets) {
                return Some(FreshNetwork { namespace, sockets: Some(sockets) });
            }
        }
        None
    }

    /// Keeps a namespace for the time when the cell with this init has ended.
    pub(super) fn keep(&mut self, network: FreshNetwork, init: &Child) {
        if self.kept.len() < self.most_kept
            && let (Some(sockets), Ok(user)) = (network.sockets, init.pidfd.try_clone())
        {
            self.kept.push(UsedNetwork { namespace: network.namespace, user, sockets });
        }
    }
}

/// Creates a namespace and moves this process into it.
fn create(alone: SingleThreaded, to_be_kept: bool) -> rustix::io::Result<FreshNetwork> {
    unshare(alone, Namespaces::NET)?;
    Ok(FreshNetwork { namespace: open_here()?, sockets: if to_be_kept { sockets_here() } else { None } })
}

fn enter(namespace: &OwnedFd) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// The network namespace that this process is in.
pub(super) fn open_here() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(c"/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// How many sockets exist in the network namespace that this process is in.
fn sockets_here() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/net/sockstat").ok()?;
    text.strip_prefix("sockets: used ")?.lines().next()?.trim().parse().ok()
}
