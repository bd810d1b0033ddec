//! The guest: the part of this program that runs inside a container. It starts a keeper and serves one cell over the
//! container's standard streams.
//!
//! The container is the outer wall. Inside, the guest creates a cell with reduced isolation, with
//! the same filter and rules, so that a program is confined twice. If the container was created for this cell, all
//! paths are the usual ones. The wall between the guest and the cell is then thinner, because both run as the same
//! user.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::DumpableBehavior;

use super::CONTAINED;
use super::docker::END;
use super::frames::{self, CHUNK, FromGuest, Incoming, ToGuest};
use sandbox_cell::archive::Archive;
use sandbox_cell::bridge::RunParams;
use sandbox_cell::{Cell, Command, Failure, Keeper, Start, Stdio};

/// The entry point of a program whose first argument is [`super::GUEST_COMMAND`]; `what` is the second argument.
pub fn serve_in_container(what: Option<&OsStr>) -> Result<(), Failure> {
    match what.and_then(OsStr::to_str) {
        // The user is dedicated to the cell, so every process of the user belongs to the cell.
        Some(END) if !rustix::process::geteuid().is_root() => {
            sandbox_sys::process::kill_all(rustix::process::Signal::KILL)
                .map_err(|errno| Failure::os("cannot kill the remaining processes of a cell", errno))
        }
        Some(END) => {
            Err(Failure::new("cannot kill the remaining processes of a cell", "this would kill all processes of root"))
        }
        Some(CONTAINED) => serve_guest(true),
        _ => serve_guest(false),
    }
}

/// Serves a cell on standard input and output until either is closed. `contained` says that the container was created
/// for this cell alone.
fn serve_guest(contained: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::os("cannot serve a cell in a container", error);
    // Other processes in the container must not be able to trace this process.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|errno| failed(errno.into()))?;
    let keeper = Keeper::start()?;
    if contained {
        keeper.contain()?;
    }
    GuestServer { keeper: &keeper, incoming: Incoming::default(), cell: None, files: None, running: None }
        .serve()
        .map_err(failed)
}

struct GuestServer<'k> {
    keeper: &'k Keeper,
    incoming: Incoming,
    cell: Option<(Cell, bool)>,
    files: Option<Archive>,
    running: Option<GuestRun>,
}

/// The streams of a command.
struct GuestRun {
    stdin: Option<OwnedFd>,
    /// Input that did not fit yet, and whether more follows.
    pending: Vec<u8>,
    more: bool,
    stdout: File,
    stderr: File,
    collect: Option<File>,
}

fn say(message: &FromGuest) -> io::Result<()> {
    let mut out = io::stdout().lock();
    frames::write(&mut out, message)?;
    out.flush()
}

impl GuestServer<'_> {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let [messages, cell, stdout, stderr] = self.wait()?;
            if messages {
                // The end of messages is the end of the cell: dropping the cell kills everything in it.
                if !self.incoming.read(&mut io::stdin().lock())? {
                    return Ok(());
                }
                while let Some(message) = self.incoming.next()? {
                    self.handle_message(message)?;
                }
            }
            if let Some(running) = &mut self.running {
                running.feed()?;
                for (ready, error) in [(stdout, false), (stderr, true)] {
                    if ready {
                        running.pass_on(error)?;
                    }
                }
            }
            if cell {
                self.on_cell()?;
            }
        }
    }

    /// Waits for messages, the cell, and both outputs of the command.
    fn wait(&self) -> io::Result<[bool; 4]> {
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(&stdin, PollFlags::IN)];
        fds.extend(self.cell.iter().map(|(cell, _)| PollFd::new(cell, PollFlags::IN)));
        let (at_cell, at_streams) = (self.cell.is_some(), fds.len());
        if let Some(running) = &self.running {
            fds.push(PollFd::new(&running.stdout, PollFlags::IN));
            fds.push(PollFd::new(&running.stderr, PollFlags::IN));
            let blocked = running.stdin.as_ref().filter(|_| !running.pending.is_empty());
            fds.extend(blocked.map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let running = self.running.is_some();
        Ok([ready(0), at_cell && ready(1), running && ready(at_streams), running && ready(at_streams + 1)])
    }

    fn handle_message(&mut self, message: ToGuest) -> io::Result<()> {
        let done = match message {
            ToGuest::Create(spec) => self.keeper.create(&spec).map(|cell| self.cell = Some((cell, false))),
            ToGuest::Files(bytes) => {
                let files = match &mut self.files {
                    Some(files) => files,
                    none => none.insert(Archive::new()?),
                };
                files.append(&bytes)?;
                Ok(())
            }
            ToGuest::Run { command, run } => self.start(&command, &run)?,
            ToGuest::Input(bytes) => {
                if let Some(running) = &mut self.running {
                    running.pending.extend_from_slice(&bytes);
                }
                Ok(())
            }
            ToGuest::InputEnd => {
                if let Some(running) = &mut self.running {
                    running.more = false;
                }
                Ok(())
            }
            ToGuest::Stop(reason) => self.cell.as_ref().map_or(Ok(()), |(cell, _)| cell.stop(reason)),
            ToGuest::Sample => match &mut self.cell {
                Some((cell, _)) => match cell.metrics() {
                    Ok(usage) => return say(&FromGuest::Sample(usage)),
                    Err(failure) => Err(failure),
                },
                None => Ok(()),
            },
        };
        done.or_else(|failure| say(&FromGuest::Failed(failure)))
    }

    fn start(&mut self, command: &Command, run: &RunParams) -> io::Result<Result<(), Failure>> {
        let Some((cell, _)) = &self.cell else { return Err(io::ErrorKind::InvalidData.into()) };
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((stdin_end, stdin), (stdout, stdout_end), (stderr, stderr_end)) = (pipe()?, pipe()?, pipe()?);
        let collect = run.collect.map(|caps| pipe().map(|pipe| (caps, pipe))).transpose()?;
        for fd in [&stdin, &stdout, &stderr] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        let stdio = Stdio { stdin: stdin_end.as_fd(), stdout: stdout_end.as_fd(), stderr: stderr_end.as_fd() };
        let started = cell.start(&Start {
            files: self.files.as_ref(),
            collect: collect.as_ref().map(|(caps, (_, writer))| (*caps, writer.as_fd())),
            last: run.last,
            ..Start::new(command, stdio)
        });
        let collect = collect.map(|(_, (reader, _))| File::from(reader));
        let (stdout, stderr) = (File::from(stdout), File::from(stderr));
        let (stdin, pending, more) = (Some(stdin), vec![], true);
        self.running = Some(GuestRun { stdin, pending, more, stdout, stderr, collect });
        self.files = None;
        Ok(started)
    }

    fn on_cell(&mut self) -> io::Result<()> {
        let Some((cell, told)) = &mut self.cell else { return Ok(()) };
        let outcome = match cell.poll() {
            Ok(outcome) => outcome,
            Err(failure) => {
                self.cell = None;
                return say(&FromGuest::Failed(failure));
            }
        };
        if !*told && let Some(ready) = cell.is_ready() {
            *told = true;
            say(&FromGuest::Ready { isolation: ready.isolation, prepare: ready.prepare })?;
        }
        let (Some(outcome), Some(mut running)) = (outcome, self.running.take()) else { return Ok(()) };
        // Every writer is dead, so the pipes hold the rest of the output.
        for error in [false, true] {
            while running.pass_on(error)? {}
        }
        say(&FromGuest::Ended(Box::new(outcome)))?;
        if let Some(mut collect) = running.collect {
            let mut buffer = vec![0; CHUNK];
            loop {
                let read = io::Read::read(&mut collect, &mut buffer)?;
                // An empty frame marks the end; the reader notices if it comes too early.
                say(&FromGuest::Collected(buffer[..read].to_vec()))?;
                if read == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl GuestRun {
    /// Writes as much input as the command can take.
    fn feed(&mut self) -> io::Result<()> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        let mut written = 0;
        while written < self.pending.len() {
            match rustix::io::write(stdin, &self.pending[written..]) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The command has closed its input.
                Err(_) => {
                    self.stdin = None;
                    self.pending.clear();
                    return Ok(());
                }
            }
        }
        self.pending.drain(..written);
        if self.pending.is_empty() && !self.more {
            self.stdin = None;
        }
        if written > 0 {
            say(&FromGuest::Room(u32::try_from(written).unwrap_or(u32::MAX)))?;
        }
        Ok(())
    }

    /// Forwards output of the command. Returns false if there was none.
    fn pass_on(&mut self, error: bool) -> io::Result<bool> {
        let stream = if error { &self.stderr } else { &self.stdout };
        let mut buffer = vec![0; CHUNK];
        match rustix::io::read(stream, buffer.as_mut_slice()) {
            Ok(read) if read > 0 => {
                buffer.truncate(read);
                say(&FromGuest::Output { error, bytes: buffer })?;
                Ok(true)
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}
