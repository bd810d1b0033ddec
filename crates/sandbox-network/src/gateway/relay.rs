//! Relaying bytes between two non-blocking streams, in one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::tally::ConnectionTraffic;
use crate::stop::StopSignal;

/// The size of the buffer for each direction.
const BUFFER: usize = 64 << 10;

/// Relays bytes both ways until the server closes its side, neither side sends anything for as long as `patience`, or the
/// run ends.
pub(super) fn relay(
    client: &TcpStream,
    server: &TcpStream,
    stop: &StopSignal,
    patience: Duration,
    traffic: &ConnectionTraffic<'_>,
) -> io::Result<()> {
    let (mut up, mut down) = (OneWayFlow::new(), OneWayFlow::new());
    while !down.is_over() {
        let (reads_client, writes_server) = up.wants();
        let (reads_server, writes_client) = down.wants();
        let flags = |reads: bool, writes: bool| {
            let flag = |wanted: bool, flag| if wanted { flag } else { PollFlags::empty() };
            flag(reads, PollFlags::IN) | flag(writes, PollFlags::OUT)
        };
        let mut fds = vec![
            (client.as_fd(), flags(reads_client, writes_client)),
            (server.as_fd(), flags(reads_server, writes_server)),
        ];
        // An unused stream could be ready all the time.
        fds.retain(|(_, flags)| !flags.is_empty());
        stop.wait(&fds, Instant::now() + patience)?;
        up.pump(client, server, |bytes| traffic.sent(bytes))?;
        down.pump(server, client, |bytes| traffic.received(bytes))?;
    }
    Ok(())
}

/// The bytes in one direction.
struct OneWayFlow {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the sender has closed its side.
    ended: bool,
    /// Whether the end was forwarded to the receiver.
    told: bool,
}

impl OneWayFlow {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER], start: 0, end: 0, ended: false, told: false }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn is_over(&self) -> bool {
        self.told
    }

    /// Whether it waits to read from the sender, and whether it waits to write to the receiver.
    fn wants(&self) -> (bool, bool) {
        (self.is_empty() && !self.ended, !self.is_empty())
    }

    /// Reads and writes as much as is possible without blocking.
    fn pump(&mut self, mut from: &TcpStream, mut to: &TcpStream, mut count: impl FnMut(usize)) -> io::Result<()> {
        if self.is_empty()
            && !self.ended
            && let Some(length) = ready(from.read(&mut self.buffer))?
        {
            (self.start, self.end, self.ended) = (0, length, length == 0);
            count(length);
        }
        if !self.is_empty()
            && let Some(length) = ready(to.write(&self.buffer[self.start..self.end]))?
        {
            self.start += length;
        }
        if self.is_empty() && self.ended && !self.told {
            self.told = true;
            let _ = to.shutdown(Shutdown::Write);
        }
        Ok(())
    }
}

/// The result of an attempt, or `None` if it would block.
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
