//! Internals for fuzz targets; compiled only for them.

use std::path::Path;

/// Checks a working directory.
pub fn check_workdir(path: &Path) -> Result<(), String> {
    crate::volumes::check_workdir(path)
}
