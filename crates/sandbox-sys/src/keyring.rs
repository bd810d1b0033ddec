//! Kernel keyrings. The sandbox itself uses none: the attack suite plants a key that no cell should be able to read.

use std::ffi::CString;
use std::ptr;

use rustix::io::Errno;

use crate::{Result, check};

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
const KEYCTL_INVALIDATE: libc::c_long = 21;
const SESSION_KEYRING: libc::c_long = -3;

/// Leaves the session keyring that this process was started with for a new, empty one, which its children inherit.
pub fn join_new_session() -> Result<()> {
    let none = ptr::null::<libc::c_char>();
    // SAFETY: without a name the kernel creates an anonymous keyring and reads no memory.
    check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, none) }).map(drop)
}

/// A key in the session keyring. Dropping it removes it.
#[derive(Debug)]
pub struct SessionKey(libc::c_long);

impl SessionKey {
    /// Adds a key of type `user`.
    pub fn add(name: &str, payload: &[u8]) -> Result<Self> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        // SAFETY: both strings are nul-terminated, the payload has the length given, and all outlive the call.
        let id = unsafe {
            libc::syscall(
                libc::SYS_add_key,
                c"user".as_ptr(),
                name.as_ptr(),
                payload.as_ptr(),
                payload.len(),
                SESSION_KEYRING,
            )
        };
        check(id).map(Self)
    }
}

impl Drop for SessionKey {
    fn drop(&mut self) {
        // SAFETY: invalidating a key touches no memory.
        unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_INVALIDATE, self.0) };
    }
}
