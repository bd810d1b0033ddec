//! Waiting for descriptors.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A duration in the kernel's format.
#[must_use]
pub const fn timespec(duration: Duration) -> Timespec {
    let seconds = duration.as_secs();
    Timespec {
        tv_sec: if seconds > i64::MAX.cast_unsigned() { i64::MAX } else { seconds.cast_signed() },
        tv_nsec: duration.subsec_nanos() as i64,
    }
}

/// Whether one of these descriptors is readable, or becomes so within `patience`. A connection that the peer has closed
/// is readable.
#[must_use]
pub fn is_readable<Fd: AsFd>(fds: &[Fd], patience: Duration) -> bool {
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&timespec(patience))).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_readable_once_it_holds_data() {
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        assert!(!is_readable(&[&reader], Duration::ZERO));
        rustix::io::write(&writer, b"x").expect("written");
        assert!(is_readable(&[&reader], Duration::ZERO));
        assert!(!is_readable::<std::os::fd::OwnedFd>(&[], Duration::ZERO));
    }

    #[test]
    fn the_longest_duration_is_accepted() {
        assert_eq!(timespec(Duration::MAX).tv_sec, i64::MAX);
        assert_eq!(timespec(Duration::from_millis(1500)).tv_nsec, 500_000_000);
    }
}
