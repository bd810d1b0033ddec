//! Companions: programs that are started in a cell before it is known what runs there, and help that when it comes.
//!
//! A companion is an ordinary program of its cell, as locked as any other, and it is used once: it ends with the cell. It
//! says on its standard output that it is ready; if that closes, it has ended.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use sandbox_base::wait::is_readable;
use sandbox_cell::{Cell, CellSpec, Command, Failure, Keeper, Stdio, null};

use crate::failure;

/// How long a companion may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked whether anybody still waits for it.
const LOOK: Duration = Duration::from_millis(100);

/// A companion that is ready in its cell.
#[derive(Debug)]
pub(crate) struct CompanionProcess(OwnedFd);

impl CompanionProcess {
    /// Makes a cell like `spec` with a companion in it, and waits until that is ready, as long as `wanted` says so.
    pub(crate) fn start(
        keeper: &Keeper,
        spec: &CellSpec,
        command: &Command,
        wanted: impl Fn() -> bool,
    ) -> Result<(Cell, Self), Failure> {
        let mut cell = keeper.create(spec)?;
        cell.ready()?;
        let internal = |error: std::io::Error| failure("cannot start a companion", &error);
        let (voice, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| internal(errno.into()))?;
        let null = null().map_err(internal)?;
        cell.accompany(command, Stdio { stdin: null.as_fd(), stdout: theirs.as_fd(), stderr: null.as_fd() })?;
        drop(theirs);
        let companion = Self(voice);
        let began = Instant::now();
        while !companion.is_readable(LOOK) {
            if began.elapsed() > PATIENCE || !wanted() || is_readable(&[&cell], Duration::ZERO) {
                return Err(ended("it took too long"));
            }
        }
        let read = rustix::io::read(&companion.0, &mut [0_u8; 16][..]);
        if read.is_ok_and(|bytes| bytes > 0) { Ok((cell, companion)) } else { Err(ended("it ended")) }
    }

    /// Whether it has ended. It has nothing more to say, so that anything means that.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_readable(Duration::ZERO)
    }

    fn is_readable(&self, patience: Duration) -> bool {
        is_readable(&[&self.0], patience)
    }
}

fn ended(why: &str) -> Failure {
    Failure::new("a companion did not get ready", why)
}
