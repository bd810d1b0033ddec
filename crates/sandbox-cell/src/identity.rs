//! Changes of user, permanent or temporary.

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getuid};
use rustix::thread::{capabilities, set_capabilities, set_thread_res_gid, set_thread_res_uid};

/// Takes a user and a group id permanently.
pub(crate) fn take((uid, gid): (u32, u32)) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Creates something as another user, who then owns it, and switches back, unless that has become impossible.
/// Capabilities stay the same.
pub(crate) fn acting_as<T>(owner: u32, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let own = getuid();
    let before = capabilities(None)?;
    set_thread_res_uid(own, Uid::from_raw(owner), own)?;
    // When the user id changes from root, the kernel clears the effective capabilities, but not the permitted ones.
    set_capabilities(None, before)?;
    let made = make();
    // In a new user namespace the old id is not mapped; there the next id is taken permanently.
    match set_thread_res_uid(own, own, own).and_then(|()| set_capabilities(None, before)) {
        Ok(()) | Err(Errno::INVAL) => made,
        Err(errno) => made.and(Err(errno)),
    }
}
