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
    /// To whom it belongs: it has seen packages, whose code may have left state in it.
    owner: Option<String>,
    /// What it sees of the store, which must stay there as long.
    held: Arc<Vec<Entry>>,
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
    /// A zygote that sees these; none if they cannot be held. One that sees no packages has run nothing but the
    /// interpreter's own code, and serves all owners.
    pub(crate) fn zygote<'a>(
        up: &WarmUp,
        packages: impl Iterator<Item = &'a Entry>,
        owner: Option<&str>,
    ) -> Option<Self> {
        let warmth = Self::new(WarmthKind::Zygote, &up.command, packages)?;
        let owner = owner.filter(|_| !warmth.held.is_empty()).map(str::to_owned);
        Some(Self { runner_file: up.runner_file.clone(), owner, ..warmth })
    }

    /// A companion that sees these; none if they cannot be held.
    pub(crate) fn companion<'a>(
        command: &Command,
        seen: impl Iterator<Item = &'a Entry>,
        owner: Option<&str>,
    ) -> Option<Self> {
        Some(Self { owner: owner.map(str::to_owned), ..Self::new(WarmthKind::Companion, command, seen)? })
    }

    /// To whom it belongs, if not to all.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn new<'a>(kind: WarmthKind, command: &Command, seen: impl Iterator<Item = &'a Entry>) -> Option<Self> {
        let held: std::io::Result<Vec<_>> = seen.map(Entry::share).collect();
        Some(Self { kind, command: command.clone(), runner_file: None, owner: None, held: Arc::new(held.ok()?) })
    }
}

/// Two that wait in the same cells are alike if they are started alike, for the same owner.
impl PartialEq for Warmth {
    fn eq(&self, other: &Self) -> bool {
        let parts = |warmth: &Self| (warmth.kind, warmth.owner.clone(), warmth.runner_file.clone());
        parts(self) == parts(other) && self.command == other.command
    }
}
