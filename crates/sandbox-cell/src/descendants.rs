//! A process and all its descendants, found through `/proc`.
//!
//! With a PID namespace, the processes of a cell end with its init. Without one, they have to be found individually.
//! None can escape: init adopts orphans (it is a child subreaper), and the keeper does so once init is dead. A process
//! is identified by its id and start time, and is signalled through a pidfd, so that a signal never reaches a later
//! process with the same id.

use std::collections::HashSet;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descendant {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// Whether it is a zombie.
    pub(crate) ended: bool,
    start: u64,
}

impl Descendant {
    fn of(pid: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &stat)
    }

    /// Fields 3, 4 and 22 are the state, the parent and the start time. The name before them may contain anything and
    /// ends at the last parenthesis.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let parent = Pid::from_raw(fields.next()?.parse().ok()?)?;
        Some(Self { pid, parent, ended, start: fields.nth(17)?.parse().ok()? })
    }

    /// Sends a signal, if the id still belongs to the same process.
    fn signal(&self, signal: Signal) {
        // The pidfd refers to the process that has the id now; the check below shows whether it is the right one.
        if let Ok(pidfd) = pidfd_open(self.pid, PidfdFlags::empty())
            && Self::of(self.pid).is_some_and(|now| now.start == self.start)
        {
            let _ = pidfd_send_signal(&pidfd, signal);
        }
    }
}

/// Visits every descendant of `root` once, except those in `spared` and their descendants. Each process is handled as
/// soon as it is found, because a process that keeps forking and exiting is gone a moment later.
pub(crate) fn each(root: Pid, spared: &[Pid], mut handle: impl FnMut(&Descendant)) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    let mut known = HashSet::from([root]);
    let mut others = vec![];
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(member) = pid.filter(|pid| !spared.contains(pid)).and_then(Descendant::of) else { continue };
        if known.contains(&member.parent) {
            known.insert(member.pid);
            handle(&member);
        } else {
            others.push(member);
        }
    }
    // Ids wrap around, so that a child may have a lower id than its parent.
    loop {
        let before = others.len();
        others.retain(|member| {
            let found = known.contains(&member.parent);
            if found {
                known.insert(member.pid);
                handle(member);
            }
            !found
        });
        if others.len() == before {
            return;
        }
    }
}

/// Sends a signal to every live descendant of `root`, except those in `spared` and their descendants. Returns their
/// number.
pub(crate) fn signal(root: Pid, spared: &[Pid], signal: Signal) -> usize {
    let mut living = 0;
    each(root, spared, |member| {
        if !member.ended {
            living += 1;
            member.signal(signal);
        }
    });
    living
}

/// Sends a signal to the children of this thread, as fast as possible. They keep their ids until this process waits for
/// them.
pub(crate) fn signal_children(signal: Signal) {
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    for pid in children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_whatever_the_process_name() {
        let stat = "7 (a) b () Z 3 7 7 0 -1 4194304 100 0 0 0 150 50 20 30 20 0 3 0 777 0 0";
        let pid = Pid::from_raw(7).expect("a pid");
        let member = Descendant::parse(pid, stat).expect("a process");
        assert_eq!((member.parent, member.ended, member.start), (Pid::from_raw(3).expect("a pid"), true, 777));
        assert_eq!(Descendant::parse(pid, "7 (x"), None);
    }

    #[test]
    fn signals_reach_all_descendants_that_are_not_spared() {
        let script = "(sleep 60; true) & (sleep 60; true) & wait; true";
        let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().expect("a child");
        let root = Pid::from_child(&child);
        let descendants = || {
            let mut members = vec![];
            each(root, &[], |member| members.push(*member));
            members
        };
        // A shell whose child has not executed its program yet waits for that, and cannot be stopped.
        let is_sleep = |member: &Descendant| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", member.pid.as_raw_nonzero()));
            name.is_ok_and(|name| name == "sleep\n")
        };
        while descendants().iter().filter(|member| is_sleep(member)).count() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let spared = descendants().into_iter().find(|member| member.parent == root).expect("a child of the child").pid;
        assert_eq!(signal(root, &[spared], Signal::STOP), 2);
        let stopped = |member: &Descendant| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", member.pid.as_raw_nonzero())).expect("stat");
            stat.rsplit_once(')').is_some_and(|(_, fields)| fields.starts_with(" T"))
        };
        let (below, others): (Vec<_>, Vec<_>) =
            descendants().into_iter().partition(|member| member.pid == spared || member.parent == spared);
        assert!(below.len() == 2 && !below.iter().any(stopped), "{below:?}");
        while !others.iter().all(stopped) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // Orphans are not adopted by this test; in a cell init adopts them.
        for member in below.iter().chain(&others).rev() {
            member.signal(Signal::KILL);
        }
        child.wait().expect("its end");
    }
}
