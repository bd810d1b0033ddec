//! Errors for the person who reads them: what was tried, why it failed, what to do.

use sandbox_base::reason;
use serde::{Deserialize, Serialize};

use crate::layer::Layer;

/// Something that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Failure {
    /// What was tried.
    pub what: String,
    /// Why it failed.
    pub why: String,
    /// What to do about it, where that is known.
    pub fix: Option<String>,
    /// Whether the request is to blame (a program that does not exist) and not the sandbox.
    pub request: bool,
    /// Whether the keeper ended, so that the same may work with the next keeper.
    pub keeper_ended: bool,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

impl Failure {
    /// An operation that the kernel refused.
    pub fn os(what: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        Self::new(what, reason(&error.into()))
    }

    /// Something else that went wrong.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), fix: None, request: false, keeper_ended: false }
    }

    /// A request that cannot be carried out as it is.
    pub fn of_request(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { request: true, ..Self::new(what, why) }
    }

    /// The keeper ended, and with it all its cells.
    pub(crate) fn of_keeper(what: impl Into<String>) -> Self {
        Self { keeper_ended: true, ..Self::new(what, "the keeper ended") }
    }

    /// A layer that is required and missing.
    pub(crate) fn missing(layer: Layer, why: impl Into<String>) -> Self {
        Self::new(format!("isolation layer '{}' is required and not available on this host", layer.name()), why)
            .with_fix(layer.fix())
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_one_line() {
        let failure = Failure::os("cannot open /x", rustix::io::Errno::NOENT).with_fix("create it");
        assert_eq!(failure.to_string(), "cannot open /x: no such file or directory; create it");
        let failure = Failure::missing(Layer::Memory, "no cgroup controller");
        assert!(failure.to_string().contains("'memory'"));
        assert!(failure.to_string().contains("Delegate=yes"));
    }
}
