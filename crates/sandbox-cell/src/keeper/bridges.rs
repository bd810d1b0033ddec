//! The bridges to cells of other backends, each in a separate process: see [`crate::bridge`].

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{WaitId, WaitIdOptions};
use sandbox_sys::process::{Child, Namespaces, fork_into};

use super::factory::CellFactory;
use super::ids::CellIds;
use crate::bridge::{BridgeMain, BridgeParams};
use crate::error::Failure;
use crate::spec::CellSpec;
use crate::stdio;

/// Bridges, by the numbers of their cells.
pub(super) struct Bridges {
    /// The bridge's main function, if this program has one.
    main: Option<BridgeMain>,
    /// The settings of bridges, if cells have bridges.
    pub(super) settings: Option<Vec<u8>>,
    present: HashMap<u64, (Child, CellIds)>,
}

impl Bridges {
    pub(super) fn new(main: Option<BridgeMain>) -> Self {
        Self { main, settings: None, present: HashMap::new() }
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.settings.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Starts the bridge to a cell. Returns a descriptor that becomes readable when it has ended.
    pub(super) fn add(
        &mut self,
        factory: &mut CellFactory,
        number: u64,
        spec: &CellSpec,
        caller: &OwnedFd,
    ) -> Result<BorrowedFd<'_>, Failure> {
        factory.check_spec(spec)?;
        if spec.terminal.is_some() {
            return Err(Failure::of_request("cannot create the cell", "a terminal needs the native backend"));
        }
        let (Some(main), Some(settings)) = (self.main, &self.settings) else {
            return Err(Failure::new("cannot create the cell", "this program has no other backends"));
        };
        let no_ids = || Failure::new("cannot create the cell", "the ids for 2048 concurrent cells are in use");
        let ids = factory.ids.take().ok_or_else(no_ids)?;
        let outside = ids.init().map(|init| (init, ids.owner()));
        let forked = fork_into(factory.alone, Namespaces::NONE, None, || {
            let kept = [caller.as_fd()];
            if sandbox_sys::process::close_all_except(&kept).is_err() || stdio::let_go_of_all().is_err() {
                return;
            }
            let _ = rustix::thread::set_name(c"sandbox-bridge");
            main(&BridgeParams { settings, spec, caller, ids: outside });
        });
        match forked {
            Ok(child) => {
                let (child, _) = self.present.entry(number).or_insert((child, ids));
                Ok(child.pidfd.as_fd())
            }
            Err(errno) => {
                factory.ids.give_back(ids);
                Err(Failure::os("cannot start the bridge to the cell's container", errno))
            }
        }
    }

    /// Reaps bridges that have ended.
    pub(super) fn on_exit(&mut self, factory: &mut CellFactory, number: u64) {
        if let Some((child, ids)) = self.present.remove(&number) {
            let pidfd = WaitId::PidFd(child.pidfd.as_fd());
            let _ = rustix::process::waitid(pidfd, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            factory.ids.give_back(ids);
        }
    }
}
