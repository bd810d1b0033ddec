//! Carrying out a plan: one loop that waits for output, input, the end, and a wish to cancel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox_cell::archive::Archive;
use sandbox_cell::{
    Cell, Failure, Keeper, LimitKind, Outcome, Ready, RunStatus, Stdio, StopReason, reason, signal_name,
};

use crate::capture::Capture;
use crate::request::Plan;
use crate::result::{Metrics, Phases, RunResult, Status, Verdict, seconds, text};
use crate::verdict::{Evidence, judge};

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Somebody who watches a run.
pub trait Observer {
    /// The program has written this. Called in order for each stream, as soon as it is written; it should not block.
    fn output(&mut self, stream: Stream, bytes: &[u8]);
}

/// For runs that nobody watches.
impl Observer for () {
    fn output(&mut self, _: Stream, _: &[u8]) {}
}

/// What the program reads from standard input.
#[derive(Debug)]
pub enum Input {
    /// Nothing.
    Empty,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Whatever can be read from here. The program gets a pipe, not this descriptor.
    Stream(OwnedFd),
}

/// Runs plans in cells.
#[derive(Debug)]
pub struct Executor {
    keeper: Keeper,
}

const BUFFER: usize = 64 * 1024;

impl Executor {
    /// An executor with a keeper of its own. The process must have a single thread.
    pub fn start() -> Result<Self, Failure> {
        Ok(Self { keeper: Keeper::start()? })
    }

    /// Carries out a plan, the last one: the keeper ends with it, and dropping the executor waits for that.
    ///
    /// Output goes to the observer as it comes; the run is cancelled when one of `cancel` becomes readable. Fails if the
    /// sandbox does, or if the program cannot be started; a program that fails is a result.
    pub fn run_last(
        &self,
        plan: &Plan,
        input: Input,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<RunResult, Failure> {
        let mut cell = self.keeper.create(&plan.cell)?;
        self.keeper.close();
        let mut run = Run::start(&cell, plan, input).map_err(|error| failure("cannot start the run", &error))??;
        let (outcome, ready) = run.follow(&mut cell, cancel, observer)?;
        Ok(run.result(plan, &outcome, ready))
    }
}

fn failure(what: &str, error: &io::Error) -> Failure {
    Failure { what: what.to_owned(), why: reason(error), fix: None, request: false }
}

/// A run that is going on.
struct Run {
    stdout: Capture,
    stderr: Capture,
    feed: Option<Feed>,
}

impl Run {
    fn start(cell: &Cell<'_>, plan: &Plan, input: Input) -> io::Result<Result<Self, Failure>> {
        let limit = plan.cell.limits.output();
        let (stdout, stdout_end) = Capture::new(limit)?;
        let (stderr, stderr_end) = Capture::new(limit)?;
        let (feed, stdin_end) = Feed::new(input)?;
        let mut files = Archive::new()?;
        for (path, content) in &plan.files {
            files.add(path.clone(), false, content)?;
        }
        let stdio = Stdio { stdin: stdin_end.as_fd(), stdout: stdout_end.as_fd(), stderr: stderr_end.as_fd() };
        let started = cell.start_last(&plan.command, stdio, Some(&files));
        Ok(started.map(|()| Self { stdout, stderr, feed }))
    }

    /// Follows the run to its end.
    fn follow(
        &mut self,
        cell: &mut Cell<'_>,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, Ready), Failure> {
        let mut buffer = vec![0; BUFFER];
        let mut stopping = false;
        loop {
            let woken = self.wait(cell, if stopping { &[] } else { cancel })?;
            self.read(&mut buffer, observer);
            if let Some(feed) = &mut self.feed
                && woken.feed
                && !feed.pump()
            {
                self.feed = None;
            }
            if !stopping {
                let over = self.stdout.is_over() || self.stderr.is_over();
                let reason = if over {
                    Some(StopReason::Limit(LimitKind::Output))
                } else {
                    woken.cancel.then_some(StopReason::Cancelled)
                };
                if let Some(reason) = reason {
                    cell.stop(reason)?;
                    stopping = true;
                }
            }
            if woken.cell
                && let Some(outcome) = cell.poll()?
            {
                // Every writer is dead; what they wrote is in the pipes.
                while self.stdout.has_more() || self.stderr.has_more() {
                    self.read(&mut buffer, observer);
                }
                return Ok((outcome, cell.ready()?));
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8], observer: &mut dyn Observer) {
        for (capture, stream) in [(&mut self.stdout, Stream::Stdout), (&mut self.stderr, Stream::Stderr)] {
            let new = capture.read(buffer);
            if !new.is_empty() {
                observer.output(stream, new);
            }
        }
    }

    /// Waits until something happens.
    fn wait(&self, cell: &Cell<'_>, cancel: &[BorrowedFd<'_>]) -> Result<Woken, Failure> {
        let mut fds = vec![PollFd::new(cell, PollFlags::IN)];
        fds.extend(cancel.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let feed = self.feed.as_ref().and_then(Feed::waiting).map(|(fd, flags)| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        });
        for pipe in [self.stdout.pipe(), self.stderr.pipe()].into_iter().flatten() {
            fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failure("cannot wait for the run", &errno.into())),
        }
        let ready = |index: usize| !fds[index].revents().is_empty();
        Ok(Woken { cell: ready(0), cancel: (1..=cancel.len()).any(ready), feed: feed.is_some_and(ready) })
    }

    fn result(self, plan: &Plan, outcome: &Outcome, ready: Ready) -> RunResult {
        let (stdout_truncated, stderr_truncated) = (self.stdout.is_over(), self.stderr.is_over());
        let evidence = Evidence {
            limits: &plan.cell.limits,
            isolation: ready.isolation,
            stderr: &self.stderr.kept,
            output: self.stdout.seen.max(self.stderr.seen),
        };
        let judgement = judge(outcome, evidence);
        let success = judgement.verdict == Verdict::Ok;
        let (exit_code, signal) = match outcome.status {
            RunStatus::Exited(code) => (Some(code), None),
            RunStatus::Signaled(signal) => (None, Some(signal_name(signal))),
        };
        let (stdout, stdout_base64) = text(self.stdout.kept);
        let (stderr, stderr_base64) = text(self.stderr.kept);
        let phases = Phases { prepare: seconds(ready.prepare), run: seconds(outcome.usage.wall), ..Phases::default() };
        let metrics = Metrics::new(&outcome.usage, phases);
        let (language, version) = plan.language.clone().unzip();
        RunResult {
            status: if success { Status::Success } else { Status::Error },
            verdict: judgement.verdict,
            success,
            language,
            version,
            result: success.then(|| stdout.strip_suffix('\n').unwrap_or(&stdout).to_owned()),
            stdout,
            stderr,
            stdout_base64,
            stderr_base64,
            stdout_truncated,
            stderr_truncated,
            exit_code,
            signal,
            error: judgement.error,
            execution_time: metrics.wall_time,
            memory_used: metrics.memory_peak,
            limit: judgement.limit,
            compile: None,
            metrics,
            isolation: ready.isolation,
            files: BTreeMap::new(),
        }
    }
}

/// What ended a wait.
struct Woken {
    cell: bool,
    cancel: bool,
    feed: bool,
}

/// Standard input on its way to the program.
struct Feed {
    pipe: OwnedFd,
    /// What is still to be written.
    pending: Vec<u8>,
    written: usize,
    /// Where more comes from.
    source: Option<OwnedFd>,
}

impl Feed {
    /// A feed, if there is something to feed, and the end for the program.
    fn new(input: Input) -> io::Result<(Option<Self>, OwnedFd)> {
        let (pending, source) = match input {
            Input::Empty => return Ok((None, sandbox_cell::null()?.into())),
            Input::Bytes(bytes) => (bytes, None),
            Input::Stream(source) => (vec![], Some(source)),
        };
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&writer, fcntl_getfl(&writer)? | OFlags::NONBLOCK)?;
        let mut feed = Self { pipe: writer, pending, written: 0, source };
        // What fits into the pipe needs no waiting later. A stream may have nothing yet.
        let more = feed.source.is_some() || feed.write();
        Ok((more.then_some(feed), reader))
    }

    /// What to wait for: room in the pipe, or something to put there.
    fn waiting(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        if self.written < self.pending.len() {
            return Some((self.pipe.as_fd(), PollFlags::OUT));
        }
        self.source.as_ref().map(|source| (source.as_fd(), PollFlags::IN))
    }

    /// Moves some bytes on. False when there is nothing left to do.
    fn pump(&mut self) -> bool {
        if self.written < self.pending.len() {
            return self.write() || self.source.is_some();
        }
        let Some(source) = &self.source else { return false };
        self.pending.resize(BUFFER, 0);
        self.written = 0;
        match rustix::io::read(source, self.pending.as_mut_slice()) {
            Ok(n) if n > 0 => {
                self.pending.truncate(n);
                self.write();
                !self.is_broken()
            }
            Err(Errno::INTR | Errno::AGAIN) => {
                self.pending.clear();
                true
            }
            _ => false,
        }
    }

    /// Writes what fits. False when all is written or nobody reads.
    fn write(&mut self) -> bool {
        while self.written < self.pending.len() {
            match rustix::io::write(&self.pipe, &self.pending[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    self.pending.clear();
                    self.written = 0;
                    self.source = None;
                    return false;
                }
            }
        }
        false
    }

    /// Whether the program has closed its end.
    fn is_broken(&self) -> bool {
        self.source.is_none()
    }
}
