//! The processes that attend cells of another backend: see [`crate::backend`].

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{WaitId, WaitIdOptions};
use sandbox_sys::process::{Child, Namespaces, fork_into};

use super::ids::CellIds;
use super::workshop::Workshop;
use crate::backend::{self, Backend, ToolEnvironment};
use crate::error::Failure;
use crate::spec::CellSpec;

/// Attendants, by their cells' numbers.
#[derive(Default)]
pub(super) struct Attendants {
    pub(super) backend: Backend,
    /// The environment of its programs.
    pub(super) environment: ToolEnvironment,
    present: HashMap<u64, (Child, CellIds)>,
}

impl Attendants {
    pub(super) fn are_wanted(&self) -> bool {
        self.backend != Backend::Native
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Has a cell attended. Returns what tells when that is over.
    pub(super) fn add(
        &mut self,
        workshop: &mut Workshop,
        number: u64,
        spec: &CellSpec,
        caller: &OwnedFd,
    ) -> Result<BorrowedFd<'_>, Failure> {
        workshop.check_spec(spec)?;
        let no_ids = || Failure::new("cannot make the cell", "2048 cells exist already, no more ids are free");
        let ids = workshop.ids.take().ok_or_else(no_ids)?;
        let outside = ids.init().map(|init| (init, ids.owner()));
        let (backend, environment) = (&self.backend, &self.environment);
        let forked = fork_into(workshop.alone, Namespaces::NONE, None, || {
            let kept = [caller.as_fd()];
            if sandbox_sys::process::close_all_except(&kept).is_err() || reopen_streams().is_err() {
                return;
            }
            let _ = rustix::thread::set_name(c"sandbox-attend");
            // The container's user has to come by.
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
            let container = backend::container(backend, environment, spec, outside);
            backend::attend(spec, caller, container);
        });
        match forked {
            Ok(child) => {
                let (child, _) = self.present.entry(number).or_insert((child, ids));
                Ok(child.pidfd.as_fd())
            }
            Err(errno) => {
                workshop.ids.give_back(ids);
                Err(Failure::os("cannot start the cell's attendant", errno))
            }
        }
    }

    /// One may have ended.
    pub(super) fn on_exit(&mut self, workshop: &mut Workshop, number: u64) {
        if let Some((child, ids)) = self.present.remove(&number) {
            let pidfd = WaitId::PidFd(child.pidfd.as_fd());
            let _ = rustix::process::waitid(pidfd, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            workshop.ids.give_back(ids);
        }
    }
}

/// Programs that are started expect the three standard streams to be there.
fn reopen_streams() -> rustix::io::Result<()> {
    let null = rustix::fs::open(
        c"/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}
