//! Images: importing them, and finding the toolchains in them. Both happen in cells.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use sandbox_base::limits::Caps;
use sandbox_base::wait::is_readable;
use sandbox_base::{LimitKind, Limits};
use sandbox_cell::{CellSpec, Command, Failure, Keeper, Mount, Outcome, RunStatus, Start, Stdio, StopReason, null};
use sandbox_images::{Image, ImageCaps, UNPACK_COMMAND, UNPACK_DIR, UnpackResult, UnpackTask, Unpacked};
use sandbox_runtimes::{Definition, Missing, Runtime, ToolchainCache, ToolchainImage};

use crate::execute::Executor;
use crate::settings::Settings;
use crate::stage::failure;

/// The most files, directories and links of an image.
const MOST_ENTRIES: u64 = 1_000_000;

/// The path of the unpacking program in its cell.
const PROGRAM_PATH: &str = "/opt/sandbox-run";

/// The longest answer of a program that unpacks or describes.
const MAX_ANSWER: u64 = 8 << 20;

/// Why a toolchain could not be found in an image.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotFound {
    /// The image has no such toolchain.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The sandbox refused or failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The caller went away meanwhile.
    #[error("cancelled by the caller")]
    Cancelled,
}

impl Executor {
    /// Unpacks the image in `file` below the directory `into`, in a cell. `program` calls [`sandbox_images::unpack()`] when
    /// its first argument is [`UNPACK_COMMAND`].
    pub fn unpack(&self, file: &File, into: &Path, program: &Path, settings: &Settings) -> Result<Unpacked, Failure> {
        let what = "cannot unpack the image";
        let job = UnpackTask { caps: ImageCaps { entries: MOST_ENTRIES, bytes: settings.image_size } };
        let job = serde_json::to_string(&job).map_err(|error| failure(what, &error.into()))?;
        let limits = limits(&[
            (LimitKind::WallTime, 3_600_000_000),
            (LimitKind::Memory, 512 << 20),
            (LimitKind::FileSize, settings.image_size.saturating_mul(2).min(1 << 40)),
        ]);
        let directory = Mount { source: into.to_owned(), target: UNPACK_DIR.into(), writable: true, foreign: false };
        let mounts = vec![Mount::read_only(program, PROGRAM_PATH), directory];
        let spec = CellSpec { mounts, limits, required: settings.required(), ..CellSpec::new() };
        let command = Command::new([PROGRAM_PATH, UNPACK_COMMAND, &job]);
        let (outcome, answer) = ask(&self.cells.keeper, &spec, &command, file.as_fd(), &[])?;
        let refuse = |why: String| Failure::of_request(what, why);
        match (outcome.stopped, outcome.status) {
            (None, RunStatus::Exited(0)) => {
                let answer: UnpackResult =
                    serde_json::from_slice(&answer).map_err(|error| failure(what, &error.into()))?;
                answer.map_err(refuse)
            }
            (Some(StopReason::Limit(kind)), _) => {
                let cap = kind.format(spec.limits.get(kind).unwrap_or(0));
                Err(refuse(format!("it takes more than {cap} of {}", kind.info().name)))
            }
            (_, status) => Err(failure(what, &io::Error::other(format!("the unpacking program failed: {status:?}")))),
        }
    }

    /// Finds a language's toolchain in an image, unless one of `cancel` becomes readable meanwhile.
    pub fn find_in_image(
        &self,
        definition: &Definition,
        image: &Image,
        settings: &Settings,
        cache: &Mutex<ToolchainCache>,
        cancel: &[BorrowedFd<'_>],
    ) -> Result<Runtime, NotFound> {
        let toolchain_image = toolchain_image(image);
        // Enough for a virtual machine to say its version.
        let limits = limits(&[(LimitKind::WallTime, 30_000_000), (LimitKind::Memory, 1 << 30)]);
        let cell =
            CellSpec { image: Some(image.root.clone()), limits, required: settings.required(), ..CellSpec::new() };
        definition.discover_in(toolchain_image, cache, |script, command| {
            let words = ["/bin/sh".into(), "-c".into(), script.into(), "sh".into(), command.as_os_str().to_owned()];
            let command = Command { env: toolchain_image.environment(), ..Command::new::<std::ffi::OsString>(words) };
            let nothing = null().map_err(|error| failure("cannot open /dev/null", &error))?;
            match ask(&self.cells.keeper, &cell, &command, nothing.as_fd(), cancel) {
                Ok((Outcome { stopped: Some(StopReason::Cancelled), .. }, _)) => Err(NotFound::Cancelled),
                Ok((outcome, output)) => Ok((outcome.status == RunStatus::Exited(0)).then_some(output)),
                // There is no shell to ask with.
                Err(failure) if failure.request => Err(NotFound::Missing(Missing {
                    what: "/bin/sh, which stages are written for,".to_owned(),
                    place: format!("in the image '{}'", image.name),
                    missing: "choose an image that has a shell".to_owned(),
                })),
                Err(failure) => Err(failure.into()),
            }
        })
    }
}

/// An image as a place to look for toolchains.
pub(crate) fn toolchain_image(image: &Image) -> ToolchainImage<'_> {
    let env = image.config.env.as_deref().unwrap_or_default();
    ToolchainImage { name: &image.name, digest: &image.digest, root: &image.root, env }
}

/// The command that an image itself wants to run, and where.
#[must_use]
pub fn own_command(image: &Image) -> Option<(Vec<std::ffi::OsString>, Option<PathBuf>)> {
    let words = image.config.entrypoint.iter().flatten().chain(image.config.cmd.iter().flatten());
    let argv: Vec<_> = words.map(Into::into).collect();
    let dir = Some(PathBuf::from(&image.config.working_dir)).filter(|dir| dir.is_absolute());
    (!argv.is_empty()).then_some((argv, dir))
}

fn limits(values: &[(LimitKind, u64)]) -> Limits {
    let mut limits = Limits::default();
    for (kind, value) in values {
        // These are within the bounds of the table, which is all that is checked here.
        let _ = limits.set(*kind, *value, &Caps::default());
    }
    limits
}

/// Runs a command to its end, or until one of `cancel` becomes readable, and returns its output. Its error output is
/// discarded.
fn ask(
    keeper: &Keeper,
    spec: &CellSpec,
    command: &Command,
    stdin: BorrowedFd<'_>,
    cancel: &[BorrowedFd<'_>],
) -> Result<(Outcome, Vec<u8>), Failure> {
    let prepare = || {
        let answer = rustix::fs::memfd_create("sandbox-answer", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok::<_, io::Error>((File::from(answer), null()?))
    };
    let (mut answer, nothing) = prepare().map_err(|error| failure("cannot query a program in a cell", &error))?;
    let mut cell = keeper.create(spec)?;
    let stdio = Stdio { stdin, stdout: answer.as_fd(), stderr: nothing.as_fd() };
    cell.start(&Start::new(command, stdio))?;
    let outcome = loop {
        let _ = is_readable(&[cancel, &[cell.as_fd()]].concat(), Duration::MAX);
        if is_readable(cancel, Duration::ZERO) {
            cell.stop(StopReason::Cancelled)?;
            break cell.wait()?;
        }
        if let Some(outcome) = cell.poll()? {
            break outcome;
        }
    };
    cell.delete()?;
    let mut output = vec![];
    let read = answer.rewind().and_then(|()| (&mut answer).take(MAX_ANSWER).read_to_end(&mut output));
    read.map_err(|error| failure("cannot read the output of a program in a cell", &error))?;
    Ok((outcome, output))
}
