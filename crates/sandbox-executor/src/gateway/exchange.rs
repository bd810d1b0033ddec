//! Carrying bytes between two streams that do not block, in one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::stop::Stop;
use super::tally::Traffic;

/// How much is on its way in each direction at most.
const BUFFER: usize = 64 << 10;

/// Carries bytes both ways until the server has nothing more to say, nobody says anything for as long as `patience`, or
/// all is over.
pub(super) fn exchange(
    client: &TcpStream,
    server: &TcpStream,
    stop: &Stop,
    patience: Duration,
    traffic: &Traffic<'_>,
) -> io::Result<()> {
    let (mut up, mut down) = (Flow::new(), Flow::new());
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
        // A stream of which nothing is wanted could still be ready for ever.
        fds.retain(|(_, flags)| !flags.is_empty());
        stop.wait(&fds, Instant::now() + patience)?;
        up.pump(client, server, |bytes| traffic.sent(bytes))?;
        down.pump(server, client, |bytes| traffic.received(bytes))?;
    }
    Ok(())
}

/// What goes in one direction.
struct Flow {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether nothing more will come.
    ended: bool,
    /// Whether the other side knows that.
    told: bool,
}

impl Flow {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER], start: 0, end: 0, ended: false, told: false }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn is_over(&self) -> bool {
        self.told
    }

    /// Whether it has to read from one side, and whether it has to write to the other.
    fn wants(&self) -> (bool, bool) {
        (self.is_empty() && !self.ended, !self.is_empty())
    }

    /// Carries on what there is.
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

/// What came of an attempt, unless it has to be made again later.
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
