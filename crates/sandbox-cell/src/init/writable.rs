//! The directories that programs can write to, and how full they are.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::reduced;
use crate::rootfs;
use crate::spec::Volume;
use sandbox_base::limits::{LimitKind, Limits};

/// The writable directories of a cell.
pub(super) enum Writable<'a> {
    /// Dedicated file systems, which have fixed sizes.
    Tmpfs { root: OwnedFd, volumes: Vec<OwnedFd> },
    /// A host directory, parts of which have to be measured. In a container each part is a file system with a fixed
    /// size as well.
    Directory { root: OwnedFd, own: Vec<OwnedFd>, volumes: Vec<(OwnedFd, &'a Volume)>, sized: bool },
}

/// The current usage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
    pub(super) bytes_full: bool,
    pub(super) inodes_full: bool,
}

impl Writable<'_> {
    pub(super) fn used(&self, limits: &Limits) -> Used {
        match self {
            Self::Tmpfs { root, volumes } => {
                let (bytes, inodes, free, inodes_free) =
                    rootfs::used(root.as_fd()).unwrap_or((0, 0, u64::MAX, u64::MAX));
                let volumes = || volumes.iter().filter_map(|volume| rootfs::used(volume.as_fd()).ok());
                Used {
                    bytes,
                    inodes,
                    bytes_full: free == 0 || volumes().any(|(_, _, free, _)| free == 0),
                    inodes_full: inodes_free == 0 || volumes().any(|(_, _, _, free)| free == 0),
                }
            }
            Self::Directory { own, volumes, sized, .. } => {
                let full = |place: &OwnedFd| *sized && rootfs::used(place.as_fd()).is_ok_and(|used| used.2 == 0);
                let mut used = Used::default();
                for place in own {
                    let measured = reduced::measure(place.as_fd(), limits.disk(), limits.inodes());
                    used.bytes += measured.bytes;
                    used.inodes += measured.inodes;
                    used.bytes_full |= measured.hidden;
                }
                used.bytes_full |= used.bytes > limits.disk() || own.iter().any(full);
                used.inodes_full |= used.inodes > limits.inodes();
                for (place, volume) in volumes {
                    let measured = reduced::measure(place.as_fd(), volume.size, volume.inodes);
                    used.bytes_full |= measured.hidden || measured.bytes > volume.size || full(place);
                    used.inodes_full |= measured.inodes > volume.inodes;
                }
                used
            }
        }
    }

    /// How much of it is memory.
    pub(super) fn memory(&self) -> u64 {
        let used = |place: &OwnedFd| rootfs::used(place.as_fd()).map_or(0, |used| used.0);
        match self {
            Self::Tmpfs { root, volumes } => used(root) + volumes.iter().map(used).sum::<u64>(),
            Self::Directory { .. } => 0,
        }
    }

    /// Removes the content, if it does not vanish with the cell. The keeper removes whatever is left.
    pub(super) fn clear(&self) {
        if let Self::Directory { root, .. } = self {
            let _ = reduced::clear(root.as_fd());
        }
    }
}

/// Measures a directory periodically, less often the longer it takes.
pub(super) struct DiskWatch {
    next: Instant,
}

impl DiskWatch {
    const INTERVAL: Duration = Duration::from_millis(30);

    pub(super) fn new() -> Self {
        Self { next: Instant::now() + Self::INTERVAL }
    }

    /// Which limit was exceeded, if a measurement is due.
    pub(super) fn look(&mut self, writable: &Writable<'_>, limits: &Limits) -> Option<LimitKind> {
        let now = Instant::now();
        if !matches!(writable, Writable::Directory { .. }) || now < self.next {
            return None;
        }
        let passed = writable.used(limits).passed();
        self.next = now + Self::INTERVAL.max(now.elapsed() * 10);
        passed
    }
}

impl Used {
    /// Which limit was exceeded.
    pub(super) fn passed(self) -> Option<LimitKind> {
        if self.bytes_full { Some(LimitKind::Disk) } else { self.inodes_full.then_some(LimitKind::Inodes) }
    }
}
