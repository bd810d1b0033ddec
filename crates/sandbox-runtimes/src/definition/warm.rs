//! Warm starts: how an interpreter becomes a zygote, and which versions and runs may use it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde::Deserialize;

/// How to keep an interpreter warm: as a zygote, which is forked into the cell of each run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warm {
    /// Command that becomes a zygote. `{executable}`, `{runner}`, `{runner_file}`, `{heap}`, `{zygote}` (the text of
    /// `zygote`), `{library}` (the library that the interpreter loads to become a zygote) and `{preload}` (the modules to
    /// load, separated by commas) are replaced. In the zygote's cell, `{runner_file}` holds the text of `zygote`; in the
    /// cell of a run, that of the runner.
    pub argv: Vec<String>,
    /// File next to the definition with the program of the zygote.
    pub zygote: String,
    /// Modules of packages that may be loaded before the fork, because they leave no state that runs must not share, such
    /// as a random generator that is never seeded again. Programs load all others.
    #[serde(default)]
    pub preload: Vec<String>,
    /// Environment variables for the zygote. `{library}` is replaced.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that an interpreter reads only at its start: a run that sets one starts cold. A `*` at the end matches
    /// any ending.
    #[serde(default)]
    pub cold: Vec<String>,
    /// Versions that warm starts were tested with. Others start cold.
    pub tested: Option<TestedVersions>,
    /// Program that prints facts about its interpreter. A server runs it warm and cold before the first warm start, and
    /// starts all programs cold if the output differs.
    pub self_test: Option<String>,
}

/// A range of versions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedVersions {
    /// First version.
    pub from: String,
    /// Last version, with all that begin with it: `3.13` includes `3.13.2`.
    pub to: String,
}

impl TestedVersions {
    /// Whether a version is in the range.
    #[must_use]
    pub fn contains(&self, version: &str) -> bool {
        let parts = |text: &str| text.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
        let (version, from, to) = (parts(version), parts(&self.from), parts(&self.to));
        version >= from && version[..to.len().min(version.len())] <= to[..]
    }
}

impl Warm {
    /// Whether a run with these variables has to start cold.
    pub fn is_cold<'a>(&self, mut variables: impl Iterator<Item = &'a OsStr>) -> bool {
        let matches = |pattern: &String, name: &[u8]| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start.as_bytes()),
            None => name == pattern.as_bytes(),
        };
        variables.any(|name| self.cold.iter().any(|pattern| matches(pattern, name.as_bytes())))
    }
}
