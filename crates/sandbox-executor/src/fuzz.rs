//! What fuzz targets see of this crate and nobody else does. It is there only when they are built.

use std::path::Path;

/// A value as a literal of a language.
pub fn literal(value: &serde_json::Value, language: &str) -> Result<String, String> {
    crate::literal::literal(value, language)
}

/// Checks a working directory.
pub fn check_workdir(path: &Path) -> Result<(), String> {
    crate::volumes::check_workdir(path)
}
