//! What a ready cell is made for, and which cells can be kept ready or warm at all.

use sandbox_base::limits::{Caps, LimitKind, Limits};
use sandbox_cell::{CellSpec, Mount, Network};

use crate::prestart::{Prestart, PrestartKind};
use crate::shelves::ShelfOrder;
use crate::zygote::Zygote;

/// The least memory of a run that is served by a zygote's child, which uses some before the run begins.
const LEAST_WARM: u64 = 32 << 20;

/// What a ready cell has to be like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CellOrder {
    pub(crate) spec: CellSpec,
    /// What waits in it.
    pub(crate) prestart: Option<Prestart>,
}

impl CellOrder {
    /// The order that serves `spec`, if there is one. Cells with writable host directories or with a gateway are not kept
    /// ready: they belong to one run.
    pub(crate) fn plain(spec: &CellSpec, shown: &[Mount]) -> Option<Self> {
        let writable = spec.mounts.iter().chain(shown).any(|mount| mount.writable);
        if writable || matches!(spec.network, Network::Gateway(_)) || !spec.disabled_layers().is_empty() {
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
    /// the default disk and no network. A companion lives under the limits of what it helps, which are the operator's.
    pub(crate) fn warm(
        spec: &CellSpec,
        artifact_mounts: &[Mount],
        host_mounts: &[Mount],
        prestart: &Prestart,
    ) -> Option<Self> {
        let mut order = Self::plain(spec, host_mounts)?;
        match prestart.kind {
            PrestartKind::Zygote if order.spec.limits != Limits::default() || !Zygote::POSSIBLE => return None,
            // The memory limit could not be lowered below what the child uses already.
            PrestartKind::Zygote if spec.limits.memory() < LEAST_WARM => return None,
            PrestartKind::Zygote => {}
            PrestartKind::Companion => order.spec.limits = spec.limits.clone(),
        }
        if order.spec.network != Network::None {
            return None;
        }
        order.spec.mounts.extend(artifact_mounts.iter().cloned());
        Some(Self { prestart: Some(prestart.clone()), ..order })
    }
}

impl ShelfOrder for CellOrder {
    fn prestart(&self) -> Option<PrestartKind> {
        self.prestart.as_ref().map(|prestart| prestart.kind)
    }

    fn owner(&self) -> Option<&str> {
        self.prestart.as_ref()?.owner()
    }
}
