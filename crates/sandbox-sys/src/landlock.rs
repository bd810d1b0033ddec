//! The two Landlock calls that run where the `landlock` crate cannot: after a fork, without allocating.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{Result, check};

/// The Landlock ABI of the running kernel; 0 when Landlock is missing or turned off.
#[must_use]
pub fn abi_version() -> u32 {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with the VERSION flag the call takes a null attribute of size 0 and returns a number.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(ret).unwrap_or(0)
}

/// Applies a ruleset to the calling thread and everything it will start. Needs `no_new_privs`.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the call takes an open descriptor and flags; it touches no memory of ours.
    let ret = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    check(ret).map(drop)
}
