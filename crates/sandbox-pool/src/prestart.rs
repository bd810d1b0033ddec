//! What waits in a ready cell so that a command starts warm: the child of a zygote.

use std::sync::Arc;

use sandbox_cell::Command;
use sandbox_runtimes::{Entry, WarmSelfTest, WarmUp};

/// A process that is started in a ready cell before the run that uses it, and how to start it.
#[derive(Debug, Clone)]
pub struct Prestart {
    pub(crate) kind: PrestartKind,
    /// The command that becomes a zygote.
    pub(crate) command: Command,
    /// What a zygote's cell has where runs have the runner's file.
    pub(crate) runner_file: Option<String>,
    /// The language that it serves, and the test of its warm starts.
    pub(crate) language: String,
    pub(crate) self_test: Option<Arc<WarmSelfTest>>,
    /// Its owner, if it has seen packages, whose code may have left state in it.
    owner: Option<String>,
    /// The store's entries that it sees, which must be kept as long.
    held: Arc<Vec<Entry>>,
}

/// The process that a zygote's child becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrestartKind {
    /// The program of a run.
    Program,
    /// A compiler.
    Compiler,
}

impl Prestart {
    /// The child of a zygote that sees these packages; none if they cannot be locked in the store. One that sees no packages
    /// has run nothing but the interpreter's own code, and serves all owners.
    #[must_use]
    pub fn zygote<'a>(up: &WarmUp, packages: impl Iterator<Item = &'a Entry>, owner: Option<&str>) -> Option<Self> {
        let prestart = Self::new(PrestartKind::Program, up, packages)?;
        let owner = owner.filter(|_| !prestart.held.is_empty()).map(str::to_owned);
        Some(Self { owner, ..prestart })
    }

    /// A compiler that sees these entries, for one owner or all; none if they cannot be locked in the store.
    #[must_use]
    pub fn compiler<'a>(up: &WarmUp, seen: impl Iterator<Item = &'a Entry>, owner: Option<&str>) -> Option<Self> {
        Some(Self { owner: owner.map(str::to_owned), ..Self::new(PrestartKind::Compiler, up, seen)? })
    }

    /// Its owner, unless it serves all owners.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn new<'a>(kind: PrestartKind, up: &WarmUp, seen: impl Iterator<Item = &'a Entry>) -> Option<Self> {
        let held: std::io::Result<Vec<_>> = seen.map(Entry::share).collect();
        Some(Self {
            kind,
            command: up.command.clone(),
            runner_file: up.runner_file.clone(),
            language: up.language.clone(),
            self_test: up.self_test.clone().map(Arc::new),
            owner: None,
            held: Arc::new(held.ok()?),
        })
    }
}

/// Two that wait in the same cells are alike if they are started alike, for the same owner.
impl PartialEq for Prestart {
    fn eq(&self, other: &Self) -> bool {
        let parts = |prestart: &Self| (prestart.kind, prestart.owner.clone(), prestart.runner_file.clone());
        parts(self) == parts(other) && self.command == other.command
    }
}
