//! Internals for fuzz targets; compiled only for them.

use std::io;
use std::os::fd::OwnedFd;

use crate::layer::{Tally, apply};
use crate::tree::Tree;

/// Applies layers on top of each other in a directory, within these limits.
pub fn layers(root: OwnedFd, layers: &[&[u8]], entries: u64, bytes: u64) -> io::Result<()> {
    let tree = Tree::new(root);
    let mut tally = Tally { entries, bytes, skipped: 0 };
    layers.iter().try_for_each(|layer| apply(&tree, *layer, &mut tally))
}
