//! What a ready cell is made for, and which cells can be kept ready or warm at all.

use sandbox_base::limits::{Caps, LimitKind, Limits};
use sandbox_cell::{CellSpec, Mount, Network};

use crate::prestart::{Prestart, PrestartKind};
use crate::shelves::ShelfOrder;
use crate::zygote::Zygote;

/// The least memory of a run that is served by a zygote's child, which uses some before the run begins.
const LEAST_WARM: u64 = 32 << 20;

/// The properties of a ready cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CellOrder {
    pub(crate) spec: CellSpec,
    /// What waits in it.
    pub(crate) prestart: Option<Prestart>,
}

impl CellOrder {
    /// The order that serves `spec`, if there is one. Cells with volumes of the host, with a gateway or with
    /// a terminal are not kept ready: they belong to one run, and need another filter.
    pub(crate) fn plain(spec: &CellSpec, shown: &[Mount]) -> Option<Self> {
        let has_volumes = spec.mounts.iter().chain(shown).any(|mount| mount.writable || mount.foreign);
        let is_plain = spec.terminal.is_none() && spec.disabled_layers().is_empty();
        if has_volumes || matches!(spec.network, Network::Gateway(_)) || !is_plain {
            return None;
        }
        let mut limits = Limits::default();
        for kind in [LimitKind::Disk, LimitKind::Inodes] {
            limits.set(kind, spec.limits.get(kind)?, &Caps::default()).ok()?;
        }
        let slots = shown.iter().map(|mount| mount.target.clone()).collect();
        Some(Self { spec: CellSpec { limits, slots, ..spec.clone() }, prestart: None })
    }

    /// The same with a prestarted process. A zygote is worth its memory only where many runs are alike, so its cells have
    /// no network, and those of programs the default disk. The limits of compilers are the operator's, and always alike.
    pub(crate) fn warm(spec: &CellSpec, artifact_mounts: &[Mount], prestart: &Prestart) -> Option<Self> {
        let mut order = Self::plain(spec, &[])?;
        let has_other_disk = prestart.kind == PrestartKind::Program && order.spec.limits != Limits::default();
        // The memory limit could not be lowered below what the child uses already.
        let has_too_little = spec.limits.memory() < LEAST_WARM;
        // The layout of a process depends on the size of its stack when it starts.
        let has_other_stack = spec.limits.stack() != Limits::default().stack();
        if !Zygote::POSSIBLE
            || has_other_disk
            || has_other_stack
            || has_too_little
            || order.spec.network != Network::None
        {
            return None;
        }
        order.spec.mounts.extend(artifact_mounts.iter().cloned());
        Some(Self { prestart: Some(prestart.clone()), ..order })
    }
}

impl ShelfOrder for CellOrder {
    fn is_warm(&self) -> bool {
        self.prestart.is_some()
    }

    fn owner(&self) -> Option<&str> {
        self.prestart.as_ref()?.owner()
    }
}
