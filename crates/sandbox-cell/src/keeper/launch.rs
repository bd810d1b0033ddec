//! Starting the keeper: this same program, executed anew with nothing of its caller but the control connection.
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

use super::serve;
use crate::bridge::BridgeMain;
use crate::error::Failure;

/// The whole command line of a keeper.
const NAME: &str = "sandbox-keeper";

/// The variables that a keeper inherits: where it makes directories for cells without namespaces and for containers, and where
/// builds that measure coverage put their counters.
const INHERITED: [&str; 2] = ["TMPDIR", "LLVM_PROFILE_FILE"];

/// Whether this program can become a keeper.
static CAN_BECOME_KEEPER: AtomicBool = AtomicBool::new(false);

/// Runs the keeper and ends with it, if this process was started by [`crate::Keeper::start`]; otherwise returns at once.
///
/// Must be the first call in `main` of every program that starts a keeper: before it reads its configuration, and before it
/// starts a thread. `bridge` is for programs whose cells may be made by other backends.
pub fn keeper_main_if_asked(bridge: Option<BridgeMain>) {
    let mut words = std::env::args_os();
    let asked = words.next().is_some_and(|name| name == NAME) && words.next().is_none();
    if asked {
        exit_now(i32::from(keeper_main(bridge).is_err()));
    }
    CAN_BECOME_KEEPER.store(true, Ordering::Relaxed);
}

fn keeper_main(bridge: Option<BridgeMain>) -> rustix::io::Result<()> {
    let alone = SingleThreaded::prove().ok_or(Errno::PERM)?;
    let stdin = rustix::stdio::stdin();
    if socket_type(stdin)? != SocketType::SEQPACKET {
        return Err(Errno::NOTSOCK);
    }
    // Standard input itself is about to become /dev/null.
    let control = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
    serve::main(alone, &control, bridge)
}

/// Starts a keeper that serves this connection.
pub(super) fn start(control: OwnedFd) -> Result<Child, Failure> {
    const WHAT: &str = "cannot start the keeper";
    if !CAN_BECOME_KEEPER.load(Ordering::Relaxed) {
        // The program would run once more instead of a keeper, and start another.
        return Err(Failure::new(WHAT, "this program cannot become one")
            .with_fix("call sandbox_cell::keeper_main_if_asked first thing in main"));
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let spawned = command.stdin(control).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
    let pid = Pid::from_child(&spawned.map_err(|error| Failure::os(WHAT, error))?);
    // It has not been waited for, so the id is still its own.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Failure::os(WHAT, errno))?;
    Ok(Child { pid, pidfd })
}
