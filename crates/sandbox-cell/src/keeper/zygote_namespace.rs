//! A zygote namespace: the user and PID namespace that a zygote shares with the cells of its children, and the process
//! that creates cells in it.
//!
//! Entering a namespace requires privileges over its user namespace, and a PID namespace can only be entered from an
//! ancestor. The cells of a zygote's children must therefore be created inside the user and PID namespace of the
//! zygote. The keeper must not be in them, so a child of the keeper is. It is the first process of the PID namespace,
//! which ends with it, and it does one thing: it creates a cell's init when the keeper asks for one. The keeper handles
//! everything else (cgroups, deadlines, messages), as for any other cell.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use sandbox_base::wait::timespec;
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, fork_into};
use serde::{Deserialize, Serialize};

use super::networks::Networks;
use super::user_namespaces::{NamespaceIds, UserNamespaces};
use crate::environment::{CellEnvironment, ZygoteParts};
use crate::identity;
use crate::init::{self, Duties, Filters, InitParams};
use crate::layer::{Layer, LayerSet};
use crate::rootfs::{self, SocketsShown};
use crate::spec::{CellSpec, Mount, Role, Volume};
use crate::syscalls::EntryKey;
use crate::wire::{self, Received};

/// The parameters of a cell's init. Its connection comes with this message, and perhaps the cgroup in which it is
/// created.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InitOrder {
    pub(super) spec: CellSpec,
    pub(super) owner: (u32, u32),
    pub(super) user: NamespaceIds,
    pub(super) without: LayerSet,
    pub(super) init_ids: Option<(u32, u32)>,
    pub(super) program_ids: Option<(u32, u32)>,
    pub(super) duties: Duties,
}

#[derive(Debug, Serialize, Deserialize)]
enum FromZygoteNamespace {
    /// It was created; its pidfd comes with this message.
    Made,
    /// It was not created, and why.
    Failed(i32),
}

/// A zygote namespace, as the keeper sees it. [`ZygoteNamespace::end`] ends everything in it.
#[derive(Debug)]
pub(super) struct ZygoteNamespace {
    socket: OwnedFd,
    child: Child,
    /// The key with which its zygote enters cells.
    pub(super) key: EntryKey,
}

/// The parameters of a zygote namespace.
pub(super) struct ZygoteNamespaceParams<'a> {
    /// The content of its id map.
    pub(super) map: &'a str,
    /// The host user that is charged for its resources, if that is not the keeper's user.
    pub(super) owner: Option<u32>,
    /// The filters of the inits of its children's cells, and of the zygote itself.
    pub(super) children: Filters,
    pub(super) zygote: Filters,
    pub(super) key: EntryKey,
}

impl ZygoteNamespace {
    /// Creates a zygote namespace that contains the ids of `map`.
    pub(super) fn start(
        alone: SingleThreaded,
        proc: &OwnedFd,
        params: &ZygoteNamespaceParams<'_>,
    ) -> rustix::io::Result<Self> {
        let (ours, theirs) = wire::pair()?;
        let namespaces = Namespaces::USER.and(Namespaces::PID);
        let fork = || fork_into(alone, namespaces, None, || main(alone, &theirs, params));
        let child = params.owner.map_or_else(fork, |owner| identity::acting_as(owner, fork))?;
        let zygote_namespace = Self { socket: ours, child, key: params.key };
        let pid = zygote_namespace.child.pid.as_raw_nonzero();
        for file in ["uid_map", "gid_map"] {
            let path = format!("{pid}/{file}");
            let file = rustix::fs::openat(proc, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            if let Err(errno) = file.and_then(|file| rustix::io::write(&file, params.map.as_bytes())) {
                super::factory::kill_and_wait(&zygote_namespace.child);
                return Err(errno);
            }
        }
        Ok(zygote_namespace)
    }

    /// Kills everything in it, without waiting: the returned process has to be reaped when it has ended, which takes as
    /// long as the slowest process in the zygote namespace.
    pub(super) fn end(self) -> Child {
        let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
        self.child
    }

    /// Requests a cell's init.
    pub(super) fn make(
        &self,
        order: &InitOrder,
        socket: BorrowedFd<'_>,
        birthplace: Option<BorrowedFd<'_>>,
    ) -> rustix::io::Result<Child> {
        let fds: Vec<_> = [socket].into_iter().chain(birthplace).collect();
        wire::send(&self.socket, order, &fds, SendFlags::DONTWAIT)?;
        // This takes less than a millisecond; every other cell waits meanwhile.
        if !answers(&self.socket)? {
            // A late answer would be taken for the answer to another request.
            let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
            return Err(Errno::TIMEDOUT);
        }
        let mut buffer = [0; 64];
        match wire::receive(&self.socket, &mut buffer, RecvFlags::empty())? {
            Received::Message(FromZygoteNamespace::Made, mut fds) => {
                let pidfd = fds.pop().ok_or(Errno::PROTO)?;
                Ok(Child { pid: pid_behind(&pidfd).ok_or(Errno::SRCH)?, pidfd })
            }
            Received::Message(FromZygoteNamespace::Failed(errno), _) => Err(Errno::from_raw_os_error(errno)),
            Received::Closed => Err(Errno::PIPE),
        }
    }
}

/// How long a zygote namespace may take to create an init.
const MAKE: Timespec = timespec(Duration::from_secs(1));

/// Waits for an answer. Returns false if none comes.
fn answers(socket: &OwnedFd) -> rustix::io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&MAKE)) {
            Err(Errno::INTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}

/// The id of the process behind a pidfd, in the keeper's PID namespace.
fn pid_behind(pidfd: &OwnedFd) -> Option<Pid> {
    use std::os::fd::AsRawFd;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Pid::from_raw(pid.trim().parse().ok()?)
}

/// The main function of the zygote namespace's process: creates inits until the keeper is gone.
fn main(alone: SingleThreaded, socket: &OwnedFd, params: &ZygoteNamespaceParams<'_>) {
    let _ = serve(alone, socket, params);
}

fn serve(alone: SingleThreaded, socket: &OwnedFd, params: &ZygoteNamespaceParams<'_>) -> rustix::io::Result<()> {
    let _ = rustix::thread::set_name(c"sandbox-zygotes");
    sandbox_sys::process::close_all_except(&[socket.as_fd()])?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Inits that end need not be reaped: the keeper watches a pidfd.
    sandbox_sys::signal::ignore([libc::SIGCHLD]);
    let mut buffer = vec![0; wire::MAX_MESSAGE];
    let mut begun = false;
    // Under load as many cells end as runs do at once.
    let mut shared = SharedParts { template: None, networks: Networks::new(16), users: UserNamespaces::default() };
    loop {
        shared.networks.wait_for_message(socket)?;
        match wire::receive(socket, &mut buffer, RecvFlags::empty())? {
            Received::Message(order, fds) => {
                if !std::mem::replace(&mut begun, true) {
                    if params.owner.is_some() {
                        // The ids exist now. Changing the user id also clears the parent-death signal.
                        identity::take((0, 0))?;
                        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                    }
                    // Libraries recognise a fork by a new process id. The children of the zygote have id 3 in their cells,
                    // after init and the process in between, so the zygote itself, after its init, must not have it here.
                    fork_into(alone, Namespaces::NONE, None, || sandbox_sys::process::exit_now(0))?;
                    // One UTS namespace serves all cells: none has a privilege to change it.
                    sandbox_sys::process::unshare(alone, Namespaces::UTS)?;
                    init::set_host_name()?;
                }
                let made = make(alone, &order, &fds, params, &mut shared);
                let answer = match &made {
                    Ok(_) => FromZygoteNamespace::Made,
                    Err(errno) => FromZygoteNamespace::Failed(errno.raw_os_error()),
                };
                let child: Vec<_> = made.iter().map(|child| child.pidfd.as_fd()).collect();
                wire::send(socket, &answer, &child, SendFlags::empty())?;
            }
            Received::Closed => return Ok(()),
        }
    }
}

/// What the cells of a zygote's children share or use one after another.
struct SharedParts {
    /// The template of their roots, which this process has, once there is one.
    template: Option<Template>,
    networks: Networks,
    users: UserNamespaces,
}

/// The root that this process has, and that cells with these parts get copies of.
struct Template {
    mounts: Vec<Mount>,
    volumes: Vec<Volume>,
    slots: Vec<PathBuf>,
    sockets: SocketsShown,
}

impl SharedParts {
    /// Makes sure that this process has the root that the cell gets a copy of, if it is to get one.
    fn template(&mut self, alone: SingleThreaded, spec: &CellSpec) -> rustix::io::Result<Option<SocketsShown>> {
        // The cells of all children are alike. The zygote's own is made before them, and once.
        if !matches!(spec.role, Role::Child(_)) || spec.image.is_some() || !spec.disabled_layers().is_empty() {
            return if self.template.is_none() { Ok(None) } else { Err(Errno::INVAL) };
        }
        if self.template.is_none() {
            let made = rootfs::become_template(alone, &rootfs::Parts::new(spec, &[], false));
            let sockets = made.map_err(|error| error.errno())?;
            let CellSpec { mounts, volumes, slots, .. } = spec.clone();
            self.template = Some(Template { mounts, volumes, slots, sockets });
        }
        let same = |known: &&Template| {
            (&known.mounts, &known.slots) == (&spec.mounts, &spec.slots)
                && known
                    .volumes
                    .iter()
                    .map(|volume| &volume.target)
                    .eq(spec.volumes.iter().map(|volume| &volume.target))
        };
        self.template.as_ref().filter(same).map(|known| Some(known.sockets)).ok_or(Errno::INVAL)
    }
}

fn make(
    alone: SingleThreaded,
    order: &InitOrder,
    fds: &[OwnedFd],
    params: &ZygoteNamespaceParams<'_>,
    shared: &mut SharedParts,
) -> rustix::io::Result<Child> {
    let socket = fds.first().ok_or(Errno::PROTO)?;
    let has = |layer| !order.without.contains(layer);
    let template = shared.template(alone, &order.spec)?;
    let network = shared.networks.take(alone, &order.spec)?;
    let user = has(Layer::User).then(|| shared.users.take(alone, &order.user)).transpose()?;
    let parts = ZygoteParts { user: user.as_ref(), template, network: &network.namespace };
    let params = InitParams {
        alone,
        socket,
        spec: &order.spec,
        environment: CellEnvironment::ZygoteNamespace(parts),
        owner: order.owner,
        without: order.without,
        init_ids: order.init_ids,
        program_ids: order.program_ids,
        filters: if order.spec.role == Role::Zygote { &params.zygote } else { &params.children },
        duties: order.duties,
    };
    let namespaces = [(Layer::Pid, Namespaces::PID), (Layer::Ipc, Namespaces::IPC)]
        .into_iter()
        .filter(|(layer, _)| has(*layer))
        .fold(Namespaces::MOUNT, |all, (_, namespace)| all.and(namespace));
    let child = fork_into(alone, namespaces, fds.get(1).map(AsFd::as_fd), || init::main(&params))?;
    shared.networks.keep(network, &child);
    if let Some(user) = user {
        shared.users.keep(user, order.user.clone(), &child);
    }
    Ok(child)
}
