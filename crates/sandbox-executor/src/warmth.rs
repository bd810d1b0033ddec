//! What can wait in a ready cell, so that a command starts warm.

use std::sync::Arc;

use sandbox_cell::Command;
use sandbox_runtimes::{Entry, WarmUp};

/// Something that waits in a ready cell, and how to make it.
#[derive(Debug, Clone)]
pub(crate) struct Warmth {
    pub(crate) kind: WarmthKind,
    /// What becomes a zygote, or the companion itself.
    pub(crate) command: Command,
    /// What a zygote's cell has where runs have the runner's file.
    pub(crate) runner_file: Option<String>,
    /// What it sees of the store, which must stay there as long.
    _held: Arc<Vec<Entry>>,
}

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmthKind {
    /// The child of a zygote, which becomes the program.
    Zygote,
    /// A companion, which helps the program.
    Companion,
}

impl Warmth {
    /// A zygote that sees these; none if they cannot be held.
    pub(crate) fn zygote<'a>(up: &WarmUp, seen: impl Iterator<Item = &'a Entry>) -> Option<Self> {
        Some(Self { runner_file: up.runner_file.clone(), ..Self::new(WarmthKind::Zygote, &up.command, seen)? })
    }

    /// A companion that sees these; none if they cannot be held.
    pub(crate) fn companion<'a>(command: &Command, seen: impl Iterator<Item = &'a Entry>) -> Option<Self> {
        Self::new(WarmthKind::Companion, command, seen)
    }

    fn new<'a>(kind: WarmthKind, command: &Command, seen: impl Iterator<Item = &'a Entry>) -> Option<Self> {
        let held: std::io::Result<Vec<_>> = seen.map(Entry::share).collect();
        Some(Self { kind, command: command.clone(), runner_file: None, _held: Arc::new(held.ok()?) })
    }
}

/// Two that wait in the same cells are alike if they are started alike.
impl PartialEq for Warmth {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.command, &self.runner_file) == (other.kind, &other.command, &other.runner_file)
    }
}
