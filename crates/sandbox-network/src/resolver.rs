//! Resolving names.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::host::HostName;

/// The longest that looking a name up takes, and what ends it sooner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupDeadline<'a> {
    pub(crate) until: Instant,
    /// Becomes readable when the answer is not wanted any more.
    pub(crate) stop: Option<BorrowedFd<'a>>,
}

/// How long looking a name up takes for whoever has nothing to say about that.
const LOOK_UP: Duration = Duration::from_secs(10);

/// The most that is read of what a look-up says.
const MOST_SAID: usize = 64 << 10;

impl LookupDeadline<'_> {
    pub(crate) fn usual() -> Self {
        Self { until: Instant::now() + LOOK_UP, stop: None }
    }

    /// Waits until there is something to read. False if the time is up, or the answer is not wanted any more.
    fn wait(&self, fd: impl AsFd) -> bool {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds = vec![PollFd::new(&fd, PollFlags::IN)];
            fds.extend(self.stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return fds.get(1).is_none_or(|stop| stop.revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// The addresses of a host, as the host's own tools see them; none if it has none, or nobody says in time. This program is
/// linked statically, and the C library's resolver would load the host's modules into it.
pub(crate) fn resolve(host: &HostName, deadline: LookupDeadline<'_>) -> Vec<IpAddr> {
    let name = match host {
        HostName::Address(address) => return vec![*address],
        HostName::Name(name) => name,
    };
    let mut command = Command::new("getent");
    command.args(["ahosts", name]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return vec![] };
    let said = child.stdout.take().map(|stdout| read_said(stdout, deadline)).unwrap_or_default();
    // It has said everything, or is too late.
    let _ = child.kill();
    let _ = child.wait();
    let mut addresses: Vec<IpAddr> = vec![];
    for address in
        String::from_utf8_lossy(&said).lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// All that a child says; nothing if it does not come to an end.
fn read_said(mut stdout: ChildStdout, deadline: LookupDeadline<'_>) -> Vec<u8> {
    let (mut said, mut buffer) = (vec![], [0; 4096]);
    while deadline.wait(&stdout) {
        match stdout.read(&mut buffer) {
            Ok(0) => return said,
            Ok(length) if said.len() + length <= MOST_SAID => said.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    vec![]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_ends_with_its_time() {
        let stop = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).expect("an event");
        let host = HostName::parse("does-not-exist.invalid").expect("a name");
        let now = LookupDeadline { until: Instant::now(), stop: Some(stop.as_fd()) };
        let unwanted = LookupDeadline { until: Instant::now() + Duration::from_secs(600), stop: Some(stop.as_fd()) };
        for deadline in [now, unwanted] {
            assert_eq!(resolve(&host, deadline), Vec::<IpAddr>::new());
        }
        let local = HostName::parse("localhost").expect("a name");
        assert!(!resolve(&local, LookupDeadline::usual()).is_empty());
        assert!(resolve(&local, unwanted).is_empty(), "nobody waited for it");
    }
}
