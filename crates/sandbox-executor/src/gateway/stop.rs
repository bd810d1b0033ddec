//! Waiting for sockets: no longer than there is time, and no longer than the run lasts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

/// Ends every wait once it is rung.
#[derive(Debug)]
pub(super) struct Stop(OwnedFd);

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Ends all waits, those that go on and those to come.
    pub(super) fn ring(&self) {
        // Nobody reads it, so that it stays readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until one of these is ready. Fails when the time is up or all is over.
    pub(super) fn wait(&self, fds: &[(BorrowedFd<'_>, PollFlags)], until: Instant) -> io::Result<()> {
        loop {
            let mut polled = vec![PollFd::new(&self.0, PollFlags::IN)];
            polled.extend(fds.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
            let left = until.saturating_duration_since(Instant::now());
            let timeout = sandbox_cell::wait::timespec(left);
            match poll(&mut polled, Some(&timeout)) {
                Ok(_) if !polled[0].revents().is_empty() => return Err(ErrorKind::ConnectionAborted.into()),
                Ok(0) => return Err(ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until a time. Fails when all is over before that.
    pub(super) fn sleep(&self, until: Instant) -> io::Result<()> {
        match self.wait(&[], until) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
            other => other,
        }
    }

    /// Connects to an address.
    pub(super) fn connect(&self, address: &SocketAddr, until: Instant) -> io::Result<TcpStream> {
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

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A stream that does not block, read and written as though it did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patient<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) stop: &'a Stop,
    pub(super) until: Until,
}

/// How long a stream is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// No longer than this in all.
    At(Instant),
    /// No longer than this each time.
    Each(Duration),
}

impl Patient<'_> {
    fn retry<T>(&self, flags: PollFlags, mut action: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            match action(self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let until = match self.until {
                        Until::At(until) => until,
                        Until::Each(time) => Instant::now() + time,
                    };
                    self.stop.wait(&[(self.stream.as_fd(), flags)], until)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, |mut stream| stream.read(buffer))
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, |mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
