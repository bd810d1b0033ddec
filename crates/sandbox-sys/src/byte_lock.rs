//! Locks on single bytes of a file, which vanish when it is closed.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{Result, check};

/// Locks one byte of a file that is open for writing, or fails at once if another open file has it locked.
#[expect(clippy::cast_possible_truncation, reason = "small constants")]
pub fn lock_byte(file: BorrowedFd<'_>, offset: i64) -> Result<()> {
    // SAFETY: `flock` is plain data for which all zeroes is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset;
    lock.l_len = 1;
    // SAFETY: the kernel reads a `flock` that lives across the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }.into()).map(drop)
}
