//! Mount operations that `rustix` lacks: `mount_setattr(2)`, and attaching a mount in another mount namespace.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{SingleThreaded, exit_now};
use crate::{Result, check};

/// Attributes to set on a mount; see `mount_setattr(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Nothing can be written through the mount.
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// Set-user-id bits and file capabilities are ignored.
    pub const NO_SUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Device nodes cannot be opened.
    pub const NO_DEV: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// Nothing can be executed.
    pub const NO_EXEC: Self = Self(libc::MOUNT_ATTR_NOEXEC);

    /// Both sets of attributes.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Sets attributes on the mount that `mount` refers to and, if `recursive`, on every mount below it.
pub fn set_attributes(mount: BorrowedFd<'_>, attributes: Attributes, recursive: bool) -> Result<()> {
    let attr = libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    apply(mount, attr, if recursive { libc::AT_RECURSIVE } else { 0 })
}

/// Maps the ids of the files in a detached mount and, if `recursive`, in every mount below it, as the user namespace
/// maps them.
pub fn map_ids(mount: BorrowedFd<'_>, namespace: BorrowedFd<'_>, recursive: bool) -> Result<()> {
    let userns_fd = u64::from(namespace.as_raw_fd().unsigned_abs());
    let attr = libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd };
    apply(mount, attr, if recursive { libc::AT_RECURSIVE } else { 0 })
}

fn apply(mount: BorrowedFd<'_>, attr: libc::mount_attr, flags: libc::c_int) -> Result<()> {
    let flags = flags | libc::AT_EMPTY_PATH;
    // SAFETY: the path is a constant C string, `attr` lives across the call and its true size is passed.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    check(ret).map(drop)
}

/// Attaches detached mounts at absolute paths in another mount namespace. This process enters that namespace and
/// returns, which leaves it at its own namespace's root: as root directory, which it must have been, and as working
/// directory.
pub fn attach_in(_proof: SingleThreaded, namespace: BorrowedFd<'_>, mounts: &[(BorrowedFd<'_>, &CStr)]) -> Result<()> {
    let enter = |namespace| move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount));
    let home = rustix::fs::open(c"/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    enter(namespace)?;
    let attach = |(mount, target): &(BorrowedFd<'_>, &CStr)| {
        move_mount(mount, c"", rustix::fs::CWD, *target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    };
    let attached = mounts.iter().try_for_each(attach);
    if enter(home.as_fd()).is_err() {
        // A process that continued here would take another namespace's files for the host's.
        exit_now(1);
    }
    attached
}
