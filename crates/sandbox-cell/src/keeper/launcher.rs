//! The launcher: starts keepers for a caller that has dropped its privileges, so that a keeper that dies can be replaced.
//!
//! The caller starts the launcher together with its first keeper, while it still has privileges. The launcher then waits for
//! one kind of request: start a keeper. It sends every keeper the settings that it keeps (backend and confinement) before the
//! caller can reach that keeper, and it accepts no changes after the confinement. So a caller that is taken over gets no
//! keeper that may do more than the first. There is one keeper at a time.
//!
//! It also cleans up: as the subreaper of its keepers it inherits the processes of a keeper that was killed, and kills them
//! before it starts the next one. It makes no cells, has one thread, and ends after its caller and its last keeper.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitOptions};
use sandbox_base::wait::is_readable;
use sandbox_sys::process::Child;

use super::launch::{self, PrivilegedRole};
use super::{patient_pair, serve, wait_for};
use crate::error::Failure;
use crate::wire::{self, FromLauncher, Received, ToKeeper, ToLauncher};
use crate::{cgroup, descendants, stdio, syscalls};

const WHAT: &str = "cannot start the keeper";

/// How long the launcher has to start a keeper. It waits for the processes of the last one before.
const LAUNCH: Duration = Duration::from_secs(20);

/// How long the processes of a dead keeper have to die. Those that wait in the kernel may take for ever.
const DIE: Duration = Duration::from_secs(5);

/// The most messages that a launcher remembers: a backend, a confinement, and room for others.
const MOST_REMEMBERED: usize = 8;

/// The caller's side of a launcher.
#[derive(Debug)]
pub(super) struct KeeperLauncher {
    control: Mutex<OwnedFd>,
    child: Child,
}

impl KeeperLauncher {
    /// Starts a launcher with the privileges of this process.
    pub(super) fn start() -> Result<Self, Failure> {
        let (ours, theirs) = patient_pair().map_err(|errno| Failure::os(WHAT, errno))?;
        let child = launch::start(PrivilegedRole::Launcher, theirs)?;
        Ok(Self { control: Mutex::new(ours), child })
    }

    /// Has every keeper from now on told this.
    pub(super) fn remember(&self, message: ToKeeper) -> Result<(), Failure> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&*control, &ToLauncher::Remember(Box::new(message)), &[], SendFlags::empty())
            .map_err(|errno| Failure::os("cannot reach the keeper's launcher", errno))
    }

    /// Starts a keeper. Returns its control connection and its pidfd.
    pub(super) fn launch(&self) -> Result<(OwnedFd, OwnedFd), Failure> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |errno: Errno| Failure::os(WHAT, errno);
        wire::send(&*control, &ToLauncher::Launch, &[], SendFlags::empty()).map_err(failed)?;
        if !wait_for(&*control, Instant::now() + LAUNCH).map_err(failed)? {
            return Err(Failure::new(WHAT, "its launcher does not respond"));
        }
        match wire::receive(&*control, &mut [0; 4096], RecvFlags::empty()).map_err(failed)? {
            Received::Message(FromLauncher::Launched, fds) => match <[OwnedFd; 2]>::try_from(fds) {
                Ok([control, pidfd]) => Ok((control, pidfd)),
                Err(_) => Err(Failure::new(WHAT, "its launcher sent no connection")),
            },
            Received::Message(FromLauncher::Failed(failure), _) => Err(failure),
            Received::Closed => Err(Failure::new(WHAT, "its launcher has ended")),
        }
    }

    /// Whether the launcher has not ended.
    pub(super) fn is_alive(&self) -> bool {
        !is_readable(&[&self.child.pidfd], Duration::ZERO)
    }
}

impl Drop for KeeperLauncher {
    fn drop(&mut self) {
        let control = self.control.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::net::shutdown(&*control, rustix::net::Shutdown::Both);
        // It ends with its keeper, which has been waited for.
        let _ = wait_for(&self.child.pidfd, Instant::now() + super::LEAVE);
        let pidfd = WaitId::PidFd(self.child.pidfd.as_fd());
        while let Err(Errno::INTR) =
            rustix::process::waitid(pidfd.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
        {}
    }
}

/// The launcher's main function: serves until its caller and its last keeper have ended.
pub(super) fn main(control: &OwnedFd) -> Result<(), Errno> {
    serve::detach(control, c"sandbox-launcher")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut launcher = LauncherServer { control, remembered: vec![], keeper: None, predecessor: None };
    while launcher.serve_one()? {}
    // A reader of the caller's standard error must not wait for a keeper whose cells do not die.
    let _ = stdio::let_go_of_errors();
    if let Some(keeper) = &launcher.keeper {
        while !is_readable(&[&keeper.pidfd], Duration::from_secs(3600)) {}
    }
    launcher.bury();
    Ok(())
}

struct LauncherServer<'a> {
    control: &'a OwnedFd,
    /// What every keeper is told.
    remembered: Vec<ToKeeper>,
    keeper: Option<Child>,
    /// The group name of the keeper that was started last.
    predecessor: Option<String>,
}

impl LauncherServer<'_> {
    /// Waits for a request or the keeper's end. False when the caller is gone.
    fn serve_one(&mut self) -> Result<bool, Errno> {
        let mut fds = vec![PollFd::new(self.control, PollFlags::IN)];
        fds.extend(self.keeper.iter().map(|keeper| PollFd::new(&keeper.pidfd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let asked = !fds[0].revents().is_empty();
        if self.keeper.as_ref().is_some_and(|keeper| is_readable(&[&keeper.pidfd], Duration::ZERO)) {
            self.bury();
        }
        if !asked {
            return Ok(true);
        }
        match wire::receive(self.control, &mut vec![0; wire::MAX_MESSAGE], RecvFlags::DONTWAIT) {
            Ok(Received::Message(ToLauncher::Remember(message), _)) => {
                let sealed = self.remembered.iter().any(|message| matches!(message, ToKeeper::Confine(_)));
                let is_setting = matches!(*message, ToKeeper::Confine(_) | ToKeeper::UseBridges(_));
                if is_setting && !sealed && self.remembered.len() < MOST_REMEMBERED {
                    if matches!(*message, ToKeeper::Confine(_)) && self.is_native() {
                        confine_self()?;
                    }
                    self.remembered.push(*message);
                }
            }
            Ok(Received::Message(ToLauncher::Launch, _)) => {
                let launched = self.launch();
                let _ = match &launched {
                    Ok((control, pidfd)) => {
                        let fds = [control.as_fd(), pidfd.as_fd()];
                        wire::send(self.control, &FromLauncher::Launched, &fds, SendFlags::DONTWAIT)
                    }
                    Err(failure) => {
                        let failed = FromLauncher::Failed(failure.clone());
                        wire::send(self.control, &failed, &[], SendFlags::DONTWAIT)
                    }
                };
            }
            Err(Errno::AGAIN) => {}
            Ok(Received::Closed) | Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Whether keepers make cells themselves.
    fn is_native(&self) -> bool {
        !self.remembered.iter().any(|message| matches!(message, ToKeeper::UseBridges(Some(_))))
    }

    /// Starts a keeper and sends it the settings that it needs before its caller can.
    fn launch(&mut self) -> Result<(OwnedFd, OwnedFd), Failure> {
        if self.keeper.is_some() {
            return Err(Failure::new(WHAT, "another one is running"));
        }
        let failed = |errno: Errno| Failure::os(WHAT, errno);
        let (ours, theirs) = patient_pair().map_err(failed)?;
        let child = launch::start(PrivilegedRole::Keeper, theirs)?;
        let pidfd = rustix::io::fcntl_dupfd_cloexec(&child.pidfd, 3).map_err(failed)?;
        let name = cgroup::name_of(child.pid);
        let child = self.keeper.insert(child);
        let caller = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
        let launched = ToKeeper::Launched { caller, predecessor: self.predecessor.replace(name) };
        for message in std::iter::once(&launched).chain(&self.remembered) {
            if let Err(errno) = wire::send(&ours, message, &[], SendFlags::empty()) {
                // One that does not know its limits must not serve anybody.
                let _ = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL);
                return Err(failed(errno));
            }
        }
        Ok((ours, pidfd))
    }

    /// Reaps the keeper, and kills the processes that it has left. With namespaces the kernel does so too; without them,
    /// there may be processes that no init watches any more. Bridges to containers end by themselves, when they have removed those.
    fn bury(&mut self) {
        let own = rustix::process::getpid();
        let (native, until) = (self.is_native(), Instant::now() + DIE);
        self.keeper = None;
        loop {
            if native {
                descendants::signal(own, &[], Signal::KILL);
            }
            let left = loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !left || !native || Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Limits what this process may ask of the kernel, as keepers do. The keepers that it starts inherit that.
fn confine_self() -> rustix::io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    sandbox_sys::seccomp::install(&syscalls::compile(&syscalls::policy_of_keeper()))
}
