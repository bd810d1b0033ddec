//! Becoming another user, for good or for a moment.

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getuid};
use rustix::thread::{capabilities, set_capabilities, set_thread_res_gid, set_thread_res_uid};

/// Takes a user and a group id for good.
pub(crate) fn take((uid, gid): (u32, u32)) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Makes something as another user, who then owns it, and comes back, unless that has become impossible. Capabilities stay
/// what they are.
pub(crate) fn acting_as<T>(owner: u32, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let own = getuid();
    let before = capabilities(None)?;
    set_thread_res_uid(own, Uid::from_raw(owner), own)?;
    // The kernel takes a user who is no longer root its powers, but not the right to have them.
    set_capabilities(None, before)?;
    let made = make();
    // In a new user namespace, the old id means nothing; there the next one is taken for good.
    match set_thread_res_uid(own, own, own).and_then(|()| set_capabilities(None, before)) {
        Ok(()) | Err(Errno::INVAL) => made,
        Err(errno) => made.and(Err(errno)),
    }
}
