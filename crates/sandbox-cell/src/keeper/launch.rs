//! Starting the keeper, or its launcher, with nothing of its caller but the control connection.
//!
//! Every init is a fork of the keeper, so whatever is in the keeper's memory is in PID 1 of every cell. An ordinary fork of
//! the caller would carry the caller's configuration, keys and environment there. There are two ways without that:
//!
//! - A server executes its own program anew ([`start`]). That carries only what is named here: a fixed command line, the
//!   variables in [`INHERITED`], the control connection as standard input, and standard error. It also gives keeper and
//!   cells an address-space layout that differs from the caller's. `/proc/self/exe` is this very file, even if another was
//!   installed in its place meanwhile.
//! - A command that runs once forks before it has read anything ([`fork`]): all that it knows by then are its arguments and
//!   its environment, where the kernel has put them, and the child erases them. That saves what it costs to load, link and
//!   initialise a program.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, exit_now, fork_into};
use sandbox_sys::start_block::StartBlock;

use super::{launcher, serve};
use crate::bridge::BridgeMain;
use crate::error::Failure;

/// A process that this program can become. Its name is its whole command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrivilegedRole {
    Keeper,
    Launcher,
}

impl PrivilegedRole {
    fn name(self) -> &'static CStr {
        match self {
            Self::Keeper => c"sandbox-keeper",
            Self::Launcher => c"sandbox-launcher",
        }
    }
}

/// The variables that a keeper inherits: where it makes directories for cells without namespaces and for containers, and where
/// builds that measure coverage put their counters.
const INHERITED: [&CStr; 2] = [c"TMPDIR", c"LLVM_PROFILE_FILE"];

/// The action in error messages of this module.
const WHAT: &str = "cannot start the keeper";

/// Whether this program can become a keeper or a launcher.
static CAN_BECOME_KEEPER: AtomicBool = AtomicBool::new(false);

/// Runs the keeper or its launcher and ends with it, if this process was started by [`crate::Keeper::start`] or
/// [`crate::Keeper::start_replaceable`]; otherwise returns at once.
///
/// Must be the first call in `main` of every program that starts a keeper: before it reads its configuration, and before it
/// starts a thread. `bridge` is for programs whose cells may be made by other backends.
pub fn keeper_main_if_asked(bridge: Option<BridgeMain>) {
    CAN_BECOME_KEEPER.store(true, Ordering::Relaxed);
    for role in [PrivilegedRole::Keeper, PrivilegedRole::Launcher] {
        if is_command_line(role.name()) {
            exit_now(i32::from(become_role(role, bridge).is_err()));
        }
    }
}

/// Whether this process was given this name and no argument. Copies no argument unless it has to.
fn is_command_line(name: &CStr) -> bool {
    match StartBlock::get() {
        Ok(block) => block.arguments().eq([name.to_bytes()]),
        Err(_) => std::env::args_os().eq([OsStr::from_bytes(name.to_bytes())]),
    }
}

fn become_role(role: PrivilegedRole, bridge: Option<BridgeMain>) -> rustix::io::Result<()> {
    let alone = SingleThreaded::prove().ok_or(Errno::PERM)?;
    let stdin = rustix::stdio::stdin();
    if socket_type(stdin)? != SocketType::SEQPACKET {
        return Err(Errno::NOTSOCK);
    }
    // Standard input itself is about to become /dev/null.
    let control = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
    match role {
        PrivilegedRole::Keeper => serve::main(alone, &control, bridge),
        PrivilegedRole::Launcher => launcher::main(&control),
    }
}

/// Starts this program again in a role, to serve this connection.
pub(super) fn start(role: PrivilegedRole, control: OwnedFd) -> Result<Child, Failure> {
    if !CAN_BECOME_KEEPER.load(Ordering::Relaxed) {
        // The program would run once more instead of a keeper, and start another.
        return Err(Failure::new(WHAT, "this program cannot become one")
            .with_fix("call sandbox_cell::keeper_main_if_asked first thing in main"));
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0(OsStr::from_bytes(role.name().to_bytes())).env_clear();
    command.envs(
        inherited().map(|(name, value)| (OsStr::from_bytes(name.to_bytes()), OsString::from_vec(value.into_bytes()))),
    );
    let spawned = command.stdin(control).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
    let pid = Pid::from_child(&spawned.map_err(|error| Failure::os(WHAT, error))?);
    // It has not been waited for, so the id is still its own.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Failure::os(WHAT, errno))?;
    Ok(Child { pid, pidfd })
}

/// Forks a keeper that serves this connection. This process must not have read its arguments or its environment yet.
pub(super) fn fork(control: &OwnedFd, bridge: Option<BridgeMain>) -> Result<Child, Failure> {
    let failed = |errno| Failure::os(WHAT, errno);
    let alone = SingleThreaded::prove().ok_or(Errno::PERM).map_err(failed)?;
    let block = StartBlock::get().map_err(failed)?;
    let keeper = || {
        let variables: Vec<_> = inherited().collect();
        let served = block
            .erase(alone, PrivilegedRole::Keeper.name(), &variables)
            .and_then(|()| serve::main(alone, control, bridge));
        exit_now(i32::from(served.is_err()));
    };
    fork_into(alone, Namespaces::NONE, None, keeper).map_err(failed)
}

/// The variables of this process that its keeper inherits.
fn inherited() -> impl Iterator<Item = (&'static CStr, CString)> {
    INHERITED.into_iter().filter_map(|name| {
        let value = std::env::var_os(OsStr::from_bytes(name.to_bytes()))?;
        Some((name, CString::new(value.into_vec()).ok()?))
    })
}
