//! Ending the programs of a cell.
//!
//! From PID 1 of a namespace one signal reaches all, whatever session or group they moved to, and a process that is
//! forking meanwhile either has its child already, which is then reached too, or fails to fork. Without a PID namespace
//! that signal would go to everything the user has, so it is never sent: init looks for those that descend from it, again
//! and again, until it has no child left. As it adopts those whose parents end, it then has no descendant either.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpid};

use super::InitParams;
use crate::descendants;
use crate::layer::Layer;

/// How long init looks for processes before it leaves the rest to the keeper.
const PATIENCE: Duration = Duration::from_millis(700);

/// Sends a signal to every process in the cell but init.
pub(super) fn signal(params: &InitParams<'_>, signal: Signal) {
    if params.has(Layer::Pid) {
        let _ = sandbox_sys::process::kill_all(signal);
    } else {
        descendants::signal(getpid(), &[], signal);
    }
}

/// Kills every process in the cell but init, and waits until they are gone. Returns how many there were, where they have to be
/// looked for.
pub(super) fn end(params: &InitParams<'_>) -> usize {
    if params.has(Layer::Pid) {
        signal(params, Signal::KILL);
        while let Ok(Some(_)) | Err(Errno::INTR) = rustix::process::wait(WaitOptions::empty()) {}
        return 0;
    }
    let give_up = Instant::now() + PATIENCE;
    let mut most = 0;
    while reap() && Instant::now() < give_up {
        most = most.max(descendants::signal(getpid(), &[], Signal::KILL));
        // A process that forks and ends all the time is gone before a walk comes to it. Its parent having ended, it is a
        // child of init, which takes no walk to find.
        for _ in 0..100 {
            if !reap() {
                break;
            }
            descendants::signal_children(Signal::KILL);
        }
    }
    most
}

/// Takes leave of the children that have ended. Returns whether there are others.
fn reap() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
