//! Warm starts: how an interpreter becomes a zygote, and which versions and runs may use it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde::Deserialize;

/// How to keep an interpreter warm: as a zygote, which is forked into the cell of each run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warm {
    /// The command that becomes a zygote. As in `RunDefinition::argv`, and replaced are `{zygote}` (the zygote's text), `{library}`
    /// (the library that it loads to become one) and `{preload}` (the modules to load, with commas between them). In its
    /// cell, `{runner_file}` has the zygote's text too: what is loaded from there is loaded anew by what a run starts.
    pub argv: Vec<String>,
    /// A file beside this one with the zygote's text.
    pub zygote: String,
    /// Modules of packages that may be loaded before the fork: loading them leaves no state behind that runs must not
    /// share, such as a random generator that nothing seeds again. All others are loaded by the programs.
    #[serde(default)]
    pub preload: Vec<String>,
    /// Variables to set for the zygote; `{library}` is replaced.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that an interpreter only looks at when it starts, so that a run that sets one starts cold. `*` at the end
    /// stands for any ending.
    #[serde(default)]
    pub cold: Vec<String>,
    /// The versions that warm starts were tested with. Others start cold.
    pub tested: Option<TestedVersions>,
    /// A program that prints facts about its interpreter. A server runs it warm and cold before any other program starts
    /// warm, and all programs start cold if the two differ.
    pub self_test: Option<String>,
}

/// A range of versions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedVersions {
    /// The first version.
    pub from: String,
    /// The last version, with all that begin with it: `3.13` includes `3.13.2`.
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
