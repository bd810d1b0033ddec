//! Mounts, as far as `rustix` lacks them: `mount_setattr(2)`, and attaching a mount in another mount namespace.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

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

/// Shows the files of a detached mount under other ids: those to which the user namespace maps the ids on disk.
pub fn map_ids(mount: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> Result<()> {
    let userns_fd = u64::from(namespace.as_raw_fd().unsigned_abs());
    apply(mount, libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd }, 0)
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

struct Attachment<'a> {
    namespace: BorrowedFd<'a>,
    mounts: &'a [(BorrowedFd<'a>, &'a CStr)],
    failure: Option<Errno>,
}

/// Attaches detached mounts at absolute paths in another mount namespace, from a process that lives just long enough: as
/// in [`crate::spawn`], it borrows this one's memory while this one waits.
pub fn attach_in(namespace: BorrowedFd<'_>, mounts: &[(BorrowedFd<'_>, &CStr)]) -> Result<()> {
    let mut attachment = Attachment { namespace, mounts, failure: None };
    // SAFETY: `attach` makes system calls on its argument's descriptors and returns.
    let pid = unsafe { crate::spawn::borrow_memory(attach, (&raw mut attachment).cast()) }?;
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())?;
    attachment.failure.map_or(Ok(()), Err)
}

extern "C" fn attach(attachment: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `attach_in` passes a pointer to its own `Attachment`, which it does not touch until this process is gone.
    let attachment = unsafe { &mut *attachment.cast::<Attachment<'_>>() };
    attachment.failure = attach_all(attachment).err();
    // SAFETY: _exit never returns. Exit handlers belong to the parent and must not run here.
    unsafe { libc::_exit(0) }
}

fn attach_all(attachment: &Attachment<'_>) -> Result<()> {
    let kind = Some(rustix::thread::LinkNameSpaceType::Mount);
    rustix::thread::move_into_link_name_space(attachment.namespace, kind)?;
    let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    attachment
        .mounts
        .iter()
        .try_for_each(|(mount, target)| rustix::mount::move_mount(mount, c"", rustix::fs::CWD, *target, flags))
}
