//! The environment that a cell is made in: decided once by the keeper, and followed by init.

use std::os::fd::OwnedFd;

use crate::reduced::CellLayout;
use crate::rootfs::SocketsShown;
use crate::spec::CellSpec;

/// The parts of a zygote namespace that an init created in it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZygoteParts<'a> {
    /// The cell's user namespace, if it gets one.
    pub(crate) user: Option<&'a OwnedFd>,
    /// Whether init starts in a copy of a template root, and what its mounts contain.
    pub(crate) template: Option<SocketsShown>,
    /// The cell's network namespace. One from the keeper would not belong to the zygote's user namespace.
    pub(crate) network: &'a OwnedFd,
}

/// The environment that a cell is made in. `Zygote` is what the holder needs of a zygote's namespaces: for the keeper a
/// handle, for init [`ZygoteParts`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum CellEnvironment<'a, Zygote> {
    /// Dedicated namespaces. For each mount, the user namespace that maps the ids in it, if there is one.
    Namespaces { id_maps: &'a [Option<OwnedFd>] },
    /// Dedicated namespaces inside the user and PID namespace of a zygote.
    ZygoteNamespace(Zygote),
    /// No namespaces: directories on the host's disk, or a container that was created for the cell.
    Reduced(&'a CellLayout),
}

impl<'a, Zygote> CellEnvironment<'a, Zygote> {
    /// Whether the cell has no namespaces.
    pub(crate) fn is_reduced(&self) -> bool {
        matches!(self, Self::Reduced(_))
    }

    /// Whether init asks the keeper for ids once it has built its root. In a zygote namespace they are already assigned;
    /// but for late mounts the keeper has to learn when the root is complete.
    pub(crate) fn asks_for_ids(&self, spec: &CellSpec) -> bool {
        !matches!(self, Self::ZygoteNamespace(_)) || !spec.slots.is_empty()
    }

    /// The locations of the cell's directories, if it has no root file system.
    pub(crate) fn layout(&self) -> Option<&'a CellLayout> {
        match self {
            Self::Reduced(layout) => Some(layout),
            Self::Namespaces { .. } | Self::ZygoteNamespace(_) => None,
        }
    }

    /// The user namespaces that map the ids of mounts.
    pub(crate) fn id_maps(&self) -> &'a [Option<OwnedFd>] {
        match self {
            Self::Namespaces { id_maps } => id_maps,
            Self::ZygoteNamespace(_) | Self::Reduced(_) => &[],
        }
    }
}
