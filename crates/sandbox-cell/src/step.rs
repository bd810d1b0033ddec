//! The steps of init, by the names under which it reports a failure. Only this module maps them to layers, texts and
//! fixes, for the keeper.

use std::borrow::Cow;
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::layer::Layer;
use sandbox_base::reason;

/// A step of init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InitStep {
    CloseDescriptors,
    OpenDevNull,
    BlockSignals,
    DisableCrashHandlers,
    WatchChildren,
    AdoptOrphans,
    SetHostName,
    MakeWritable,
    MakeVolume,
    MakeMountsPrivate,
    MakeRoot,
    AttachRoot,
    FillRoot,
    OpenWritable,
    AttachWritable,
    EnterRoot,
    MountProc,
    MountTerminals,
    OpenTerminal,
    SealRoot,
    ChangeRoot,
    DetachHostRoot,
    OpenProc,
    OpenCellDirectory,
    OpenVolumes,
    WaitForNetwork,
    EnterNetwork,
    BringLoopbackUp,
    RouteToGateway,
    OpenGatewaySockets,
    JoinCgroup,
    JoinProgramCgroup,
    MakeCgroupNamespace,
    LeaveProgramCgroup,
    PreferAsVictim,
    DropGroups,
    MakeUserNamespace,
    AskForIds,
    WaitForIds,
    TakeIds,
    ForbidNestedNamespaces,
    KeepCapabilities,
    ReadCapabilities,
    DropAmbientCapabilities,
    EmptyBoundingSet,
    DropCapabilities,
    TieToKeeper,
    SealMemory,
    MakeLandlockRules,
    GiveUpNewPrivileges,
    EnterLandlockRules,
    InstallFilter,
    MakePlaceForChild,
    Fork,
    GetCommand,
    ReadCommand,
    FindNulByte,
    GetStreams,
    GetInputFiles,
    MakeInputFiles,
    GetOutputPipe,
    FindChild,
    TellChild,
    StartSession,
    ConnectStreams,
    TakeTerminal,
    SetResourceLimits,
    DropPrivileges,
    EnterWorkingDirectory,
    /// Mount a host path.
    Show(String),
    /// Make a requested directory or file accessible.
    Mount {
        source: String,
        target: String,
    },
    /// Map the ids in a writable mount.
    MapIds {
        source: String,
        target: String,
    },
    MountVolume(String),
    MakeSlot(String),
    OpenImage(String),
    ShowImageEntry(String),
    OpenNamespace(String),
    /// Execute a program, by the name that the caller gave.
    Execute(String),
}

/// A failed step, and why it failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepError {
    step: InitStep,
    errno: i32,
}

/// The maximum number of characters of a path or name in a report, so that every report fits into one small message.
const MOST_REPEATED: usize = 250;

/// The maximum size of a report in bytes.
pub(crate) const MAX_REPORT: usize = 2 * 4 * MOST_REPEATED + 500;

/// A path for a report.
pub(crate) fn named(path: &Path) -> String {
    shortened(&path.to_string_lossy())
}

/// A name for a report.
pub(crate) fn shortened(name: &str) -> String {
    name.chars().take(MOST_REPEATED).collect()
}

/// For `map_err`: the step that failed.
pub(crate) fn at(step: InitStep) -> impl FnOnce(Errno) -> StepError {
    move |errno| StepError::new(step, errno)
}

impl StepError {
    pub(crate) fn new(step: InitStep, errno: Errno) -> Self {
        Self { step, errno: errno.raw_os_error() }
    }

    /// The error of the system call.
    pub(crate) fn errno(&self) -> Errno {
        Errno::from_raw_os_error(self.errno)
    }

    /// The error for the caller, if the cell was not ready yet.
    pub(crate) fn of_cell(&self) -> Failure {
        let error = std::io::Error::from_raw_os_error(self.errno);
        let step = sandbox_base::printable(&self.step.text());
        match self.step.layer() {
            Some(layer) => Failure::missing(layer, format!("cannot {step}: {}", reason(&error))),
            None => Failure::os(format!("cannot lock the cell (step: {step})"), error),
        }
    }

    /// The error for the caller, if a command was being started.
    pub(crate) fn of_command(&self) -> Failure {
        let error = std::io::Error::from_raw_os_error(self.errno);
        let step = sandbox_base::printable(&self.step.text());
        match &self.step {
            InitStep::MakeInputFiles if self.errno == libc::ENOSPC => {
                Failure::of_request(format!("cannot {step} in the cell"), "they exceed the disk limit")
            }
            InitStep::Execute(_) | InitStep::EnterWorkingDirectory => {
                Failure::of_request(format!("cannot {step} in the cell"), reason(&error))
            }
            _ => Failure::os(format!("cannot start the program (step: {step})"), error),
        }
    }
}

impl InitStep {
    /// The layer of the step, where the host and not the request decides whether it works.
    fn layer(&self) -> Option<Layer> {
        match self {
            Self::MakeUserNamespace => Some(Layer::User),
            Self::MakeCgroupNamespace => Some(Layer::Cgroup),
            Self::EnterNetwork => Some(Layer::Net),
            Self::InstallFilter => Some(Layer::Seccomp),
            Self::SetHostName => Some(Layer::Uts),
            Self::MakeWritable
            | Self::MakeMountsPrivate
            | Self::MakeRoot
            | Self::AttachRoot
            | Self::MountProc
            | Self::ChangeRoot => Some(Layer::Mount),
            _ => None,
        }
    }

    /// The text after "cannot".
    fn text(&self) -> Cow<'static, str> {
        let text = match self {
            Self::CloseDescriptors => "close descriptors",
            Self::OpenDevNull => "open /dev/null",
            Self::BlockSignals => "block signals",
            Self::DisableCrashHandlers => "disable crash handlers",
            Self::WatchChildren => "watch child processes",
            Self::AdoptOrphans => "adopt orphans",
            Self::SetHostName => "set the host name",
            Self::MakeWritable => "create the writable directories",
            Self::MakeVolume => "create a volume",
            Self::MakeMountsPrivate => "make mounts private",
            Self::MakeRoot => "create the root",
            Self::AttachRoot => "attach the root",
            Self::FillRoot => "fill the root",
            Self::OpenWritable => "open the writable directories",
            Self::AttachWritable => "attach the writable directories",
            Self::EnterRoot => "enter the root",
            Self::MountProc => "mount /proc",
            Self::MountTerminals => "mount /dev/pts",
            Self::OpenTerminal => "open a pseudo-terminal",
            Self::SealRoot => "make the root read-only",
            Self::ChangeRoot => "change the root",
            Self::DetachHostRoot => "detach the host's root",
            Self::OpenProc => "open /proc",
            Self::OpenCellDirectory => "open the cell's directory",
            Self::OpenVolumes => "open the cell's volumes",
            Self::WaitForNetwork => "wait for the network",
            Self::EnterNetwork => "enter the network",
            Self::BringLoopbackUp => "bring the loopback interface up",
            Self::RouteToGateway => "route everything to the gateway",
            Self::OpenGatewaySockets => "open the gateway's sockets",
            Self::JoinCgroup => "join the cgroup",
            Self::JoinProgramCgroup => "join the program's cgroup",
            Self::MakeCgroupNamespace => "create a cgroup namespace",
            Self::LeaveProgramCgroup => "leave the program's cgroup",
            Self::PreferAsVictim => "make the cell the preferred victim of the out-of-memory killer",
            Self::DropGroups => "drop groups",
            Self::MakeUserNamespace => "create a user namespace",
            Self::AskForIds => "request ids",
            Self::WaitForIds => "wait for ids",
            Self::TakeIds => "take init's ids",
            Self::ForbidNestedNamespaces => "forbid nested user namespaces",
            Self::KeepCapabilities => "keep capabilities",
            Self::ReadCapabilities => "read capabilities",
            Self::DropAmbientCapabilities => "drop ambient capabilities",
            Self::EmptyBoundingSet => "empty the bounding set",
            Self::DropCapabilities => "drop capabilities",
            Self::TieToKeeper => "tie init to the keeper",
            Self::SealMemory => "seal init's memory",
            Self::MakeLandlockRules => "create Landlock rules",
            Self::GiveUpNewPrivileges => "set no_new_privs",
            Self::EnterLandlockRules => "enter the Landlock rules",
            Self::InstallFilter => "install the syscall filter",
            Self::MakePlaceForChild => "create a socket for a zygote's child",
            Self::Fork => "fork",
            Self::GetCommand => "receive the command",
            Self::ReadCommand => "read the command",
            Self::FindNulByte => "read the command: an argument contains a NUL byte",
            Self::GetStreams => "receive standard streams",
            Self::GetInputFiles => "receive the input files",
            Self::MakeInputFiles => "create the input files",
            Self::GetOutputPipe => "receive the pipe for output files",
            Self::FindChild => "start the program: no zygote child is waiting",
            Self::TellChild => "send the command to the zygote's child",
            Self::StartSession => "start a session",
            Self::ConnectStreams => "connect standard streams",
            Self::TakeTerminal => "take the controlling terminal",
            Self::SetResourceLimits => "set resource limits",
            Self::DropPrivileges => "drop privileges",
            Self::EnterWorkingDirectory => "enter the working directory",
            Self::Show(path) => return format!("show {path}").into(),
            Self::Mount { source, target } => return format!("mount {source} at {target}").into(),
            Self::MapIds { source, target } => {
                return format!("map ids for the writable mount of {source} at {target} (the file system must support id-mapped mounts)").into();
            }
            Self::MountVolume(target) => return format!("mount a volume at {target}").into(),
            Self::MakeSlot(path) => return format!("make {path}").into(),
            Self::OpenImage(path) => return format!("open the image at {path}").into(),
            Self::ShowImageEntry(path) => return format!("mount {path} from the image").into(),
            Self::OpenNamespace(name) => return format!("open the {name} namespace").into(),
            Self::Execute(name) => return format!("run {name}").into(),
        };
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_layer_is_reported_with_its_fix() {
        let failure = StepError::new(InitStep::MakeUserNamespace, Errno::PERM).of_cell();
        let text = failure.to_string();
        assert!(
            text.contains("'user'") && text.contains("cannot create a user namespace: operation not permitted"),
            "{text}"
        );
        assert_eq!(failure.fix.as_deref(), Some(Layer::User.fix()));
        let text = StepError::new(InitStep::FillRoot, Errno::NOSPC).of_cell().to_string();
        assert_eq!(text, "cannot lock the cell (step: fill the root): no space left on device");
    }

    #[test]
    fn impossible_requests_are_reported_as_request_errors() {
        let blamed = |step, errno| StepError::new(step, errno).of_command().request;
        assert!(blamed(InitStep::Execute("nothing".to_owned()), Errno::NOENT));
        assert!(blamed(InitStep::EnterWorkingDirectory, Errno::NOENT));
        assert!(blamed(InitStep::MakeInputFiles, Errno::NOSPC));
        assert!(!blamed(InitStep::MakeInputFiles, Errno::IO));
        assert!(!blamed(InitStep::DropPrivileges, Errno::PERM));
    }

    #[test]
    fn every_report_fits_into_a_small_message() {
        let long = "é".repeat(10_000);
        let (source, target) = (named(Path::new(&long)), shortened(&long));
        let error = StepError::new(InitStep::MapIds { source, target }, Errno::PERM);
        assert!(postcard::to_stdvec(&error).expect("written").len() < MAX_REPORT);
    }
}
