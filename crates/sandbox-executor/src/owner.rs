//! Owners of runs, and the artifacts that runs of different owners may share.
//!
//! An owner is the name of an API key. The command line and a server without keys have a single owner without a name.
//! Artifacts reveal something about the runs that made them: that a program was compiled before, or which packages are
//! in use. Interpreters that have imported packages even carry state from one run to the next. So all of this belongs
//! to an owner, unless the operator decides otherwise.
//!
//! Some things contain nothing of any request and serve all owners: plain cells, interpreters and compilers that wait
//! without packages, and prepared toolchains. They were started before any request reached them, each is used for one
//! run only, and a zygote's child gets fresh random state after the fork.

use sandbox_runtimes::ArtifactKind;

/// The resources that runs of different owners share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Nothing that was made for a request.
    #[default]
    None,
    /// Package environments, but neither compiled programs nor interpreters that have imported packages.
    Packages,
    /// Everything.
    All,
}

impl Sharing {
    /// Reads the operator's choice.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "packages" => Ok(Self::Packages),
            "all" => Ok(Self::All),
            other => Err(format!("invalid value '{other}': expected none, packages or all")),
        }
    }

    /// The owner of an artifact that is made for this owner; none if it is shared.
    pub(crate) fn owner_of(self, kind: ArtifactKind, owner: Option<&str>) -> Option<String> {
        let shared = match self {
            Self::None => false,
            Self::Packages => kind == ArtifactKind::Environment,
            Self::All => true,
        };
        owner.filter(|_| !shared).map(str::to_owned)
    }

    /// The owner of a waiting cell that has seen packages.
    pub(crate) fn owner_of_warm(self, owner: Option<&str>) -> Option<String> {
        owner.filter(|_| self != Self::All).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_shared_only_if_configured() {
        let owners = |sharing: Sharing| {
            [
                sharing.owner_of(ArtifactKind::Environment, Some("a")),
                sharing.owner_of(ArtifactKind::Build, Some("a")),
                sharing.owner_of_warm(Some("a")),
            ]
            .map(|owner| owner.is_some())
        };
        assert_eq!(owners(Sharing::default()), [true, true, true]);
        assert_eq!(owners(Sharing::parse("packages").expect("valid")), [false, true, true]);
        assert_eq!(owners(Sharing::parse("all").expect("valid")), [false, false, false]);
        assert!(Sharing::parse("some").is_err());
        assert_eq!(Sharing::None.owner_of(ArtifactKind::Build, None), None, "a single owner has no name");
    }
}
