//! Creating cells without namespaces: when it is done, and what it needs. See [`crate::reduced`].

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::fs::Mode;
use sandbox_sys::process::{Child, Namespaces, fork_into};

use super::factory::CellFactory;
use super::ids::{CellIds, Ids};
use super::privilege::{namespaces, try_namespaces};
use crate::error::Failure;
use crate::layer::Layer;
use crate::reduced::{AbandonedDirectory, CellLayout, CellsDirectory, LANDLOCK_ABI};
use crate::spec::{CellSpec, Mount, Network, Role};
use crate::stdio;

impl CellFactory {
    /// Whether a cell is created without namespaces: if none can be created, and the specification does not require
    /// any.
    pub(super) fn is_reduced(&mut self, spec: &CellSpec) -> Result<bool, Failure> {
        if self.contained {
            return Ok(true);
        }
        if spec.required.without(spec.disabled_layers()).intersects(namespaces()) {
            return self.namespaces.clone().map(|()| false);
        }
        if self.namespaces.is_ok() && spec.disabled_layers().is_empty() && !std::mem::replace(&mut self.tried, true) {
            self.namespaces = try_namespaces(self.alone);
        }
        Ok(self.namespaces.is_err())
    }

    /// Refuses a specification that needs namespaces.
    pub(super) fn check_reduced(&self, spec: &CellSpec) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::of_request("cannot create the cell with reduced isolation", why));
        if self.landlock < LANDLOCK_ABI {
            let why = format!("without namespaces it has to be version {LANDLOCK_ABI} or later (Linux 6.2)");
            return Err(Failure::missing(Layer::Landlock, why));
        }
        if !spec.disabled_layers().is_empty() {
            return refuse("layers cannot be disabled".to_owned());
        }
        if spec.role != Role::Plain || !spec.slots.is_empty() {
            return refuse("cells cannot be prepared in advance".to_owned());
        }
        // A container has its own network, with only a loopback interface.
        if spec.network != Network::None && !(self.contained && spec.network == Network::Localhost) {
            return refuse("there is no network namespace, so the network must be none".to_owned());
        }
        if spec.terminal.is_some() {
            return refuse("a terminal needs a mount namespace".to_owned());
        }
        if spec.image.is_some() {
            return refuse("an image needs a mount namespace".to_owned());
        }
        let own_ids = !matches!(self.ids, Ids::Single);
        for Mount { source, writable, .. } in &spec.mounts {
            if *writable && own_ids {
                return refuse(format!("{} cannot be made writable for another user", source.display()));
            }
            // In other cells a mount bypasses the parent directories.
            if own_ids && !source.ancestors().skip(1).all(is_open_to_all) {
                let why = format!("the cell's user cannot reach {}", source.display());
                let fix = "move it below directories that every user can traverse; SANDBOX_DATA_DIR sets the location of caches";
                return Err(Failure::new("cannot create the cell with reduced isolation", why).with_fix(fix));
            }
        }
        Ok(())
    }

    /// Creates the directory of a cell without namespaces.
    pub(super) fn lay_out(&mut self, number: u64, spec: &CellSpec, ids: CellIds) -> Result<CellLayout, Failure> {
        let failed = |error: std::io::Error| Failure::os("cannot create a directory for the cell", error);
        let own_ids = !matches!(self.ids, Ids::Single);
        if self.contained {
            // The filter of every cell applies: the container's namespaces are the cell's.
            return Ok(CellLayout::in_place(spec));
        }
        let is_due = self.sweep_again.is_some_and(|at| at <= Instant::now());
        if self.directory.is_none() || is_due {
            self.sweep_again = self.sweep_again.filter(|_| !is_due);
            self.sweep_directories();
        }
        let directory = match &mut self.directory {
            Some(directory) => directory,
            none => none.insert(CellsDirectory::make(own_ids).map_err(failed)?),
        };
        directory.prepare(number, spec, own_ids.then(|| ids.owner())).map_err(|error| {
            directory.remove(number);
            failed(error)
        })
    }

    /// Starts a process that removes the directories of dead keepers, which may be large, while this one has deadlines
    /// to watch.
    fn sweep_directories(&mut self) {
        let abandoned = AbandonedDirectory::find();
        if abandoned.is_empty() {
            return;
        }
        let sweeper = fork_into(self.alone, Namespaces::NONE, None, || {
            let kept: Vec<_> = abandoned.iter().map(AsFd::as_fd).collect();
            if become_helper(c"sandbox-sweep", &kept) {
                abandoned.iter().for_each(AbandonedDirectory::remove);
            }
        });
        self.leaving.extend(sweeper);
    }

    /// Removes the directory of a cell without processes. If the directory is large, the returned process removes it,
    /// because the keeper has deadlines to watch.
    pub(super) fn clear(&self, number: u64) -> Option<Child> {
        let directory = self.directory.as_ref()?;
        if directory.remove_if_small(number) {
            return None;
        }
        let forked = fork_into(self.alone, Namespaces::NONE, None, || {
            if become_helper(c"sandbox-clear", &[directory.as_fd()]) {
                directory.remove(number);
            }
        });
        if forked.is_err() {
            directory.remove(number);
        }
        forked.ok()
    }
}

/// Detaches a fork from the keeper: it holds only these descriptors.
fn become_helper(name: &CStr, kept: &[BorrowedFd<'_>]) -> bool {
    let _ = rustix::thread::set_name(name);
    sandbox_sys::process::close_all_except(kept).is_ok() && stdio::let_go_of_all().is_ok()
}

/// Whether every user can traverse a directory.
fn is_open_to_all(dir: &std::path::Path) -> bool {
    // A missing directory is reported later.
    rustix::fs::stat(dir).map_or(true, |stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::XOTH))
}
