//! Landlock rules: which access is allowed below which path. All other access that the kernel's Landlock version
//! handles is denied, as are signals and abstract sockets to processes outside.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::FileType;
use rustix::io::Errno;

/// The newest supported version. On an older kernel, its subset is used.
const KNOWN: ABI = ABI::V6;

/// A kind of file access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    /// Read and execute.
    Read,
    /// Everything.
    All,
    /// Everything but executing.
    AllButExecute,
    /// Access to devices.
    Device,
    /// Read and write existing files.
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

/// A ruleset under construction.
pub(crate) struct LandlockRules(RulesetCreated);

impl LandlockRules {
    /// A ruleset that allows nothing yet.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))
            .and_then(|rules| rules.scope(Scope::from_all(KNOWN)))
            .and_then(Ruleset::create)
            .map(Self)
            .map_err(|_| Errno::INVAL)
    }

    /// Allows access below a path, which must exist.
    pub(crate) fn allow(self, path: &Path, access: FileAccess) -> rustix::io::Result<Self> {
        let fd = PathFd::new(path).map_err(|_| Errno::NOENT)?;
        self.allow_at(&fd, access)
    }

    /// Allows access below a path; a path that does not exist needs no rule.
    pub(crate) fn allow_if_present(self, path: &Path, access: FileAccess) -> rustix::io::Result<Self> {
        match PathFd::new(path) {
            Ok(fd) => self.allow_at(&fd, access),
            Err(_) => Ok(self),
        }
    }

    /// Allows access below an open directory, or to an open file.
    pub(crate) fn allow_at(self, fd: &impl AsFd, access: FileAccess) -> rustix::io::Result<Self> {
        // A rule for a file may only contain rights that apply to files.
        let is_dir = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir();
        let rights = if is_dir { access.rights() } else { access.rights() & AccessFs::from_file(KNOWN) };
        self.0.add_rule(PathBeneath::new(fd, rights)).map(Self).map_err(|_| Errno::INVAL)
    }

    /// The ruleset as a descriptor, for processes that enter it later.
    pub(crate) fn seal(self) -> rustix::io::Result<OwnedFd> {
        let fd: Option<OwnedFd> = self.0.into();
        fd.ok_or(Errno::OPNOTSUPP)
    }
}
