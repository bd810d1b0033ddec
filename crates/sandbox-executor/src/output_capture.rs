//! Captures one output stream of a program as it is written, up to the output limit.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The reading end of a pipe, and what came out of it.
#[derive(Debug)]
pub(crate) struct OutputCapture {
    pipe: Option<OwnedFd>,
    pub(crate) kept: Vec<u8>,
    /// Everything that was written, kept or not.
    pub(crate) seen: u64,
    cap: usize,
}

impl OutputCapture {
    /// A new stream, with the end to be given to the program.
    pub(crate) fn new(cap: u64) -> rustix::io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only this end: the program's must block as it would anywhere else. And this one must not, whatever poll says: a
        // program can open its standard output for reading, and take what is there.
        fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        Ok((Self { pipe: Some(reader), ..Self::unconnected(cap) }, writer))
    }

    /// A stream that comes from nowhere yet.
    pub(crate) fn unconnected(cap: u64) -> Self {
        Self { pipe: None, kept: vec![], seen: 0, cap: usize::try_from(cap).unwrap_or(usize::MAX) }
    }

    /// Captures what comes from a terminal, of which this is the caller's end. Its reads must not block.
    pub(crate) fn connect(&mut self, terminal: OwnedFd) {
        self.pipe = Some(terminal);
    }

    /// The descriptor to wait on, until the stream ends.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Whether more was written than is kept.
    pub(crate) fn is_over(&self) -> bool {
        self.seen > self.cap as u64
    }

    /// Reads available output, up to one buffer; returns the part that is kept. Past the cap, output is counted and
    /// dropped, so that memory stays bounded whatever the program does.
    pub(crate) fn read<'b>(&mut self, buffer: &'b mut [u8]) -> &'b [u8] {
        let Some(pipe) = &self.pipe else { return &[] };
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => {
                self.pipe = None;
                &[]
            }
            Ok(n) => {
                self.seen += n as u64;
                let room = self.cap - self.kept.len();
                let new = &buffer[..n.min(room)];
                self.kept.extend_from_slice(new);
                new
            }
            Err(Errno::AGAIN | Errno::INTR) => &[],
            Err(_) => {
                self.pipe = None;
                &[]
            }
        }
    }

    /// Whether something can be read without waiting. For the time after the program's end, when whatever is not in
    /// the pipe will never come.
    pub(crate) fn has_more(&self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        sandbox_base::wait::is_readable(&[pipe], std::time::Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_up_to_the_cap_and_counts_the_rest() {
        let (mut capture, writer) = OutputCapture::new(5).expect("pipe");
        let mut buffer = [0; 16];
        assert!(!capture.has_more());
        assert_eq!(capture.read(&mut buffer), b"");
        rustix::io::write(&writer, b"abc").expect("write");
        assert!(capture.has_more());
        assert_eq!(capture.read(&mut buffer), b"abc");
        assert!(!capture.is_over());
        rustix::io::write(&writer, b"defgh").expect("write");
        assert_eq!(capture.read(&mut buffer), b"de");
        assert!(capture.is_over());
        assert_eq!((capture.kept.as_slice(), capture.seen), (&b"abcde"[..], 8));
        drop(writer);
        assert_eq!(capture.read(&mut buffer), b"");
        assert!(capture.pipe().is_none() && !capture.has_more());
    }
}
