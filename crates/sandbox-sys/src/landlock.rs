//! The two Landlock calls that are needed where the `landlock` crate cannot be used: after a fork, without allocating.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Result, check};

/// The Landlock ABI of the running kernel; 0 when Landlock is missing or disabled.
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

/// The files of `/proc/PID` that describe the process itself. The rest describes its surroundings: network, mounts,
/// cgroups. The directories of its threads (`task`) contain all of that again.
pub const OWN_FILES: [&CStr; 19] = [
    c"auxv",
    c"cmdline",
    c"comm",
    c"environ",
    c"fdinfo",
    c"gid_map",
    c"io",
    c"limits",
    c"maps",
    c"numa_maps",
    c"oom_score",
    c"oom_score_adj",
    c"schedstat",
    c"smaps",
    c"smaps_rollup",
    c"stat",
    c"statm",
    c"status",
    c"uid_map",
];

/// Lets processes that enter the ruleset read the `/proc` entry of the calling process: its directories, and
/// [`OWN_FILES`].
pub fn allow_own_process(ruleset: BorrowedFd<'_>) -> Result<()> {
    const READ_FILE: u64 = 1 << 2;
    const READ_DIR: u64 = 1 << 3;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let own = rustix::fs::open(c"/proc/self", flags | OFlags::DIRECTORY, Mode::empty())?;
    allow_beneath(ruleset, own.as_fd(), READ_DIR)?;
    for name in OWN_FILES {
        match rustix::fs::openat(&own, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => allow_beneath(ruleset, file.as_fd(), READ_FILE)?,
            // Not every kernel has every file.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn allow_beneath(ruleset: BorrowedFd<'_>, parent: BorrowedFd<'_>, allowed_access: u64) -> Result<()> {
    const RULE_PATH_BENEATH: u32 = 1;
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct PathBeneath {
        allowed_access: u64,
        parent_fd: i32,
    }
    let rule = PathBeneath { allowed_access, parent_fd: parent.as_raw_fd() };
    // SAFETY: the kernel reads one rule of the layout it defines, which lives across the call.
    let ret = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0_u32)
    };
    check(ret).map(drop)
}
