//! The host's side of `--tty`: the terminal of the person who runs a program is connected to the terminal that the
//! program has in its cell.
//!
//! While the program runs, the person's terminal is in raw mode: it passes every key on, and what Ctrl-C or Ctrl-Z mean
//! is decided by the terminal in the cell. It is restored whatever ends the run. What the program prints passes an
//! [`EscapeFilter`]. No descriptor of the person's terminal enters the cell; a thread copies keys and window sizes.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox_base::reason;
use sandbox_executor::{Input, Observer, RunResult, Step, Stream, TerminalInput, TerminalWindow, WindowSize};
use sandbox_sys::signal::{SignalFd, SignalSet};

use crate::args::{Format, RunOptions};
use crate::escape_filter::EscapeFilter;
use crate::interrupt::Interrupts;
use crate::output::{Printer, print_error};
use crate::request::UsageError;

/// Signals that concern the person's terminal: it was resized; this process was stopped and continues.
pub(crate) const SIGNALS: [i32; 2] = [libc::SIGWINCH, libc::SIGCONT];

/// The key that ends a run when it is typed [`TIMES`] within [`SPAN`], whatever the program does: Ctrl-].
const ESCAPE: u8 = 0x1d;
const TIMES: usize = 3;
const SPAN: Duration = Duration::from_secs(1);

/// The most bytes that are typed or pasted ahead. More are lost.
const MOST_AHEAD: usize = 1 << 20;

/// A terminal in raw mode, and the modes that it had.
type Saved = (OwnedFd, Termios);

/// The terminal to restore. It is global because whatever ends the process has to find it.
static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

/// Gives the person's terminal its modes back, if it is in raw mode. Keys that were typed for the program, or answers of
/// the terminal to it, are discarded rather than left to a shell.
pub(crate) fn restore_terminal() {
    if let Some((terminal, modes)) = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcflush(&terminal, QueueSelector::IFlush);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
    }
}

/// Puts a terminal into raw mode, to be restored by [`restore_terminal`].
fn enter_raw_mode(terminal: BorrowedFd<'_>) -> std::io::Result<()> {
    static HOOK: Once = Once::new();
    // A panic may end the process in a thread that does not unwind to the owner of the terminal.
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            previous(panic);
        }));
    });
    let modes = tcgetattr(terminal)?;
    let mut raw = modes.clone();
    raw.make_raw();
    *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some((terminal.try_clone_to_owned()?, modes));
    set_raw(terminal, &raw)
}

fn set_raw(terminal: BorrowedFd<'_>, raw: &Termios) -> std::io::Result<()> {
    Ok(tcsetattr(terminal, OptionalActions::Drain, raw)?)
}

/// Whether a person at a terminal gives the program its input.
pub(crate) fn is_person(options: &RunOptions) -> bool {
    let reads_own = options.terminal.interactive || options.stdin.as_deref().is_some_and(|path| path == "-");
    reads_own && std::io::stdin().is_terminal()
}

/// A terminal for the program, and the session that connects it.
pub(crate) fn open(options: &RunOptions) -> Result<(Input, Session), UsageError> {
    let failed = |error: std::io::Error| format!("cannot prepare the terminal: {}", reason(&error));
    if options.terminal.interactive && !std::io::stdin().is_terminal() {
        return Err("--tty with --interactive needs a terminal as standard input; leave out --tty".to_owned());
    }
    if options.terminal.interactive && options.format() != Format::Text {
        return Err("--tty with --interactive shows the terminal itself, so the format must be text".to_owned());
    }
    let window = Arc::new(TerminalWindow::new(window_size()).map_err(failed)?);
    let (reader, writer) = if options.terminal.interactive {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        fcntl_setfl(&writer, OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        (Some(reader), Some(writer))
    } else {
        (None, None)
    };
    let filters = !options.raw && std::io::stdout().is_terminal();
    let session = Session {
        keys: writer,
        window: Arc::clone(&window),
        filter: filters.then(EscapeFilter::default),
        is_text: options.format() == Format::Text,
        relay: None,
    };
    Ok((Input::Terminal(TerminalInput { keys: reader, window }), session))
}

/// The kind of terminal that a program has: the person's, if its name is plain.
pub(crate) fn terminal_kind() -> String {
    let is_plain = |name: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
        !name.is_empty() && name.len() <= 64 && name.bytes().all(plain)
    };
    std::env::var("TERM").ok().filter(is_plain).unwrap_or_else(|| "xterm".to_owned())
}

/// The size of the person's terminal.
fn window_size() -> WindowSize {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let sizes = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].map(|fd| tcgetwinsize(fd).ok());
    let known = sizes.into_iter().flatten().find(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or_else(WindowSize::default, |size| WindowSize { rows: size.ws_row, columns: size.ws_col })
}

/// The connection between the two terminals. Dropping it ends it and restores the person's terminal.
#[derive(Debug)]
pub(crate) struct Session {
    /// Where keys go, until the program starts; none without `--interactive`.
    keys: Option<OwnedFd>,
    window: Arc<TerminalWindow>,
    /// What keeps escape sequences from the person's terminal, if the output goes there.
    filter: Option<EscapeFilter>,
    is_text: bool,
    /// The thread that copies, and what ends it.
    relay: Option<(JoinHandle<()>, OwnedFd)>,
}

impl Session {
    /// Ends the session. Returns what undoes the modes in which the program has left the terminal.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        if let Some((thread, stop)) = self.relay.take() {
            let _ = rustix::io::write(&stop, &1_u64.to_ne_bytes());
            let _ = thread.join();
        }
        restore_terminal();
        self.filter.as_mut().map(EscapeFilter::finish).unwrap_or_default()
    }

    /// Connects the terminals.
    fn begin(&mut self, interrupts: &Interrupts) -> std::io::Result<()> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stdin = rustix::io::dup(std::io::stdin())?;
        let changes = SignalFd::new(&SignalSet::of(&SIGNALS))?;
        let keys = self.keys.take();
        if keys.is_some() {
            enter_raw_mode(stdin.as_fd())?;
        }
        let relay = Relay {
            raw: keys.as_ref().and_then(|_| tcgetattr(&stdin).ok()),
            keys: keys.map(|pipe| TypedKeys { pipe: Some(pipe), ahead: vec![] }),
            terminal: stdin,
            changes,
            window: Arc::clone(&self.window),
            stop: stop.try_clone()?,
            escape: EscapeKey::default(),
            interrupts: interrupts.clone(),
        };
        // It may have been resized before.
        self.window.resize(window_size());
        self.relay = Some((std::thread::Builder::new().spawn(move || relay.serve())?, stop));
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Shows a run in a terminal: steps as always, and the program's output as it is meant for a terminal.
pub(crate) struct Screen<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) printer: &'a mut Printer,
    pub(crate) interrupts: &'a Interrupts,
}

impl Observer for Screen<'_> {
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        self.printer.start(language, version);
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        match &mut self.session.filter {
            Some(filter) if self.session.is_text => self.printer.pass(filter.filter(bytes)),
            None if self.session.is_text => self.printer.pass(bytes.to_vec()),
            _ => self.printer.output(stream, bytes),
        }
    }

    fn step(&mut self, step: Step, what: &str, waiting: bool) {
        self.printer.step(step, what, waiting);
    }

    fn step_over(&mut self, step: Step) {
        self.printer.step_over(step);
    }

    fn program(&mut self) {
        if let Err(error) = self.session.begin(self.interrupts) {
            print_error(&format!("cannot connect the terminal: {}", reason(&error)));
            // The program would wait for keys that never come.
            self.interrupts.interrupt(libc::SIGHUP);
        }
    }

    fn finish(&mut self, result: &Arc<RunResult>) {
        self.printer.finish(result);
    }
}

/// Copies keys and window sizes, in a thread.
struct Relay {
    /// The person's terminal, or whatever standard input is.
    terminal: OwnedFd,
    /// Its modes while the program runs, if it is in raw mode.
    raw: Option<Termios>,
    keys: Option<TypedKeys>,
    changes: SignalFd,
    window: Arc<TerminalWindow>,
    stop: OwnedFd,
    escape: EscapeKey,
    interrupts: Interrupts,
}

/// Keys on their way to the program.
struct TypedKeys {
    /// Until the program takes no more.
    pipe: Option<OwnedFd>,
    /// What did not fit into the pipe yet.
    ahead: Vec<u8>,
}

impl Relay {
    fn serve(mut self) {
        loop {
            let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.changes, PollFlags::IN)];
            if let Some(keys) = &self.keys {
                fds.push(PollFd::new(&self.terminal, PollFlags::IN));
                let waiting = keys.pipe.as_ref().filter(|_| !keys.ahead.is_empty());
                fds.extend(waiting.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
            }
            let waited = poll(&mut fds, None);
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            match waited {
                Err(Errno::INTR) => continue,
                Ok(_) if !ready[0] => {}
                _ => return,
            }
            if ready[1] {
                self.on_change();
            }
            if ready.get(2) == Some(&true) && !self.read_keys() {
                // In raw mode only a terminal that is gone has an end.
                self.keys = None;
                self.interrupts.interrupt(libc::SIGHUP);
            }
            if ready.get(3) == Some(&true)
                && let Some(keys) = &mut self.keys
            {
                keys.pass_on();
            }
        }
    }

    /// The terminal was resized, or this process continues after a stop, during which a shell may have changed the modes.
    fn on_change(&self) {
        while let Some(signal) = self.changes.next() {
            if signal == libc::SIGCONT
                && let Some(raw) = &self.raw
            {
                let _ = set_raw(self.terminal.as_fd(), raw);
            }
        }
        self.window.resize(window_size());
    }

    /// Takes what was typed. False when nothing more can come.
    fn read_keys(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let typed = match rustix::io::read(&self.terminal, &mut buffer[..]) {
            Ok(0) => return false,
            Ok(length) => &buffer[..length],
            Err(Errno::INTR | Errno::AGAIN) => return true,
            Err(_) => return false,
        };
        if self.escape.is_typed(typed, Instant::now()) {
            self.interrupts.interrupt(libc::SIGINT);
        }
        if let Some(keys) = &mut self.keys {
            let room = MOST_AHEAD.saturating_sub(keys.ahead.len());
            keys.ahead.extend_from_slice(&typed[..typed.len().min(room)]);
            keys.pass_on();
        }
        true
    }
}

impl TypedKeys {
    /// Passes on what fits. A program that takes no more loses its keys.
    fn pass_on(&mut self) {
        while let Some(pipe) = self.pipe.as_ref().filter(|_| !self.ahead.is_empty()) {
            match rustix::io::write(pipe, &self.ahead) {
                Ok(written) => drop(self.ahead.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
        if self.pipe.is_none() {
            self.ahead.clear();
        }
    }
}

/// Recognises the key that ends a run.
#[derive(Debug, Default)]
struct EscapeKey {
    /// When it was typed, the latest last.
    typed: Vec<Instant>,
}

impl EscapeKey {
    /// Whether with these keys it was typed often enough. Other keys in between start anew.
    fn is_typed(&mut self, keys: &[u8], now: Instant) -> bool {
        for key in keys {
            if *key != ESCAPE {
                self.typed.clear();
                continue;
            }
            self.typed.retain(|at| now.duration_since(*at) < SPAN);
            self.typed.push(now);
            if self.typed.len() >= TIMES {
                self.typed.clear();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

    use super::*;

    #[test]
    fn a_panic_restores_the_terminal() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        unlockpt(&master).expect("unlocked");
        let terminal = ioctl_tiocgptpeer(&master, flags).expect("its other end");
        let modes = || format!("{:?}", tcgetattr(&terminal).expect("modes"));
        let usual = modes();
        enter_raw_mode(terminal.as_fd()).expect("raw mode");
        assert_ne!(modes(), usual);
        let panic = std::panic::catch_unwind(|| panic!("expected by this test"));
        assert!(panic.is_err() && modes() == usual);
    }

    #[test]
    fn the_escape_key_counts_three_times_within_a_second() {
        let start = Instant::now();
        let typed = |keys: &[(&[u8], u64)]| {
            let mut escape = EscapeKey::default();
            keys.iter().any(|(keys, at)| escape.is_typed(keys, start + Duration::from_millis(*at)))
        };
        assert!(typed(&[(b"\x1d\x1d\x1d", 0)]));
        assert!(typed(&[(b"ls\x1d", 0), (b"\x1d", 400), (b"\x1d", 800)]));
        assert!(!typed(&[(b"\x1d", 0), (b"\x1d", 600), (b"\x1d", 1200)]));
        assert!(typed(&[(b"\x1d", 0), (b"\x1d", 600), (b"\x1d", 1200), (b"\x1d", 1300)]));
        assert!(!typed(&[(b"\x1d\x1dx\x1d", 0)]));
        assert!(!typed(&[(b"\x03\x03\x03", 0)]));
    }
}
