//! Interrupts of a run: the first signal cancels the run, the second ends this process at once.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sandbox_base::wait::is_readable;
use sandbox_sys::process::exit_now;
use sandbox_sys::signal::{SignalFd, SignalSet};

use crate::interactive::restore_terminal;
use crate::output::say;

/// The signals that interrupt a run.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// How long a cancelled run may take before a person learns how to end it at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Watches for interrupts until the process ends.
#[derive(Debug, Clone)]
pub(crate) struct Interrupts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The signal that came first; 0 before it comes.
    first: AtomicI32,
    /// Becomes readable when the run is to be cancelled.
    cancel: OwnedFd,
}

impl Interrupts {
    /// Starts to watch. `others` are blocked too, for descriptors that report them. To be called before other threads
    /// start, because they inherit the blocked signals. With `hint`, a person is told how to stop at once.
    pub(crate) fn watch(others: &[i32], hint: bool) -> std::io::Result<Self> {
        let blocked: Vec<i32> = SIGNALS.iter().chain(others).copied().collect();
        SignalSet::of(&blocked).block()?;
        let signals = SignalFd::new(&SignalSet::of(&SIGNALS))?;
        let cancel = eventfd(0, EventfdFlags::CLOEXEC)?;
        let interrupts = Self(Arc::new(Shared { first: AtomicI32::new(0), cancel }));
        let watched = interrupts.clone();
        let hint = hint && std::io::stderr().is_terminal();
        std::thread::Builder::new().spawn(move || watched.serve(&signals, hint))?;
        Ok(interrupts)
    }

    /// Cancels the run as this signal does. If it is being cancelled already, ends this process.
    pub(crate) fn interrupt(&self, signal: i32) {
        let is_first = self.0.first.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // A terminal that closes may send SIGHUP more than once.
        if !is_first && signal != libc::SIGHUP {
            restore_terminal();
            // The keeper deletes the cell when the connections of this process close.
            exit_now(128 + signal);
        }
        let _ = rustix::io::write(&self.0.cancel, &1_u64.to_ne_bytes());
    }

    /// The signal that came first, if one has come.
    pub(crate) fn first(&self) -> Option<i32> {
        Some(self.0.first.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    fn serve(&self, signals: &SignalFd, hint: bool) {
        loop {
            let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], None);
            let Some(signal) = signals.next() else { continue };
            self.interrupt(signal);
            if hint && signal == libc::SIGINT && !is_readable(&[signals], PATIENCE) {
                say("sandbox-run: stopping; press Ctrl-C again to stop at once");
            }
        }
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.cancel.as_fd()
    }
}
