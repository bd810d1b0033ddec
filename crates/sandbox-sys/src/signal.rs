//! Signal masks, dispositions and `signalfd(2)`.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Result, check};

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The signals with these numbers; unknown numbers are ignored.
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set; sigaddset rejects numbers it does not know.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            Self(set.assume_init())
        }
    }

    /// Every signal.
    #[must_use]
    pub fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the set.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Makes this the calling thread's mask: exactly these signals are blocked.
    pub fn block(&self) -> Result<()> {
        // SAFETY: the set is initialised and outlives the call; the old mask is not asked for.
        let ret = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        check(ret.into()).map(drop)
    }
}

/// The classic signals, by number. Programs are not started with real-time signals ignored.
pub const CLASSIC: std::ops::RangeInclusive<i32> = 1..=31;

/// Resets signals to their default action. Rust ignores SIGPIPE, a shell may ignore others, and ignored signals survive
/// `execve`.
pub fn reset(signals: impl IntoIterator<Item = i32>) {
    for signal in signals {
        // SAFETY: SIG_DFL is valid for every signal; for those that cannot be changed the call fails harmlessly.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Ignores signals.
pub fn ignore(signals: impl IntoIterator<Item = i32>) {
    for signal in signals {
        // SAFETY: SIG_IGN is valid for every signal; for those that cannot be changed the call fails harmlessly.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// A descriptor that becomes readable when one of a set of blocked signals arrives.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Opens a descriptor for `signals`, which the caller has blocked.
    pub fn new(signals: &SignalSet) -> Result<Self> {
        // SAFETY: the set is initialised and outlives the call.
        let fd = unsafe { libc::signalfd(-1, &raw const signals.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        let fd = check(fd.into())?;
        #[expect(clippy::cast_possible_truncation, reason = "a descriptor is an int")]
        // SAFETY: the kernel has just returned this descriptor; it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Reads the next signal that has arrived, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `size` bytes into a buffer of that size.
        let n = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(n) != Ok(size) {
            return None;
        }
        // SAFETY: the read returned a whole record.
        let info = unsafe { info.assume_init() };
        i32::try_from(info.ssi_signo).ok()
    }
}

impl std::os::fd::AsFd for SignalFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The name of a signal, such as `SIGKILL`.
#[must_use]
pub fn name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal) {
        Ok(n @ 1..=31) => format!("SIG{}", NAMES[n - 1]),
        _ => format!("SIGRT{signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_signals() {
        assert_eq!(name(libc::SIGKILL), "SIGKILL");
        assert_eq!(name(libc::SIGXFSZ), "SIGXFSZ");
        assert_eq!(name(libc::SIGSYS), "SIGSYS");
        assert_eq!(name(40), "SIGRT40");
    }

    #[test]
    fn a_blocked_signal_is_read_from_its_descriptor() {
        let set = SignalSet::of(&[libc::SIGUSR1]);
        set.block().expect("block");
        let fd = SignalFd::new(&set).expect("signalfd");
        assert_eq!(fd.next(), None);
        // SAFETY: a thread may always send itself a signal; this one is blocked.
        unsafe {
            libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1);
        }
        assert_eq!(fd.next(), Some(libc::SIGUSR1));
        assert_eq!(fd.next(), None);
    }
}
