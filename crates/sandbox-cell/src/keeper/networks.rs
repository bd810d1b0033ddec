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
//!
//! A pool holds cells that wait for a run. Their namespaces do not count towards the bound on kept ones, which is about
//! memory that no cell uses.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox_base::wait::timespec;
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, unshare};

use crate::spec::{CellSpec, Network};

/// Makes network namespaces for cells, and keeps those that can be used again.
#[derive(Debug)]
pub(super) struct Networks {
    /// How many are kept that no cell uses. Each takes some hundred KiB of kernel memory.
    most_free: usize,
    /// Whether a cell has got one.
    used: bool,
    /// One that was created for the first cell.
    prepared: Option<OwnedFd>,
    /// Where this process is while it makes none: its own sockets must not be in a namespace of a cell.
    home: Option<OwnedFd>,
    /// Those of cells that have not been seen to end.
    in_use: Vec<UsedNetwork>,
    /// Those whose cells have ended, the first of them first: what was in flight in them has had the most time to go.
    free: VecDeque<KeptNetwork>,
}

#[derive(Debug)]
struct KeptNetwork {
    namespace: OwnedFd,
    sockets: SocketCount,
}

/// The number of sockets in a network namespace, which can be read from outside.
#[derive(Debug)]
pub(super) struct SocketCount {
    statistics: File,
    /// The number before the first cell.
    before: u64,
}

#[derive(Debug)]
struct UsedNetwork {
    network: KeptNetwork,
    /// The pidfd of the init of the cell that uses it.
    user: OwnedFd,
}

/// A network namespace for a cell that does not exist yet.
#[derive(Debug)]
pub(super) struct FreshNetwork {
    pub(super) namespace: OwnedFd,
    /// Present if it may be used again.
    sockets: Option<SocketCount>,
}

impl Networks {
    /// Keeps at most so many that no cell uses.
    pub(super) fn new(most_free: usize) -> Self {
        Self { most_free, used: false, prepared: None, home: None, in_use: vec![], free: VecDeque::new() }
    }

    /// Creates the namespace of the first cell, and comes back to the network of a privileged keeper. If that fails, the
    /// error is that of the first cell, which tries again.
    pub(super) fn prepare(&mut self, alone: SingleThreaded, home: &OwnedFd) {
        if let Ok(network) = create(alone, false)
            && enter(home).is_ok()
        {
            self.prepared = Some(network.namespace);
        }
    }

    /// A network namespace for a cell.
    pub(super) fn take(&mut self, alone: SingleThreaded, spec: &CellSpec) -> rustix::io::Result<FreshNetwork> {
        // The first cell of a keeper may be its only one. A namespace for this process would then be created for nothing.
        if !std::mem::replace(&mut self.used, true) {
            return match self.prepared.take() {
                Some(namespace) => Ok(FreshNetwork { namespace, sockets: None }),
                None => create(alone, false),
            };
        }
        let may_be_kept = spec.network == Network::None && spec.disabled_layers().is_empty();
        if may_be_kept && let Some(found) = self.find() {
            return Ok(found);
        }
        if self.home.is_none() {
            unshare(alone, Namespaces::NET)?;
            self.home = Some(open_here()?);
        }
        let created = create(alone, may_be_kept);
        self.home.as_ref().map_or(Ok(()), enter)?;
        created
    }

    /// A namespace whose cell has ended and has left nothing.
    fn find(&mut self) -> Option<FreshNetwork> {
        if self.free.is_empty() {
            let _ = self.collect(None, Some(Duration::ZERO));
        }
        while let Some(KeptNetwork { namespace, sockets }) = self.free.pop_front() {
            if sockets.now() == Some(sockets.before) {
                return Some(FreshNetwork { namespace, sockets: Some(sockets) });
            }
        }
        None
    }

    /// Keeps a namespace for the time when the cell with this init has ended.
    pub(super) fn keep(&mut self, network: FreshNetwork, init: &Child) {
        if let (Some(sockets), Ok(user)) = (network.sockets, init.pidfd.try_clone()) {
            self.in_use.push(UsedNetwork { network: KeptNetwork { namespace: network.namespace, sockets }, user });
        }
    }

    /// Gives up namespaces that are free and too many. To be called when cells have ended.
    pub(super) fn trim(&mut self) {
        if self.may_be_too_many() {
            let _ = self.collect(None, Some(Duration::ZERO));
        }
    }

    /// Waits for a message on this socket. Meanwhile, as cells end, gives up namespaces that are free and too many.
    pub(super) fn wait_for_message(&mut self, socket: &OwnedFd) -> rustix::io::Result<()> {
        while self.may_be_too_many() && !self.collect(Some(socket), None)? {}
        Ok(())
    }

    fn may_be_too_many(&self) -> bool {
        self.in_use.len() + self.free.len() > self.most_free
    }

    /// Waits until a cell has ended or this socket is readable, and collects the namespaces of all cells that have ended.
    /// Returns whether the socket is readable.
    fn collect(&mut self, socket: Option<&OwnedFd>, patience: Option<Duration>) -> rustix::io::Result<bool> {
        let users = self.in_use.iter().map(|used| &used.user);
        let mut fds: Vec<_> = users.chain(socket).map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, patience.map(timespec).as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ready.iter().copied();
        for UsedNetwork { network, .. } in self.in_use.extract_if(.., |_| ended.next().unwrap_or(false)) {
            if self.free.len() < self.most_free {
                self.free.push_back(network);
            }
        }
        Ok(socket.is_some() && ready.last() == Some(&true))
    }
}

/// Creates a namespace and moves this process into it.
fn create(alone: SingleThreaded, to_be_kept: bool) -> rustix::io::Result<FreshNetwork> {
    unshare(alone, Namespaces::NET)?;
    Ok(FreshNetwork { namespace: open_here()?, sockets: if to_be_kept { SocketCount::here() } else { None } })
}

fn enter(namespace: &OwnedFd) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// The network namespace that this process is in.
pub(super) fn open_here() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(c"/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

impl SocketCount {
    /// Of the network namespace that this process is in.
    fn here() -> Option<Self> {
        let count = Self { statistics: File::open("/proc/self/net/sockstat").ok()?, before: 0 };
        Some(Self { before: count.now()?, ..count })
    }

    /// How many sockets exist in the namespace in which the file was opened. The kernel writes the file anew for each read
    /// from its beginning.
    fn now(&self) -> Option<u64> {
        let mut start = [0; 64];
        let length = self.statistics.read_at(&mut start, 0).ok()?;
        let text = std::str::from_utf8(&start[..length]).ok()?;
        text.strip_prefix("sockets: used ")?.split_once('\n')?.0.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    /// The init of a cell, which ends when its input is closed.
    fn cell(networks: &mut Networks) -> std::process::Child {
        let process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let pid = Pid::from_child(&process);
        let init = Child { pid, pidfd: pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd") };
        networks
            .keep(FreshNetwork { namespace: open_here().expect("a namespace"), sockets: SocketCount::here() }, &init);
        process
    }

    fn end(mut cell: std::process::Child) {
        drop(cell.stdin.take());
        cell.wait().expect("ended");
    }

    #[test]
    fn only_free_namespaces_are_bounded() {
        let mut networks = Networks::new(2);
        let mut cells: Vec<_> = (0..5).map(|_| cell(&mut networks)).collect();
        networks.trim();
        assert_eq!((networks.in_use.len(), networks.free.len()), (5, 0), "idle cells keep theirs");
        end(cells.remove(2));
        networks.trim();
        assert_eq!((networks.in_use.len(), networks.free.len()), (4, 1));
        cells.into_iter().for_each(end);
        networks.trim();
        assert_eq!((networks.in_use.len(), networks.free.len()), (0, 2));
    }

    #[test]
    fn surplus_is_given_up_while_waiting_for_a_message() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut networks = Networks::new(1);
        let cells: Vec<_> = (0..3).map(|_| cell(&mut networks)).collect();
        rustix::io::write(&writer, b"x").expect("a message");
        networks.wait_for_message(&reader).expect("a message");
        assert_eq!((networks.in_use.len(), networks.free.len()), (3, 0), "the message comes first");
        rustix::io::read(&reader, &mut [0]).expect("read");
        cells.into_iter().for_each(end);
        networks.wait_for_message(&reader).expect("nothing is left to wait for");
        assert_eq!((networks.in_use.len(), networks.free.len()), (0, 1));
    }
}
