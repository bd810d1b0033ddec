//! Landlock rules: what may be done below which path. Everything else that the kernel's Landlock knows is forbidden, and so
//! are signals and abstract sockets to processes outside.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::FileType;
use rustix::io::Errno;

/// The newest version that is known here. Of an older kernel's, as much is used as there is.
const KNOWN: ABI = ABI::V6;

/// What may be done with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    /// Read and execute.
    Read,
    /// Everything.
    All,
    /// Everything but executing.
    AllButExecute,
    /// What devices are for.
    Device,
    /// Read and write files that exist.
    ReadAndWrite,
}

impl FileAccess {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => AccessFs::from_read(KNOWN),
            Self::All => AccessFs::from_all(KNOWN),
            Self::AllButExecute => AccessFs::from_all(KNOWN) & !AccessFs::Execute,
            Self::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            Self::ReadAndWrite => AccessFs::ReadFile | AccessFs::WriteFile,
        }
    }
}

/// Rules in the making.
pub(crate) struct LandlockRules(RulesetCreated);

impl LandlockRules {
    /// Rules that allow nothing yet.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))
            .and_then(|rules| rules.scope(Scope::from_all(KNOWN)))
            .and_then(Ruleset::create)
            .map(Self)
            .map_err(|_| Errno::INVAL)
    }

    /// Allows something below a path, which must exist.
    pub(crate) fn allow(self, path: &Path, access: FileAccess) -> rustix::io::Result<Self> {
        let fd = PathFd::new(path).map_err(|_| Errno::NOENT)?;
        self.allow_at(&fd, access)
    }

    /// Allows something below a path; a path that does not exist needs no rule.
    pub(crate) fn allow_if_present(self, path: &Path, access: FileAccess) -> rustix::io::Result<Self> {
        match PathFd::new(path) {
            Ok(fd) => self.allow_at(&fd, access),
            Err(_) => Ok(self),
        }
    }

    /// Allows something below an open directory, or with an open file.
    pub(crate) fn allow_at(self, fd: &impl AsFd, access: FileAccess) -> rustix::io::Result<Self> {
        // Of a file only a file's rights can be given.
        let is_dir = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir();
        let rights = if is_dir { access.rights() } else { access.rights() & AccessFs::from_file(KNOWN) };
        self.0.add_rule(PathBeneath::new(fd, rights)).map(Self).map_err(|_| Errno::INVAL)
    }

    /// The rules as a descriptor, for processes that enter them later.
    pub(crate) fn seal(self) -> rustix::io::Result<OwnedFd> {
        let fd: Option<OwnedFd> = self.0.into();
        fd.ok_or(Errno::OPNOTSUPP)
    }
}
