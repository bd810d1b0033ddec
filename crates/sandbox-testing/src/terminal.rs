//! A command in a terminal, with a test in the place of the person.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::{GuardedChild, PATIENCE};

/// How long a test waits for what it will look for again.
const SOON: Duration = Duration::from_millis(300);

/// A terminal in which a command runs, as the first process of its session.
#[derive(Debug)]
pub struct TestTerminal {
    keyboard: File,
    /// The command's end, to look at its modes.
    command_end: OwnedFd,
    child: GuardedChild,
    screen: Receiver<Vec<u8>>,
    /// The thread that reads the screen, and what ends it when it is closed.
    reader: Option<(JoinHandle<()>, OwnedFd)>,
    /// What was shown, and how much of it was expected already.
    shown: String,
    expected: usize,
    unread: Vec<u8>,
}

impl TestTerminal {
    /// Starts a command in a terminal of 24 rows and 80 columns.
    pub fn start(command: &Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        unlockpt(&keyboard).unwrap();
        let command_end = ioctl_tiocgptpeer(&keyboard, flags).unwrap();
        resize(&keyboard, 24, 80);
        // It makes the terminal the controlling one of a new session, and is replaced by the command.
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        session.current_dir(command.get_current_dir().unwrap_or_else(|| "/".as_ref()));
        let end = || Stdio::from(command_end.try_clone().unwrap());
        let child = GuardedChild(session.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap());
        let mut reader = File::from(keyboard.try_clone().unwrap());
        let (sender, screen) = channel();
        let (stopped, stop) = rustix::pipe::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while has_more(&reader, &stopped)
                && let Ok(length @ 1..) = reader.read(&mut buffer)
                && sender.send(buffer[..length].to_vec()).is_ok()
            {}
        });
        let (shown, expected, unread) = (String::new(), 0, vec![]);
        let reader = Some((reader, stop));
        Self { keyboard: keyboard.into(), command_end, child, screen, reader, shown, expected, unread }
    }

    /// Types these keys.
    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown, after what was expected before.
    pub fn expect(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown[self.expected..].find(text) {
                self.expected += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            let more = self.screen.recv_timeout(left);
            let more = more.unwrap_or_else(|_| panic!("{text:?} is never shown: {:?}", &self.shown[self.expected..]));
            self.show(&more);
        }
    }

    /// Types a line, and waits until this is shown after the line itself.
    pub fn ask(&mut self, line: &str, answer: &str) {
        self.type_keys(&format!("{line}\r"));
        self.expect(line);
        self.expect(answer);
    }

    /// Whether this is shown soon, after what was expected before.
    pub fn shows(&mut self, text: &str) -> bool {
        let until = Instant::now() + SOON;
        loop {
            if self.shown[self.expected..].contains(text) {
                return true;
            }
            match self.screen.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(more) => self.show(&more),
                Err(_) => return false,
            }
        }
    }

    fn show(&mut self, more: &[u8]) {
        self.unread.extend_from_slice(more);
        let valid = match std::str::from_utf8(&self.unread) {
            Ok(_) => self.unread.len(),
            Err(error) => error.valid_up_to(),
        };
        let text: Vec<u8> = self.unread.drain(..valid).collect();
        self.shown.push_str(std::str::from_utf8(&text).unwrap());
    }

    /// Changes the size of the window.
    pub fn resize(&self, rows: u16, columns: u16) {
        resize(&self.keyboard, rows, columns);
    }

    /// The modes of the terminal.
    pub fn modes(&self) -> String {
        let modes: Termios = tcgetattr(&self.command_end).unwrap();
        format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
    }

    /// The id of the command's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends the command a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes the window, and waits for the end of the command.
    pub fn close(mut self) -> ExitStatus {
        let (reader, stop) = self.reader.take().unwrap();
        drop(stop);
        reader.join().unwrap();
        let Self { keyboard, mut child, .. } = self;
        drop(keyboard);
        child.wait().unwrap()
    }

    /// Waits for the end of the command. Returns its exit status, and all that was shown.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        // Whatever is in the terminal has been shown when this is.
        rustix::io::write(&self.command_end, b"\x1a").unwrap();
        while !self.shown.ends_with('\x1a') {
            let more = self.screen.recv_timeout(PATIENCE).unwrap();
            self.show(&more);
        }
        self.shown.pop();
        (status, std::mem::take(&mut self.shown))
    }
}

/// Waits until a terminal has something to read; false if the other pipe is closed first.
fn has_more(terminal: &File, stopped: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(stopped, PollFlags::IN), PollFd::new(terminal, PollFlags::IN)];
    poll(&mut fds, None).is_ok() && fds[0].revents().is_empty()
}

fn resize(terminal: impl AsFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}
