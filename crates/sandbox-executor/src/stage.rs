//! One stage: a command in a fresh cell, followed to its end. One loop waits for output, input, the end, and a wish to
//! cancel.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};
use sandbox_backends::Backend;
use sandbox_base::units::format_duration;
use sandbox_base::wait::{is_readable, timespec};
use sandbox_base::{LimitKind, reason};
use sandbox_cell::archive::{self, Archive, Arrival, FileCaps, Sink};
use sandbox_cell::{
    Cell, CellEnd, CellSpec, Command, Failure, GatewaySockets, LayerSet, Mount, Network, Outcome, Ready, RunStatus,
    Start, Stdio, StopReason, Usage, Volume,
};
use sandbox_network::{AddressPolicy, CellGateway, GatewaySocketSet, NetworkUse};
use sandbox_pool::{Prestart, RefillGuard, StartKind, TakeError, TakenCell, WantedCell};

use crate::execute::Cells;
use crate::output_capture::OutputCapture;
use crate::shared::SharedBytes;
use crate::terminal::{TerminalInput, TerminalWindow};

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The standard input of a program.
#[derive(Debug)]
pub enum Input {
    /// Nothing.
    Empty,
    /// These bytes.
    Bytes(SharedBytes),
    /// Whatever can be read from here. The program gets a pipe, not this descriptor.
    Stream(OwnedFd),
    /// A terminal, which is its standard output and standard error too: everything that it prints is standard output.
    Terminal(TerminalInput),
}

impl Input {
    /// The terminal, if it is one.
    pub(crate) fn terminal(&self) -> Option<&TerminalInput> {
        match self {
            Self::Terminal(terminal) => Some(terminal),
            Self::Empty | Self::Bytes(_) | Self::Stream(_) => None,
        }
    }
}

const BUFFER: usize = 64 * 1024;

/// How long after its deadline a command may run before the executor queries the keeper, and how long the keeper has to
/// answer. The keeper itself gives up a cell before that. Together they are the two seconds within which a caller gets its
/// result.
const OVERDUE: Duration = Duration::from_millis(1_700);
const ANSWER: Duration = Duration::from_millis(300);

/// How long it may take until a cell is ready and its command started, with any backend. The keeper gives up before that.
pub(crate) const BEGIN: Duration = Duration::from_secs(65);

/// How long it may take until a cell of the native backend is ready. That takes milliseconds, and on an overloaded machine
/// some seconds; a keeper that needs longer is stuck, and so would be everyone who waits for it.
const NATIVE_CELL: Duration = Duration::from_secs(20);

/// How long a cell of a backend may take until it is ready.
pub(crate) fn longest_creation(backend: &Backend) -> Duration {
    if *backend == Backend::Native { NATIVE_CELL } else { BEGIN }
}

/// A stage.
pub(crate) struct Stage<'a> {
    pub(crate) cell: &'a CellSpec,
    /// What was made before and is shown in it.
    pub(crate) artifact_mounts: &'a [Mount],
    /// What could wait for the command.
    pub(crate) prestart: Option<Prestart>,
    pub(crate) command: &'a Command,
    pub(crate) files: &'a Archive,
    pub(crate) input: Input,
    /// What to collect afterwards.
    pub(crate) collect: Option<FileCaps>,
    /// How long that may take after the command's deadline.
    pub(crate) patience: Duration,
    /// How long it may take until the cell is ready.
    pub(crate) creation: Duration,
    /// What a cell with a proxy may reach.
    pub(crate) address_policy: &'a AddressPolicy,
    /// Whether the keeper will be asked for nothing more.
    pub(crate) last: bool,
}

/// The outcome of a stage.
pub(crate) struct StageEnd {
    pub(crate) outcome: Outcome,
    pub(crate) ready: Ready,
    /// How it got its cell.
    pub(crate) start: StartKind,
    pub(crate) stdout: OutputCapture,
    pub(crate) stderr: OutputCapture,
    /// How many files were left out of the collection.
    pub(crate) omitted: u64,
    /// Why the collection ended early, if it did.
    pub(crate) cut: Option<String>,
    /// How long the collection took.
    pub(crate) collect_time: Duration,
    /// What went over the network, if it had one.
    pub(crate) network: Option<NetworkUse>,
    /// Held until the caller has the result, if the run was short.
    pub(crate) refill: Option<RefillGuard>,
}

/// Why a stage did not run.
pub(crate) enum StageError {
    /// The caller went away before its command began.
    Cancelled,
    /// The sandbox failed.
    Failed(Failure),
}

impl From<Failure> for StageError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<TakeError> for StageError {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::Cancelled => Self::Cancelled,
            TakeError::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl StageEnd {
    /// Bytes written to the stream that wrote more.
    pub(crate) fn output(&self) -> u64 {
        self.stdout.seen.max(self.stderr.seen)
    }
}

pub(crate) fn failure(what: &str, error: &io::Error) -> Failure {
    Failure::new(what, reason(error))
}

impl Stage<'_> {
    /// Runs the stage in a separate cell. Output goes to `observe` as it comes, files to `sink` when the command has ended.
    pub(crate) fn run(
        self,
        cells: &Cells,
        cancel: &[BorrowedFd<'_>],
        observe: &mut dyn FnMut(Stream, &[u8]),
        sink: &mut dyn Sink,
    ) -> Result<StageEnd, StageError> {
        let is_cancelled = || is_readable(cancel, Duration::ZERO);
        let prestart = self.prestart.as_ref();
        let wanted = WantedCell { spec: self.cell, artifact_mounts: self.artifact_mounts, prestart };
        let TakenCell { mut cell, start, late_mounts, refill } = cells.pool.take(&wanted, &is_cancelled)?;
        if self.last {
            cells.keeper.close();
        }
        let (has_gateway, address_policy) =
            (matches!(self.cell.network, Network::Gateway(_)), self.address_policy.clone());
        let volumes: Vec<FileCaps> = self.cell.volumes.iter().map(Volume::caps).collect();
        let (limit, patience, creation) = (self.cell.limits.wall_time(), self.patience, self.creation);
        let (mut streams, collection) =
            self.start(&cell, start, &late_mounts).map_err(|error| failure("cannot start the stage", &error))??;
        if streams.terminal.is_some() {
            cell.ready_unless(cancel)?.ok_or(StageError::Cancelled)?;
            let missing = || Failure::new("cannot connect the terminal", "the cell has none");
            let master = cell.take_terminal()?.ok_or_else(missing)?;
            streams.connect(master).map_err(|error| failure("cannot connect the terminal", &error))?;
        }
        let gateway = if has_gateway {
            cell.ready_unless(cancel)?.ok_or(StageError::Cancelled)?;
            cell.take_gateway()?
        } else {
            None
        };
        let gateway = gateway.map(|GatewaySockets { proxy, dns, ports }| {
            CellGateway::serve(GatewaySocketSet { proxy, dns, ports }, address_policy)
        });
        let gateway = gateway.transpose();
        let gateway = gateway.map_err(|error| failure("cannot serve the cell's gateway", &error))?;
        let mut refill = Some(refill);
        let (mut outcome, mut ready) = streams.follow(&mut cell, (limit, creation), &mut refill, cancel, observe)?;
        if start != StartKind::Cold {
            // It was made before the run.
            ready.prepare = Duration::ZERO;
        }
        let began = Instant::now();
        let arrival = match collection {
            // Nothing will come of it, and its writer may never be gone.
            Some(_) if outcome.end == CellEnd::Lost => {
                Arrival { omitted: 0, cut: Some(io::Error::other("the cell does not respond")) }
            }
            Some((caps, pipe)) => {
                let until = began + (limit + patience).saturating_sub(outcome.usage.wall);
                let mut pipe = BufReader::new(TimedPipe { pipe, until, cancel });
                let arrival = archive::read_all(&mut pipe, caps, &volumes, &mut SinkRef(sink))
                    .map_err(|error| failure("cannot collect the files of the cell", &error))?;
                if arrival.cut.is_some() && is_cancelled() {
                    outcome.stopped.get_or_insert(StopReason::Cancelled);
                }
                arrival
            }
            None => Arrival::default(),
        };
        if outcome.end == CellEnd::Lost {
            cell.abandon();
        }
        let Streams { stdout, stderr, .. } = streams;
        let network = gateway.map(CellGateway::close);
        let collect_time = began.elapsed();
        let (omitted, cut) = (arrival.omitted, arrival.cut.map(|error| reason(&error)));
        Ok(StageEnd { outcome, ready, start, stdout, stderr, omitted, cut, collect_time, network, refill })
    }

    fn start(
        self,
        cell: &Cell,
        start: StartKind,
        late_mounts: &[Mount],
    ) -> io::Result<Result<(Streams, Collection), Failure>> {
        let (streams, [stdin_end, stdout_end, stderr_end]) = Streams::new(self.input, self.cell.limits.output())?;
        let collection = self.collect.map(|caps| pipe_with(PipeFlags::CLOEXEC).map(|pipe| (caps, pipe))).transpose()?;
        let started = cell.start(&Start {
            command: self.command,
            mounts: late_mounts,
            limits: (start != StartKind::Cold).then_some(&self.cell.limits),
            extra: None,
            stdio: Stdio { stdin: stdin_end.as_fd(), stdout: stdout_end.as_fd(), stderr: stderr_end.as_fd() },
            files: Some(self.files),
            collect: collection.as_ref().map(|(caps, (_, writer))| (*caps, writer.as_fd())),
            last: true,
        });
        let reader = collection.map(|(caps, (reader, _))| (caps, File::from(reader)));
        Ok(started.map(|()| (streams, reader)))
    }
}

/// The pipe from which files come when the command has ended, and their caps.
type Collection = Option<(FileCaps, File)>;

/// A pipe that is read until some time, or until one of `cancel` becomes readable.
struct TimedPipe<'a> {
    pipe: File,
    until: Instant,
    cancel: &'a [BorrowedFd<'a>],
}

impl io::Read for TimedPipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        let mut fds = vec![PollFd::new(&self.pipe, PollFlags::IN)];
        fds.extend(self.cancel.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long")),
            Ok(_) if fds.iter().skip(1).any(|fd| !fd.revents().is_empty()) => {
                Err(io::Error::other("the run was cancelled"))
            }
            Ok(_) => self.pipe.read(buffer),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A sink behind a reference.
struct SinkRef<'a>(&'a mut dyn Sink);

impl Sink for SinkRef<'_> {
    fn file(
        &mut self,
        path: &sandbox_base::RelativePath,
        executable: bool,
        size: u64,
        content: &mut dyn io::Read,
    ) -> io::Result<()> {
        self.0.file(path, executable, size, content)
    }

    fn omitted(&mut self, path: &str, why: archive::Omission) {
        self.0.omitted(path, why);
    }

    fn volume(&mut self, number: u8, part: &mut dyn io::Read) -> io::Result<()> {
        self.0.volume(number, part)
    }
}

/// The streams of a command that is running.
struct Streams {
    stdout: OutputCapture,
    stderr: OutputCapture,
    feed: Option<Feed>,
    /// The terminal that takes the place of all three, and its window.
    terminal: Option<Terminal>,
}

/// A terminal of a cell, and what belongs to it outside.
struct Terminal {
    /// What is typed, until the terminal is connected.
    keys: Option<OwnedFd>,
    window: Arc<TerminalWindow>,
    /// The caller's end, once there is one.
    master: Option<OwnedFd>,
}

impl Streams {
    /// The streams of a command, and the ends for the program.
    fn new(input: Input, limit: u64) -> io::Result<(Self, [OwnedFd; 3])> {
        let null = || sandbox_cell::null().map(OwnedFd::from);
        let (feed, stdin_end) = match input {
            Input::Empty => (None, null()?),
            Input::Bytes(bytes) => Feed::new(bytes, None)?,
            Input::Stream(source) => Feed::new(vec![].into(), Some(source))?,
            Input::Terminal(TerminalInput { keys, window }) => {
                let [stdout, stderr] = [(); 2].map(|()| OutputCapture::unconnected(limit));
                let terminal = Some(Terminal { keys, window, master: None });
                return Ok((Self { stdout, stderr, feed: None, terminal }, [null()?, null()?, null()?]));
            }
        };
        let (stdout, stdout_end) = OutputCapture::new(limit)?;
        let (stderr, stderr_end) = OutputCapture::new(limit)?;
        Ok((Self { stdout, stderr, feed, terminal: None }, [stdin_end, stdout_end, stderr_end]))
    }

    /// Connects the terminal: its output is standard output, and keys that are typed go to it.
    fn connect(&mut self, master: OwnedFd) -> io::Result<()> {
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        // A program that does not read, or that prints without end, must not block this loop.
        fcntl_setfl(&master, OFlags::NONBLOCK)?;
        self.stdout.connect(master.try_clone()?);
        if let Some(keys) = terminal.keys.take() {
            self.feed =
                Some(Feed { pipe: master.try_clone()?, pending: vec![].into(), written: 0, source: Some(keys) });
        }
        terminal.master = Some(master);
        Ok(())
    }

    /// Passes a new size of the window on.
    fn resize(&self) {
        if let Some(Terminal { window, master: Some(master), .. }) = &self.terminal
            && let Some(size) = window.take_change()
        {
            let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
            // The kernel signals the program.
            let _ = tcsetwinsize(master, size);
        }
    }

    /// Follows the run to its end, or until it is long overdue.
    fn follow(
        &mut self,
        cell: &mut Cell,
        (limit, creation): (Duration, Duration),
        refill: &mut Option<RefillGuard>,
        cancel: &[BorrowedFd<'_>],
        observe: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<(Outcome, Ready), Failure> {
        let mut buffer = vec![0; BUFFER];
        let mut stopping = false;
        let until = Instant::now() + RefillGuard::LONGEST;
        let mut patience = Patience::new(limit, creation, cell.is_ready().is_some());
        loop {
            let now = Instant::now();
            if refill.is_some() && until <= now {
                *refill = None;
            }
            let next = if refill.is_some() { until.min(patience.until) } else { patience.until };
            let longest = next.saturating_duration_since(now);
            let woken = self.wait(cell, if stopping { &[] } else { cancel }, longest)?;
            self.read(woken.output, &mut buffer, observe);
            self.resize();
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
                    patience.stop(reason);
                }
            }
            let ended = if woken.cell { cell.poll()? } else { None };
            if woken.cell {
                patience.hear(cell);
            }
            if ended.is_none() && patience.is_creation_overdue() {
                let why = format!("no cell was ready within {}", format_duration(creation));
                return Err(Failure::new("cannot create a sandbox", why));
            }
            if let Some(outcome) = ended.or_else(|| patience.run_out(cell)) {
                self.drain(&outcome, &mut buffer, observe);
                let none = Ready { isolation: LayerSet::default(), prepare: Duration::ZERO, zygote_namespace: None };
                return Ok((outcome, cell.is_ready().unwrap_or(none)));
            }
        }
    }

    /// Reads what is left in the pipes. Every writer is dead, or else they get no further than the output limit.
    fn drain(&mut self, outcome: &Outcome, buffer: &mut [u8], observe: &mut dyn FnMut(Stream, &[u8])) {
        loop {
            let more = [self.stdout.has_more(), self.stderr.has_more()];
            let lost = outcome.end == CellEnd::Lost && (self.stdout.is_over() || self.stderr.is_over());
            if more == [false, false] || lost {
                return;
            }
            self.read(more, buffer, observe);
        }
    }

    /// Reads from the streams that have something, or have ended.
    fn read(&mut self, ready: [bool; 2], buffer: &mut [u8], observe: &mut dyn FnMut(Stream, &[u8])) {
        let streams = [(&mut self.stdout, Stream::Stdout), (&mut self.stderr, Stream::Stderr)];
        for ((capture, stream), _) in streams.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            let new = capture.read(buffer);
            if !new.is_empty() {
                observe(stream, new);
            }
        }
    }

    /// Waits until something happens, but no longer than this.
    fn wait(&self, cell: &Cell, cancel: &[BorrowedFd<'_>], longest: Duration) -> Result<Woken, Failure> {
        let mut fds = vec![PollFd::new(cell, PollFlags::IN)];
        fds.extend(cancel.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let feed = self.feed.as_ref().and_then(Feed::waiting).map(|(fd, flags)| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        });
        // Woken is enough: the loop looks whether the size has changed.
        fds.extend(self.terminal.as_ref().map(|terminal| PollFd::new(&*terminal.window, PollFlags::IN)));
        let output = [&self.stdout, &self.stderr].map(|capture| {
            fds.push(PollFd::from_borrowed_fd(capture.pipe()?, PollFlags::IN));
            Some(fds.len() - 1)
        });
        match poll(&mut fds, Some(&timespec(longest))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failure("cannot wait for the run", &errno.into())),
        }
        let ready = |index: usize| !fds[index].revents().is_empty();
        Ok(Woken {
            cell: ready(0),
            cancel: (1..=cancel.len()).any(ready),
            feed: feed.is_some_and(ready),
            output: output.map(|index| index.is_some_and(ready)),
        })
    }
}

/// How long a command is waited for. Its end is the keeper's to bring about and to tell; should that not happen, whatever
/// the reason, the caller gets an answer all the same.
struct Patience {
    limit: Duration,
    /// When to ask the keeper, or to give up if it was asked.
    until: Instant,
    asked: bool,
    /// Whether the cell was ready, so that its command's time may have begun.
    ready: bool,
    stopped: Option<StopReason>,
    began: Instant,
}

impl Patience {
    fn new(limit: Duration, creation: Duration, ready: bool) -> Self {
        let began = Instant::now();
        let until = began + if ready { limit + OVERDUE } else { creation };
        Self { limit, until, asked: false, ready, stopped: None, began }
    }

    /// Whether there is no cell, although there should be one by now.
    fn is_creation_overdue(&self) -> bool {
        !self.ready && self.stopped.is_none() && Instant::now() >= self.until
    }

    /// Notes that the command is being stopped.
    fn stop(&mut self, reason: StopReason) {
        self.stopped = Some(reason);
        self.until = self.until.min(Instant::now() + OVERDUE);
    }

    /// Handles a message of the cell: that it is ready, or its usage.
    fn hear(&mut self, cell: &mut Cell) {
        let now = Instant::now();
        if !self.ready && cell.is_ready().is_some() {
            self.ready = true;
            self.until = now + if self.stopped.is_some() { OVERDUE } else { self.limit + OVERDUE };
        }
        if let Some(usage) = cell.take_sample()
            && self.asked
            && self.stopped.is_none()
            && usage.wall < self.limit
            && now < self.began + self.limit + BEGIN
        {
            // Its time began later than the cell was ready: input files were made, or a container was slow.
            self.asked = false;
            self.until = now + self.limit.saturating_sub(usage.wall) + OVERDUE;
        }
    }

    /// The outcome of a command that is long overdue, if the keeper has reported none.
    fn run_out(&mut self, cell: &Cell) -> Option<Outcome> {
        let now = Instant::now();
        if now < self.until {
            return None;
        }
        if self.ready && !self.asked && cell.ask().is_ok() {
            self.asked = true;
            self.until = now + ANSWER;
            return None;
        }
        let timeout = self.ready.then_some(StopReason::Limit(LimitKind::WallTime));
        let (status, stopped) = (RunStatus::Signaled(rustix::process::Signal::KILL.as_raw()), self.stopped.or(timeout));
        let usage = Usage { wall: self.began.elapsed(), ..Usage::default() };
        Some(Outcome { status, stopped, reached: vec![], usage, end: CellEnd::Lost })
    }
}

/// The reason for the end of a wait.
struct Woken {
    cell: bool,
    cancel: bool,
    feed: bool,
    /// Standard output, standard error.
    output: [bool; 2],
}

/// Standard input on its way to the program.
struct Feed {
    pipe: OwnedFd,
    /// What is being written.
    pending: SharedBytes,
    written: usize,
    /// Where more comes from.
    source: Option<OwnedFd>,
}

impl Feed {
    /// A feed, if there is something to feed, and the end for the program.
    fn new(pending: SharedBytes, source: Option<OwnedFd>) -> io::Result<(Option<Self>, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
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
        let mut buffer = vec![0; BUFFER];
        match rustix::io::read(source, buffer.as_mut_slice()) {
            Ok(n) if n > 0 => {
                buffer.truncate(n);
                (self.pending, self.written) = (buffer.into(), 0);
                self.write();
                !self.is_broken()
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            _ => false,
        }
    }

    /// Writes what fits. False when all is written or the reader is gone.
    fn write(&mut self) -> bool {
        while self.written < self.pending.len() {
            match rustix::io::write(&self.pipe, &self.pending[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    (self.pending, self.written) = (vec![].into(), 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_collection_that_does_not_come_is_cancelled() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let (cancel, cancelled) = rustix::pipe::pipe().expect("a pipe");
        drop(cancelled);
        let until = Instant::now() + Duration::from_secs(600);
        let mut pipe = TimedPipe { pipe: File::from(reader), until, cancel: &[cancel.as_fd()] };
        let error = pipe.read(&mut [0; 16]).expect_err("nothing has been written");
        assert_eq!(error.to_string(), "the run was cancelled");
    }

    #[test]
    fn a_collection_that_takes_too_long_is_given_up() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let mut pipe = TimedPipe { pipe: File::from(reader), until: Instant::now(), cancel: &[] };
        assert_eq!(pipe.read(&mut [0; 16]).expect_err("nothing has been written").kind(), io::ErrorKind::TimedOut);
    }
}
