//! Linux interfaces that `rustix` does not wrap.
//!
//! This crate and the library of zygotes (`sandbox-zygote`) are the only ones that contain `unsafe` code. Every
//! function here is a thin, safe wrapper around one kernel interface; policy (what to mount, which calls to refuse) is
//! in `sandbox-cell`.

pub mod allocator;
pub mod byte_lock;
pub mod ipc;
pub mod keyring;
pub mod landlock;
pub mod mount;
pub mod net;
pub mod process;
pub mod seccomp;
pub mod signal;
pub mod spawn;
pub mod start_block;

/// The result of a system call.
pub type Result<T> = std::result::Result<T, rustix::io::Errno>;

/// Turns the C convention (-1 and `errno`) into a [`Result`].
fn check(ret: i64) -> Result<i64> {
    if ret == -1 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Err(rustix::io::Errno::from_raw_os_error(errno))
    } else {
        Ok(ret)
    }
}
