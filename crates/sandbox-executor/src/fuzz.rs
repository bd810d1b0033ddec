//! Internals for fuzz targets; compiled only for them.

use std::path::Path;

/// A value as a literal of a language.
pub fn literal(value: &serde_json::Value, language: &str) -> Result<String, String> {
    crate::literal::literal(value, language)
}

/// Checks a working directory.
pub fn check_workdir(path: &Path) -> Result<(), String> {
    crate::volumes::check_workdir(path)
}
