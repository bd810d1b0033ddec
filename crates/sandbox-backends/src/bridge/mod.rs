//! The bridge of a cell: a process that runs a container and speaks the keeper's protocol to the cell's caller.

mod messages;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::Container;
use super::frames::{self, CHUNK, Incoming, ToGuest, WINDOW};
use sandbox_base::limits::LimitKind;
use sandbox_base::wait::{is_readable, timespec};
use sandbox_cell::bridge::{self, Counters, FromCell, Received, RunParams, ToCell};
use sandbox_cell::{CellSpec, Command, Failure, LayerSet, StopReason};

/// How long the guest may overrun the deadline of a command before the bridge kills the container.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a container may take to become ready.
const START: Duration = Duration::from_secs(60);

/// How much of a runtime's error output is kept.
const COMPLAINT: usize = 4096;

/// Serves a cell through a container until the cell ends. Runs in a dedicated process.
pub(crate) fn bridge(spec: &CellSpec, caller: &OwnedFd, container: Result<Box<dyn Container>, Failure>) {
    let tell = |failure| {
        let _ = bridge::send(caller, &FromCell::Failed(failure), &[], SendFlags::empty());
    };
    let mut container = match container {
        Ok(container) => container,
        Err(failure) => return tell(failure),
    };
    match start(container.as_mut()) {
        Ok((mut child, streams)) => {
            let bridge = Bridge::new(spec, caller, container.as_ref(), streams);
            if let Err(failure) = bridge.and_then(Bridge::serve) {
                tell(failure);
            }
            container.kill();
            let _ = child.kill();
            let _ = child.wait();
        }
        Err(failure) => tell(failure),
    }
    container.remove();
}

type BridgeStreams = (ChildStdin, ChildStdout, ChildStderr);

fn start(container: &mut dyn Container) -> Result<(Child, BridgeStreams), Failure> {
    let mut command = container.prepare()?;
    let what = format!("cannot start {}", command.get_program().display());
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| {
        Failure::os(what, error).with_fix("install it, or name another (SANDBOX_OCI_RUNTIME, SANDBOX_DOCKER_BIN)")
    })?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((child, (stdin, stdout, stderr))),
        _ => Err(Failure::new("cannot start the container", "its standard streams are missing")),
    }
}

struct Bridge<'a> {
    spec: &'a CellSpec,
    caller: &'a OwnedFd,
    container: &'a dyn Container,
    to: ChildStdin,
    from: ChildStdout,
    complaints: ChildStderr,
    complaint: Vec<u8>,
    /// Frames to be sent to the guest.
    outgoing: VecDeque<u8>,
    incoming: Incoming,
    began: Instant,
    /// The active layers, once the container is ready.
    ready: Option<LayerSet>,
    /// A command that arrived before the container was ready.
    waiting: Option<(Box<RunParams>, Vec<OwnedFd>)>,
    running: Option<BridgedRun>,
    buffer: Vec<u8>,
    /// The counters of the container's cgroup before the command.
    before: Counters,
}

/// A running command.
struct BridgedRun {
    /// Input files that are still to be sent; the command follows them.
    files: Option<File>,
    command: Option<(Box<Command>, Box<RunParams>)>,
    input: Option<OwnedFd>,
    room: usize,
    output: [OwnedFd; 2],
    /// Output that the caller has not read yet.
    blocked: Option<(usize, Vec<u8>)>,
    collect: Option<File>,
    /// When the bridge ends the command, and then when it ends the container.
    stop: Instant,
    kill: Option<Instant>,
    reason: Option<StopReason>,
    ended: bool,
}

impl<'a> Bridge<'a> {
    fn new(
        spec: &'a CellSpec,
        caller: &'a OwnedFd,
        container: &'a dyn Container,
        (to, from, complaints): BridgeStreams,
    ) -> Result<Self, Failure> {
        for fd in [to.as_fd(), complaints.as_fd()] {
            nonblocking(fd).map_err(|errno| Failure::os("cannot prepare the container's streams", errno))?;
        }
        let mut bridge = Self {
            spec,
            caller,
            container,
            to,
            from,
            complaints,
            complaint: vec![],
            outgoing: VecDeque::new(),
            incoming: Incoming::default(),
            began: Instant::now(),
            ready: None,
            waiting: None,
            running: None,
            buffer: vec![0; bridge::MAX_MESSAGE],
            before: Counters::default(),
        };
        bridge.send(&ToGuest::Create(Box::new(container.inner())))?;
        Ok(bridge)
    }

    fn send(&mut self, message: &ToGuest) -> Result<(), Failure> {
        let frame = frames::encode(message).map_err(|error| Failure::os("cannot talk to the container", error))?;
        self.outgoing.extend(frame);
        Ok(())
    }

    fn tell(&self, message: &FromCell) {
        let _ = bridge::send(self.caller, message, &[], SendFlags::empty());
    }

    /// Serves the cell until its caller is gone.
    fn serve(mut self) -> Result<(), Failure> {
        loop {
            self.prepare_input()?;
            let [caller, from, complaints] = self.wait()?;
            self.write();
            self.unblock();
            if complaints {
                self.read_errors();
            }
            if caller && !self.receive_from_caller()? {
                return Ok(());
            }
            if from && !self.receive_from_guest()? {
                self.read_errors();
                return self.on_gone();
            }
            self.on_time()?;
        }
    }

    fn wait(&self) -> Result<[bool; 3], Failure> {
        let none = PollFlags::empty();
        let blocked = self.running.as_ref().and_then(|run| run.blocked.as_ref().map(|(at, _)| &run.output[*at]));
        let input = self.running.as_ref().and_then(|run| run.input.as_ref().filter(|_| self.wants_input(run)));
        let reading = if blocked.is_some() { none } else { PollFlags::IN };
        let mut fds = vec![
            PollFd::new(self.caller, PollFlags::IN),
            PollFd::new(&self.from, reading),
            PollFd::new(&self.complaints, PollFlags::IN),
        ];
        if !self.outgoing.is_empty() {
            fds.push(PollFd::new(&self.to, PollFlags::OUT));
        }
        fds.extend(blocked.map(|fd| PollFd::new(fd, PollFlags::OUT)));
        fds.extend(input.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let now = Instant::now();
        let timeout = self.deadline().map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
        let timeout = timeout.map(timespec);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::os("cannot wait for the container", errno)),
        }
        let ready = |index: usize| !fds[index].revents().is_empty();
        Ok([ready(0), ready(1) && blocked.is_none(), fds[2].revents().contains(PollFlags::IN)])
    }

    fn deadline(&self) -> Option<Instant> {
        match (&self.running, self.ready) {
            (_, None) => Some(self.began + START),
            (Some(run), _) if !run.ended => Some(run.kill.unwrap_or(run.stop)),
            _ => None,
        }
    }

    fn on_time(&mut self) -> Result<(), Failure> {
        if self.deadline().is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        let Some(run) = self.running.as_mut().filter(|_| self.ready.is_some()) else {
            return Err(self.failure("cannot start the container", "it was not ready in time"));
        };
        if run.kill.is_some() {
            self.container.kill();
            run.kill = Some(Instant::now() + PATIENCE);
            return Ok(());
        }
        self.stop(StopReason::Limit(LimitKind::WallTime))
    }

    fn stop(&mut self, reason: StopReason) -> Result<(), Failure> {
        let Some(run) = &mut self.running else { return Ok(()) };
        if run.kill.is_none() {
            run.kill = Some(Instant::now() + PATIENCE);
            run.reason = Some(reason);
        }
        self.send(&ToGuest::Stop(reason))
    }

    fn wants_input(&self, run: &BridgedRun) -> bool {
        run.command.is_none() && run.room > 0 && self.outgoing.len() < CHUNK
    }

    /// Reads the data for the guest: first the files, then the command, then its input.
    fn prepare_input(&mut self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::os("cannot send files to the container", error);
        if self.outgoing.len() >= CHUNK || self.ready.is_none() {
            return Ok(());
        }
        let Some(run) = &mut self.running else { return Ok(()) };
        if let Some(files) = &mut run.files {
            let mut bytes = vec![0; CHUNK];
            let read = files.read(&mut bytes).map_err(failed)?;
            bytes.truncate(read);
            if read == 0 {
                run.files = None;
            } else {
                return self.send(&ToGuest::Files(bytes));
            }
        }
        let Some(run) = &mut self.running else { return Ok(()) };
        if let Some((command, to_run)) = run.command.take() {
            run.stop = Instant::now() + self.spec.limits.wall_time() + Duration::from_secs(1);
            return self.send(&ToGuest::Run { command, run: to_run });
        }
        let Some(input) = run.input.as_ref().filter(|_| run.room > 0) else { return Ok(()) };
        if !is_readable(&[input], Duration::ZERO) {
            return Ok(());
        }
        let mut bytes = vec![0; CHUNK.min(run.room)];
        match rustix::io::read(input, bytes.as_mut_slice()) {
            Ok(read) if read > 0 => {
                bytes.truncate(read);
                run.room -= read;
                self.send(&ToGuest::Input(bytes))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            _ => {
                run.input = None;
                self.send(&ToGuest::InputEnd)
            }
        }
    }

    fn write(&mut self) {
        while !self.outgoing.is_empty() {
            let (part, _) = self.outgoing.as_slices();
            match rustix::io::write(&self.to, part) {
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(Errno::INTR) => {}
                // The pipe is full, or closed; a closed pipe is noticed at the end of output.
                Err(_) => return,
            }
        }
    }

    /// Continues to write output for which the reader had no room.
    fn unblock(&mut self) {
        let Some(run) = &mut self.running else { return };
        let Some((at, mut bytes)) = run.blocked.take() else { return };
        while !bytes.is_empty() {
            match rustix::io::write(&run.output[at], &bytes) {
                Ok(written) => drop(bytes.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    run.blocked = Some((at, bytes));
                    return;
                }
                // The reader is gone.
                Err(_) => return,
            }
        }
    }

    fn read_errors(&mut self) {
        let mut buffer = [0; COMPLAINT];
        while let Ok(read) = self.complaints.read(&mut buffer)
            && read > 0
        {
            self.complaint.extend_from_slice(&buffer[..read]);
            let excess = self.complaint.len().saturating_sub(COMPLAINT);
            self.complaint.drain(..excess);
        }
    }

    fn failure(&self, what: &str, why: &str) -> Failure {
        let complaint = String::from_utf8_lossy(&self.complaint);
        let lines: Vec<_> = complaint.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join(" / ");
        let last = sandbox_base::printable(&last);
        Failure::new(what, if last.is_empty() { why.to_owned() } else { last })
    }

    /// Receives messages from the caller. Returns false when the caller is gone.
    fn receive_from_caller(&mut self) -> Result<bool, Failure> {
        match bridge::receive(self.caller, &mut self.buffer, RecvFlags::DONTWAIT) {
            Ok(Received::Message(message, fds)) => match message {
                // Containers have no mount slots, and their limits cannot change.
                ToCell::Run { run, mounts }
                    if mounts.is_empty()
                        && run.limits.is_none()
                        && self.running.as_ref().is_none_or(|run| run.ended) =>
                {
                    self.waiting = Some((run, fds));
                    self.take_command()?;
                }
                ToCell::Run { .. } => return Ok(false),
                ToCell::Stop(reason) => self.stop(reason)?,
                ToCell::Sample => self.send(&ToGuest::Sample)?,
            },
            Err(Errno::AGAIN) => {}
            Ok(Received::Closed) | Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Starts a command, if one is pending and the container is ready.
    fn take_command(&mut self) -> Result<(), Failure> {
        if self.ready.is_none() {
            return Ok(());
        }
        let Some((run, fds)) = self.waiting.take() else { return Ok(()) };
        let missing = || Failure::new("cannot start the program", "descriptors are missing");
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(missing);
        let command = bridge::read_command(next()?).map_err(|errno| Failure::os("cannot read the command", errno))?;
        let (input, stdout, stderr) = (next()?, next()?, next()?);
        for fd in [&stdout, &stderr] {
            nonblocking(fd.as_fd()).map_err(|errno| Failure::os("cannot prepare the output", errno))?;
        }
        let mut files = run.files.then(|| next().map(File::from)).transpose()?;
        if let Some(files) = &mut files {
            files.rewind().map_err(|error| Failure::os("cannot read the input files", error))?;
        }
        let collect = run.collect.map(|_| next().map(File::from)).transpose()?;
        self.before = self.container.counters().unwrap_or_default();
        self.running = Some(BridgedRun {
            files,
            command: Some((Box::new(command), run)),
            input: Some(input),
            room: WINDOW,
            output: [stdout, stderr],
            blocked: None,
            collect,
            stop: Instant::now() + START,
            kill: None,
            reason: None,
            ended: false,
        });
        Ok(())
    }
}

fn nonblocking(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)
}
