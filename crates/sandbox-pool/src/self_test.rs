//! The self-test of warm starts: a small program must end alike in the child of a zygote and in an interpreter that starts
//! by itself.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox_base::RelativePath;
use sandbox_base::limits::{Caps, LimitKind, Limits};
use sandbox_base::units::shorten;
use sandbox_cell::archive::Archive;
use sandbox_cell::{Cell, CellSpec, Failure, Keeper, RunStatus, Start, Stdio, null};
use sandbox_runtimes::{RUNNER_FILE, WarmSelfTest};

use crate::failure;
use crate::zygote::Zygote;

/// The time limit of the program, in microseconds.
const WALL_TIME: u64 = 10_000_000;

/// The number of characters that are shown before a difference.
const CONTEXT: usize = 12;

/// The end of a program.
#[derive(Debug, PartialEq, Eq)]
struct ProbeEnd {
    status: RunStatus,
    stdout: String,
    stderr: String,
}

/// Why programs have to start cold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SelfTestError {
    /// They behave differently in the children of zygotes.
    Differs(String),
    /// It could not be found out whether they do.
    Failed(Failure),
}

impl From<Failure> for SelfTestError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Runs the test with a zygote and without, in cells like `spec`.
pub(crate) fn compare(
    keeper: &Keeper,
    zygote: &Zygote,
    spec: &CellSpec,
    test: &WarmSelfTest,
) -> Result<(), SelfTestError> {
    let mut limits = spec.limits.clone();
    let _ = limits.set(LimitKind::WallTime, WALL_TIME, &Caps::default());
    let ends = || -> Result<_, Failure> {
        let warm = run_warm(keeper, zygote, spec, &limits, test)?;
        let cell = keeper.create(&CellSpec { limits: limits.clone(), ..spec.clone() })?;
        Ok((warm, run(cell, None, test)?))
    };
    // A limit, or the sandbox, can end it on a busy host.
    let (warm, cold) = ends().or_else(|_| ends())?;
    difference(&warm, &cold).map_or(Ok(()), |difference| Err(SelfTestError::Differs(difference)))
}

fn run_warm(
    keeper: &Keeper,
    zygote: &Zygote,
    spec: &CellSpec,
    limits: &Limits,
    test: &WarmSelfTest,
) -> Result<ProbeEnd, Failure> {
    let mut cell = zygote.make(keeper, spec)?;
    zygote.enter(&mut cell)?;
    Zygote::wait(&mut cell)?;
    run(cell, Some(limits), test)
}

/// Runs the program. A cell that was made with other limits gets these.
fn run(mut cell: Cell, limits: Option<&Limits>, test: &WarmSelfTest) -> Result<ProbeEnd, Failure> {
    let internal = |error: std::io::Error| failure("cannot run the self-test", &error);
    let (stdout, stdout_end) = pipe().map_err(internal)?;
    let (stderr, stderr_end) = pipe().map_err(internal)?;
    let (null, files) = (null().map_err(internal)?, files(test).map_err(internal)?);
    let stdio = Stdio { stdin: null.as_fd(), stdout: stdout_end.as_fd(), stderr: stderr_end.as_fd() };
    cell.start(&Start { limits, files: Some(&files), last: true, ..Start::new(&test.command, stdio) })?;
    drop((stdout_end, stderr_end));
    let outcome = cell.wait()?;
    if let Some(reason) = outcome.stopped {
        return Err(failure("the program did not end by itself", &std::io::Error::other(format!("{reason:?}"))));
    }
    Ok(ProbeEnd { status: outcome.status, stdout: read(&stdout), stderr: read(&stderr) })
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// The output of the program, which fits into a pipe.
fn read(pipe: &OwnedFd) -> String {
    let (mut all, mut buffer) = (vec![], [0; 4096]);
    while let Ok(count @ 1..) = rustix::io::read(pipe, &mut buffer) {
        all.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn files(test: &WarmSelfTest) -> std::io::Result<Archive> {
    let path = |name: &str| RelativePath::new(name).map_err(std::io::Error::other);
    let mut files = Archive::new()?;
    files.add(path(&test.entry)?, false, test.program.as_bytes())?;
    if let Some(runner) = &test.runner_file {
        let mut content = Archive::new()?;
        content.add(path(RUNNER_FILE)?, false, runner.as_bytes())?;
        files.add_volume(0, &mut content.into_file())?;
    }
    Ok(files)
}

/// The first difference, if the results differ.
fn difference(warm: &ProbeEnd, cold: &ProbeEnd) -> Option<String> {
    if warm.status != cold.status {
        return Some(format!("the self-test ended with {:?} warm and {:?} cold", warm.status, cold.status));
    }
    let streams = [("output", &warm.stdout, &cold.stdout), ("standard error", &warm.stderr, &cold.stderr)];
    streams.into_iter().find(|(_, warm, cold)| warm != cold).map(|(stream, warm, cold)| {
        let lines = || warm.lines().map(Some).chain([None]).zip(cold.lines().map(Some).chain([None]));
        let (warm, cold) = lines().find(|(warm, cold)| warm != cold).unwrap_or_default();
        let (before, other) = (warm.unwrap_or_default().chars(), cold.unwrap_or_default().chars());
        // Of what both lines begin with, only the end is shown.
        let skipped = before.zip(other).take_while(|(a, b)| a == b).count().saturating_sub(CONTEXT);
        let ellipsis = if skipped > 0 { "…" } else { "" };
        let shown = |line: Option<&str>| {
            let part = line.map(|line| line.chars().skip(skipped).collect::<String>());
            part.map_or_else(|| "nothing".to_owned(), |part| format!("'{ellipsis}{}'", shorten(&part)))
        };
        format!("the {stream} of the self-test is {} warm and {} cold", shown(warm), shown(cold))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(code: i32, stdout: &str, stderr: &str) -> ProbeEnd {
        ProbeEnd { status: RunStatus::Exited(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    #[test]
    fn equal_ends_do_not_differ() {
        assert_eq!(difference(&end(3, "a\n", "b"), &end(3, "a\n", "b")), None);
    }

    #[test]
    fn the_first_difference_is_named() {
        let of = |warm: ProbeEnd, cold: ProbeEnd| difference(&warm, &cold).expect("different");
        assert!(of(end(0, "", ""), end(3, "", "")).contains("Exited(0) warm and Exited(3) cold"));
        assert_eq!(
            of(end(3, "a\nb\n", ""), end(3, "a\nc\n", "")),
            "the output of the self-test is 'b' warm and 'c' cold"
        );
        assert_eq!(
            of(end(3, "é begins with the same 1 end\n", ""), end(3, "é begins with the same 2\n", "")),
            "the output of the self-test is '…th the same 1 end' warm and '…th the same 2' cold"
        );
        assert_eq!(
            of(end(3, "a\n", "x\n"), end(3, "a\n", "")),
            "the standard error of the self-test is 'x' warm and nothing cold"
        );
    }
}
