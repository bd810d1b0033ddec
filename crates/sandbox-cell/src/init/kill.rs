//! Killing the programs of a cell.
//!
//! From PID 1 of a namespace one signal reaches all processes, whatever session or process group they moved to. A
//! process that forks at that moment either has its child already, which then gets the signal too, or fails to fork.
//! Without a PID namespace the same call would signal every process of the user, so it is never used there: init
//! searches for its descendants repeatedly until it has no child left. Because it adopts orphans, it then has no
//! descendant either.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpid};

use super::InitParams;
use crate::descendants;
use crate::layer::Layer;

/// The time for which init searches for processes before it leaves the rest to the keeper.
const PATIENCE: Duration = Duration::from_millis(700);

/// Sends a signal to every process in the cell except init.
pub(super) fn signal(params: &InitParams<'_>, signal: Signal) {
    if params.has(Layer::Pid) {
        let _ = sandbox_sys::process::kill_all(signal);
    } else {
        descendants::signal(getpid(), &[], signal);
    }
}

/// Kills every process in the cell except init, and waits until they are gone. Returns their number where they have to
/// be searched for.
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
        // A process that keeps forking and exiting is gone before a search finds it. Once its parent has exited it is a
        // child of init, and children are found without a search.
        for _ in 0..100 {
            if !reap() {
                break;
            }
            descendants::signal_children(Signal::KILL);
        }
    }
    most
}

/// Reaps the children that have ended. Returns whether others are left.
fn reap() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
