//! User namespaces for the cells of a zygote's children, used by one cell after another.
//!
//! Creating one takes two processes and four files. It depends on nothing but the ids of its cell, and a cell leaves
//! nothing in it when its processes have ended:
//!
//! - Its id map can be written once, and no namespace can be created below it.
//! - Its settings can be changed only through a writable `/proc/sys`, which no cell has.
//! - The filter refuses the calls that store keys, which a user namespace keeps for its users.
//! - The resources that the kernel counts for its users are released with the processes that hold them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use sandbox_base::wait::{is_readable, timespec};
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, exit_now, fork_into, unshare};
use serde::{Deserialize, Serialize};

use super::factory::kill_and_wait;
use crate::identity::{self, acting_as};
use crate::rootfs;
use crate::wire::{self, Received};

/// The maximum number of namespaces that are kept, used or not.
const MOST_KEPT: usize = 64;

/// The time limit of a step of a helper.
const STEP: Timespec = timespec(Duration::from_secs(1));

/// The ids of a cell's user namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamespaceIds {
    /// The content of its id map.
    pub(super) map: String,
    /// The user that is charged for its resources and becomes its root, if that is another one than the keeper's. If it
    /// were the host's root, root would run out of message queues, signals and timers.
    pub(super) owner: Option<u32>,
}

/// Makes user namespaces for cells, and keeps them.
#[derive(Debug, Default)]
pub(super) struct UserNamespaces {
    /// The processes of this PID namespace, through which id maps are written.
    proc: Option<OwnedFd>,
    kept: Vec<UsedUserNamespace>,
}

#[derive(Debug)]
struct UsedUserNamespace {
    ids: NamespaceIds,
    namespace: OwnedFd,
    /// The pidfd of the init of the cell that has used it last.
    user: OwnedFd,
}

/// The messages of the process that creates a user namespace.
#[derive(Debug, Serialize, Deserialize)]
enum FromHelper {
    /// The namespace comes with this message, and lacks its ids.
    NeedsIds,
    /// The namespace is complete.
    Done,
}

impl UserNamespaces {
    /// A user namespace with these ids, which no living process is in.
    pub(super) fn take(&mut self, alone: SingleThreaded, ids: &NamespaceIds) -> rustix::io::Result<OwnedFd> {
        let free = |used: &UsedUserNamespace| used.ids == *ids && is_readable(&[&used.user], Duration::ZERO);
        if let Some(index) = self.kept.iter().position(free) {
            return Ok(self.kept.swap_remove(index).namespace);
        }
        if self.proc.is_none() {
            self.proc = Some(rootfs::new_proc(false)?);
        }
        self.proc.as_ref().map_or(Err(Errno::NOENT), |proc| create(alone, proc, ids))
    }

    /// Keeps a namespace for the time when the cell with this init has ended.
    pub(super) fn keep(&mut self, namespace: OwnedFd, ids: NamespaceIds, init: &Child) {
        if self.kept.len() < MOST_KEPT
            && let Ok(user) = init.pidfd.try_clone()
        {
            self.kept.push(UsedUserNamespace { ids, namespace, user });
        }
    }
}

/// Creates a user namespace in a helper process, gives it its ids, and forbids namespaces below it.
fn create(alone: SingleThreaded, proc: &OwnedFd, ids: &NamespaceIds) -> rustix::io::Result<OwnedFd> {
    let (ours, theirs) = wire::pair()?;
    let helper = fork_into(alone, Namespaces::NONE, None, || {
        let made = help(alone, &theirs, proc, ids);
        exit_now(i32::from(made.is_err()));
    })?;
    drop(theirs);
    let created = (|| {
        let (FromHelper::NeedsIds, Some(namespace)) = receive(&ours)? else { return Err(Errno::PROTO) };
        let pid = helper.pid.as_raw_nonzero();
        for (file, text) in [("setgroups", "deny"), ("uid_map", &ids.map), ("gid_map", &ids.map)] {
            let path = format!("{pid}/{file}");
            let file = rustix::fs::openat(proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
        }
        rustix::io::write(&ours, b"!")?;
        match receive(&ours)? {
            (FromHelper::Done, _) => Ok(namespace),
            (FromHelper::NeedsIds, _) => Err(Errno::PROTO),
        }
    })();
    kill_and_wait(&helper);
    created
}

fn receive(socket: &OwnedFd) -> rustix::io::Result<(FromHelper, Option<OwnedFd>)> {
    if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&STEP))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    match wire::receive(socket, &mut [0; 64], RecvFlags::empty())? {
        Received::Message(message, mut fds) => Ok((message, fds.pop())),
        Received::Closed => Err(Errno::PIPE),
    }
}

/// The helper's part.
fn help(alone: SingleThreaded, socket: &OwnedFd, proc: &OwnedFd, ids: &NamespaceIds) -> rustix::io::Result<()> {
    let make = || unshare(alone, Namespaces::USER);
    ids.owner.map_or_else(make, |owner| acting_as(owner, make))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let namespace = rustix::fs::openat(proc, c"self/ns/user", flags, Mode::empty())?;
    wire::send(socket, &FromHelper::NeedsIds, &[namespace.as_fd()], SendFlags::empty())?;
    rustix::io::read(socket, &mut [0])?;
    if ids.owner.is_some() {
        identity::take((0, 0))?;
    }
    // The kernel itself refuses nested user namespaces, even without the filter.
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let nested = rustix::fs::openat(proc, c"sys/user/max_user_namespaces", flags, Mode::empty())?;
    rustix::io::write(&nested, b"0")?;
    wire::send(socket, &FromHelper::Done, &[], SendFlags::empty())
}
