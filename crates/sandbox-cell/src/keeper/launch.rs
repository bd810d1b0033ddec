//! Starting the keeper, or its launcher: this same program, executed anew with nothing of its caller but the control connection.
//!
//! Every init is a fork of the keeper, so whatever is in the keeper's memory is in PID 1 of every cell. A fork of the caller
//! would carry the caller's configuration, keys and environment there. An exec carries only what is named here: a fixed
//! command line, the variables in [`INHERITED`], the control connection as standard input, and standard error. It also
//! gives keeper and cells an address-space layout that differs from the caller's. `/proc/self/exe` is this very file, even
//! if another was installed in its place meanwhile.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandbox_sys::process::{Child, SingleThreaded, exit_now};

use super::{launcher, serve};
use crate::error::Failure;

/// A process that this program can become. Its name is its whole command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrivilegedRole {
    Keeper,
    Launcher,
}

impl PrivilegedRole {
    fn name(self) -> &'static str {
        match self {
            Self::Keeper => "sandbox-keeper",
            Self::Launcher => "sandbox-launcher",
        }
    }
}

/// The variables that a keeper inherits: where it makes directories for cells without namespaces and for containers, and where
/// builds that measure coverage put their counters.
const INHERITED: [&str; 2] = ["TMPDIR", "LLVM_PROFILE_FILE"];

/// Whether this program can become a keeper or a launcher.
static CAN_BECOME_KEEPER: AtomicBool = AtomicBool::new(false);

/// Runs the keeper or its launcher and ends with it, if this process was started by [`crate::Keeper::start`] or
/// [`crate::Keeper::start_replaceable`]; otherwise returns at once.
///
/// Must be the first call in `main` of every program that starts a keeper: before it reads its configuration, and before it
/// starts a thread.
pub fn keeper_main_if_asked() {
    CAN_BECOME_KEEPER.store(true, Ordering::Relaxed);
    let mut words = std::env::args_os();
    let (name, alone) = (words.next(), words.next().is_none());
    for role in [PrivilegedRole::Keeper, PrivilegedRole::Launcher] {
        if alone && name.as_ref().is_some_and(|name| name == role.name()) {
            exit_now(i32::from(become_role(role).is_err()));
        }
    }
}

fn become_role(role: PrivilegedRole) -> rustix::io::Result<()> {
    let alone = SingleThreaded::prove().ok_or(Errno::PERM)?;
    let stdin = rustix::stdio::stdin();
    if socket_type(stdin)? != SocketType::SEQPACKET {
        return Err(Errno::NOTSOCK);
    }
    // Standard input itself is about to become /dev/null.
    let control = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
    match role {
        PrivilegedRole::Keeper => serve::main(alone, &control),
        PrivilegedRole::Launcher => launcher::main(&control),
    }
}

/// Starts this program again in a role, to serve this connection.
pub(super) fn start(role: PrivilegedRole, control: OwnedFd) -> Result<Child, Failure> {
    const WHAT: &str = "cannot start the keeper";
    if !CAN_BECOME_KEEPER.load(Ordering::Relaxed) {
        // The program would run once more instead of a keeper, and start another.
        return Err(Failure::new(WHAT, "this program cannot become one")
            .with_fix("call sandbox_cell::keeper_main_if_asked first thing in main"));
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0(role.name()).env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let spawned = command.stdin(control).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
    let pid = Pid::from_child(&spawned.map_err(|error| Failure::os(WHAT, error))?);
    // It has not been waited for, so the id is still its own.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Failure::os(WHAT, errno))?;
    Ok(Child { pid, pidfd })
}
