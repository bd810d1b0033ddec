//! Creates processes in new namespaces, and reads the kernel's accounting of their usage.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::process::Pid;

use crate::{Result, check};

/// Proof that this process had one thread when it was checked, which makes forking without `exec` sound: no other
/// thread can hold a lock that the child would wait for.
#[derive(Debug, Clone, Copy)]
pub struct SingleThreaded(());

impl SingleThreaded {
    /// Checks, and returns the proof if there is exactly one thread.
    #[must_use]
    pub fn prove() -> Option<Self> {
        let threads = std::fs::read_dir("/proc/self/task").ok()?.count();
        (threads == 1).then_some(Self(()))
    }
}

/// New namespaces for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None: a plain fork.
    pub const NONE: Self = Self(0);
    /// User and group ids, capabilities.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Process ids.
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// Mounts.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// Network devices, addresses, sockets.
    pub const NET: Self = Self(libc::CLONE_NEWNET as u64);
    /// System V IPC and POSIX message queues.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    /// Host name.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);
    /// The root of the cgroup tree as the process sees it.
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP as u64);

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A child created by [`fork_into`].
#[derive(Debug)]
pub struct Child {
    /// Its id, as the parent sees it.
    pub pid: Pid,
    /// A pidfd: it refers to this very process, even after its id is reused.
    pub pidfd: OwnedFd,
}

/// Forks a child into new namespaces and, on cgroup v2, directly into a cgroup. The child runs `child` and ends; the
/// parent gets its id and a pidfd.
pub fn fork_into<F>(
    _proof: SingleThreaded,
    namespaces: Namespaces,
    cgroup: Option<BorrowedFd<'_>>,
    child: F,
) -> Result<Child>
where
    F: FnOnce(),
{
    // The constant in `libc` is an int and loses this bit.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: libc::c_int = -1;
    // SAFETY: `clone_args` is plain data for which all zeroes is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces.0 | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    // SAFETY: without CLONE_VM the child gets a copy of this single-threaded process (the proof) and continues from
    // here with its own memory, as after fork(2); `args` has its true size.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) });
    let pid = match pid {
        // A container's filter cannot inspect the flags of clone3 and answers ENOSYS. The older call takes the same
        // flags, except for the one about cgroups.
        Err(rustix::io::Errno::NOSYS) if cgroup.is_none() => {
            let flags = args.flags | args.exit_signal;
            // SAFETY: as above; a null stack means that the child continues with its copy of this one. On all
            // architectures the third argument is where the descriptor is stored.
            check(unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) })?
        }
        other => other?,
    };
    if pid == 0 {
        // A panic must not unwind into the copy of the parent's stack and continue as a second parent.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        exit_now(if ended.is_ok() { 0 } else { 101 })
    }
    #[expect(clippy::cast_possible_truncation, reason = "a process id is an int")]
    let pid = Pid::from_raw(pid as i32).ok_or(rustix::io::Errno::CHILD)?;
    // SAFETY: the kernel stored a new descriptor here, which has no other owner.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child { pid, pidfd })
}

/// Ends the process at once, without running exit handlers, which belong to the process it was forked from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor above 2 except these. For a process that was just forked and has copies of its parent's.
pub fn close_all_except(kept: &[BorrowedFd<'_>]) -> Result<()> {
    let mut kept: Vec<u32> = kept.iter().filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok()).collect();
    kept.sort_unstable();
    let mut next = 3;
    for fd in kept.into_iter().filter(|fd| *fd >= 3).chain([u32::MAX]) {
        if fd > next {
            // SAFETY: the descriptors are this process's own copies. An `OwnedFd` for one of them in the memory
            // inherited from the parent is never used here: the callers never return to that code.
            let ret = unsafe { libc::syscall(libc::SYS_close_range, next, fd - 1, 0_u32) };
            check(ret)?;
        }
        next = fd.saturating_add(1);
    }
    Ok(())
}

/// Moves the process to new namespaces. It must have a single thread.
pub fn unshare(_proof: SingleThreaded, namespaces: Namespaces) -> Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "namespace flags are ints")]
    // SAFETY: unshare changes kernel state of the calling thread only, which is the only one.
    let ret = unsafe { libc::unshare(namespaces.0 as i32) };
    check(ret.into()).map(drop)
}

/// CPU time of all children that have been reaped, and of their children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user code.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

/// Reads [`CpuTimes`] of the calling process's children.
#[must_use]
pub fn children_cpu_times() -> CpuTimes {
    // SAFETY: `rusage` is plain data for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills one `rusage` that lives across the call.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return CpuTimes::default();
    }
    CpuTimes { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// The number of clock ticks in a second, the unit of `/proc/PID/stat`.
#[must_use]
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf reads a constant.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// Sends a signal to every other process of this PID namespace. Only PID 1 may call it: for any other process the same
/// call would reach every process of its user.
pub fn kill_all(signal: rustix::process::Signal) -> Result<()> {
    if !rustix::process::getpid().is_init() {
        return Err(rustix::io::Errno::PERM);
    }
    // SAFETY: kill touches no memory.
    let ret = unsafe { libc::kill(-1, signal.as_raw()) };
    check(ret.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pid_1_can_signal_all_processes() {
        assert_eq!(kill_all(rustix::process::Signal::CONT), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn a_test_runner_has_more_than_one_thread() {
        let thread = std::thread::spawn(|| SingleThreaded::prove().is_none());
        assert!(thread.join().expect("thread"));
    }
}
