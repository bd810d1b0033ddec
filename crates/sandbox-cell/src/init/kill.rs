//! Ending the programs of a cell.
//!
//! From PID 1 of a namespace one signal reaches all, whatever session or group they moved to, and a process that is
//! forking meanwhile either has its child already, which is then reached too, or fails to fork. Without a PID namespace that signal would go to
//! everything the user has, so it is never sent: init looks for those that descend from it, again and again, until it finds
//! none.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpid};

use super::Birth;
use crate::family;
use crate::layer::Layer;

/// How long init looks for processes before it leaves the rest to the keeper.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Sends a signal to every process in the cell but init.
pub(super) fn signal(birth: &Birth<'_>, signal: Signal) {
    if birth.has(Layer::Pid) {
        let _ = sandbox_sys::process::kill_all(signal);
    } else {
        family::signal(getpid(), &[], signal);
    }
}

/// Kills every process in the cell but init, and waits until they are gone. Returns how many there were, where they have to be
/// looked for.
pub(super) fn end(birth: &Birth<'_>) -> usize {
    if birth.has(Layer::Pid) {
        signal(birth, Signal::KILL);
        while let Ok(Some(_)) | Err(Errno::INTR) = rustix::process::wait(WaitOptions::empty()) {}
        return 0;
    }
    let give_up = Instant::now() + PATIENCE;
    // A look takes a moment, in which a process may slip through: only two in a row that find nothing count.
    let mut calm = 0;
    let mut most = 0;
    while calm < 2 && Instant::now() < give_up {
        let living = family::signal(getpid(), &[], Signal::KILL);
        calm = if living == 0 { calm + 1 } else { 0 };
        most = most.max(living);
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }
    most
}
