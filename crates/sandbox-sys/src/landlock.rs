//! The two Landlock calls that run where the `landlock` crate cannot: after a fork, without allocating.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};

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

/// Lets those who enter the ruleset read what `/proc` says about the calling process.
pub fn allow_own_process(ruleset: BorrowedFd<'_>) -> Result<()> {
    const RULE_PATH_BENEATH: u32 = 1;
    const READ_FILE_AND_DIR: u64 = 1 << 2 | 1 << 3;
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct PathBeneath {
        allowed_access: u64,
        parent_fd: i32,
    }
    let own = rustix::fs::open(c"/proc/self", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let rule = PathBeneath { allowed_access: READ_FILE_AND_DIR, parent_fd: own.as_fd().as_raw_fd() };
    // SAFETY: the kernel reads one rule of the layout it defines, which lives across the call.
    let ret = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0_u32)
    };
    check(ret).map(drop)
}
