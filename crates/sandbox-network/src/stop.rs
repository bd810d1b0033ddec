//! Waiting for sockets until a deadline or until the run ends, whichever comes first.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use sandbox_base::wait::timespec;

/// Ends every wait once it was given.
#[derive(Debug)]
pub(crate) struct StopSignal(Option<OwnedFd>);

impl StopSignal {
    /// A signal that is never given, for waits that end with their deadline only.
    pub(crate) const NEVER: Self = Self(None);

    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Some(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// Ends all current and future waits.
    pub(crate) fn give(&self) {
        if let Some(event) = &self.0 {
            // It is never read, so that it stays readable.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether it was given.
    pub(crate) fn is_given(&self) -> bool {
        self.sleep(Instant::now()).is_err()
    }

    /// Waits until one of these is ready. Fails at the deadline or when the signal was given.
    pub(crate) fn wait(&self, fds: &[(BorrowedFd<'_>, PollFlags)], until: Instant) -> io::Result<()> {
        loop {
            let mut polled: Vec<_> = self.0.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect();
            polled.extend(fds.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
            let left = until.saturating_duration_since(Instant::now());
            let timeout = timespec(left);
            match poll(&mut polled, Some(&timeout)) {
                Ok(_) if self.0.is_some() && !polled[0].revents().is_empty() => {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                Ok(0) => return Err(ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until a time. Fails if the signal was given before that.
    pub(crate) fn sleep(&self, until: Instant) -> io::Result<()> {
        match self.wait(&[], until) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
            other => other,
        }
    }

    /// Connects to an address.
    pub(crate) fn connect(&self, address: &SocketAddr, until: Instant) -> io::Result<TcpStream> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                self.wait(&[(socket.as_fd(), PollFlags::OUT)], until)?;
                socket_error(&socket)??;
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(TcpStream::from(socket))
    }
}

/// A non-blocking stream that is read and written as though it blocked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoppableStream<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) stop: &'a StopSignal,
    pub(crate) until: WaitLimit,
}

/// How long to wait for a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitLimit {
    /// Until this time in total.
    At(Instant),
    /// For this long each time.
    Each(Duration),
}

impl StoppableStream<'_> {
    fn retry<T>(&self, flags: PollFlags, mut action: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            match action(self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let until = match self.until {
                        WaitLimit::At(until) => until,
                        WaitLimit::Each(time) => Instant::now() + time,
                    };
                    self.stop.wait(&[(self.stream.as_fd(), flags)], until)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Read for StoppableStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, |mut stream| stream.read(buffer))
    }
}

impl Write for StoppableStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, |mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
