//! The root file system of a cell.
//!
//! # Theory of operation
//!
//! The keeper builds a tree of mounts once for every set of mounts it is asked for: a small read-only tmpfs with the
//! host's system directories bound into it. Trees stand on a shelf, a tmpfs in a corner of the keeper's own mount
//! namespace. For each cell the tree is cloned, which costs a few microseconds, and the new init makes the clone its
//! root, adds what is private to the cell (writable directories, `/proc`) and lets go of the host's tree.
//!
//! Detaching a mount makes the kernel wait for all CPUs, so it is done exactly once per cell; what could be detached
//! after use is covered or made inaccessible instead.
//!
//! Everything writable in a cell is one tmpfs, so that one size and one inode count limit all of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_bind, move_mount, open_tree, unmount,
};
use sandbox_sys::mount::{Attributes, set_attributes};

use crate::error::Failure;
use crate::spec::{HOME_DIR, Mount, WORK_DIR};

/// Directories of the host that make up a system. Those that are symbolic links there become links here.
const SYSTEM_DIRS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32"];

/// Parts of the host's /etc that programs need and that say nothing about the host.
const ETC: [&str; 3] = ["ld.so.cache", "alternatives", "ssl/certs"];

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Directories that are bound to parts of the one writable tmpfs: name in it, place in the cell, mode.
const WRITABLE: [(&str, &str, u32); 4] =
    [("work", "sandbox", 0o755), ("home", "home/sandbox", 0o755), ("tmp", "tmp", 0o1777), ("shm", "dev/shm", 0o1777)];

/// Inodes of the writable tmpfs that the cell itself uses: its root and the directories above.
const OWN_INODES: u64 = 1 + WRITABLE.len() as u64;

/// Parts of /proc that tell about the kernel, the host or its other users. Each costs a mount in every cell, so what
/// only root can read, or what only names the host's hardware, is not among them.
const MASKED_FILES: [&str; 5] = ["cmdline", "kallsyms", "kcore", "keys", "locks"];
const MASKED_DIRS: [&str; 2] = ["acpi", "scsi"];

/// Where the whole writable tmpfs is attached, so that its parts can be cloned from it. Only init may enter.
const STAGING: &str = "mnt";

/// Where the shelf is put up: a directory that is always there and that the keeper has no use for.
const CORNER: &str = "/proc/fs";

/// Names of the user and its group in a cell.
const PASSWD: &str = "root:x:0:0:root:/:/bin/false\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n\
                      nobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// Where templates are attached.
#[derive(Debug)]
pub(crate) struct Shelf {
    root: OwnedFd,
    places: u64,
}

impl Shelf {
    /// Puts a shelf up in the current mount namespace, which must be private.
    pub(crate) fn put_up() -> rustix::io::Result<Self> {
        let root = tmpfs(&[("size", "64k"), ("mode", "0700")])?;
        move_mount(&root, c"", CWD, CORNER, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(Self { root, places: 0 })
    }

    fn place(&mut self, tree: &OwnedFd) -> rustix::io::Result<()> {
        let name = self.places.to_string();
        self.places += 1;
        rustix::fs::mkdirat(&self.root, &name, Mode::from_raw_mode(0o700))?;
        attach(tree, &self.root, &name)
    }
}

/// A tree of mounts, ready to be cloned.
#[derive(Debug)]
pub(crate) struct Template {
    mounts: Vec<Mount>,
    root: OwnedFd,
}

impl Drop for Template {
    fn drop(&mut self) {
        use std::os::fd::AsRawFd;
        let _ = unmount(format!("/proc/self/fd/{}", self.root.as_raw_fd()), UnmountFlags::DETACH);
    }
}

impl Template {
    /// Builds the tree on a shelf.
    pub(crate) fn build(shelf: &mut Shelf, mounts: &[Mount]) -> Result<Self, Failure> {
        let root = tmpfs(&[("size", "1m"), ("nr_inodes", "2k"), ("mode", "0755")])
            .map_err(|e| Failure::os("cannot make the cell's root file system", e))?;
        shelf.place(&root).map_err(|e| Failure::os("cannot attach the cell's root file system", e))?;

        fill(&root).map_err(|e| Failure::os("cannot fill the cell's root file system", e))?;
        for name in SYSTEM_DIRS {
            let host = Path::new("/").join(name);
            let shown = |e| Failure::os(format!("cannot show {} in the cell", host.display()), e);
            match std::fs::read_link(&host) {
                Ok(target) => rustix::fs::symlinkat(&target, &root, name).map_err(shown)?,
                Err(_) if host.is_dir() => bind(&root, &host, Path::new(name)).map_err(shown)?,
                Err(_) => {}
            }
        }
        for name in ETC {
            let host = Path::new("/etc").join(name);
            if host.exists() {
                let shown = |e| Failure::os(format!("cannot show {} in the cell", host.display()), e);
                bind(&root, &host, &Path::new("etc").join(name)).map_err(shown)?;
            }
        }
        for name in DEVICES {
            let target = format!("dev/{name}");
            let shown = |e| Failure::os(format!("cannot show /{target} in the cell"), e);
            bind_device(&root, &target).map_err(shown)?;
        }
        for mount in mounts {
            let target = mount_target(&mount.target)?;
            let shown = |e| {
                let (source, target) = (mount.source.display(), mount.target.display());
                Failure::os(format!("cannot mount {source} at {target}"), e)
            };
            bind(&root, &mount.source, &target).map_err(shown)?;
        }
        let sealed = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV);
        set_attributes(root.as_fd(), sealed, false)
            .map_err(|e| Failure::os("cannot make the cell's root file system read-only", e))?;
        Ok(Self { mounts: mounts.to_vec(), root })
    }

    /// Whether this is the tree for these mounts.
    pub(crate) fn serves(&self, mounts: &[Mount]) -> bool {
        self.mounts == mounts
    }

    /// A copy of the tree for one cell, not attached anywhere.
    pub(crate) fn instantiate(&self) -> rustix::io::Result<OwnedFd> {
        instantiate(&self.root)
    }
}

/// Checks where a mount is to appear: absolute, without `..`, and not where it could shadow what makes a cell safe
/// or where the program could put a link in its way.
fn mount_target(target: &Path) -> Result<PathBuf, Failure> {
    let refuse = |why: &str| Failure::of_request(format!("cannot mount at {}", target.display()), why);
    let Ok(relative) = target.strip_prefix("/") else { return Err(refuse("the path is not absolute")) };
    if relative.as_os_str().is_empty() || !relative.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(refuse("the path has '..' or is the root"));
    }
    let reserved = ["proc", "dev", "sys", "etc", "tmp", "sandbox", "home"];
    if reserved.iter().chain(&SYSTEM_DIRS).any(|name| relative.starts_with(name)) {
        return Err(refuse("the directory belongs to the cell"));
    }
    Ok(relative.to_owned())
}

/// Directories, links and files of the cell's own.
fn fill(root: &OwnedFd) -> rustix::io::Result<()> {
    let dirs = ["dev", "etc", "etc/ssl", "home", STAGING, "opt", "proc", "run", "var"];
    for dir in dirs.into_iter().chain(WRITABLE.map(|(_, target, _)| target)) {
        rustix::fs::mkdirat(root, dir, Mode::from_raw_mode(0o755))?;
    }
    rustix::fs::symlinkat("/tmp", root, "var/tmp")?;
    for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        rustix::fs::symlinkat(format!("/proc/self/fd{target}"), root, format!("dev/{link}"))?;
    }
    let files = [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH)];
    for (name, content) in files {
        let file = create_file(root, &Path::new("etc").join(name))?;
        rustix::io::write(&file, content.as_bytes())?;
    }
    Ok(())
}

fn create_file(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(root, path, flags, Mode::from_raw_mode(0o644))
}

/// A new tmpfs, not attached anywhere.
fn tmpfs(options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    new_filesystem("tmpfs", options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

fn new_filesystem(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// A detached copy of a mount and all below it.
fn instantiate(mount: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(mount, c"", clone | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH)
}

/// A detached copy of the mount at `path`, with nothing below it.
fn clone_one(dir: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    open_tree(dir, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

fn attach(mount: &OwnedFd, root: &OwnedFd, target: impl rustix::path::Arg) -> rustix::io::Result<()> {
    move_mount(mount, c"", root, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Shows a host directory or file, read-only, at `target` below `root`.
fn bind(root: &OwnedFd, source: &Path, target: &Path) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, source, flags)?;
    let sealed = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV);
    set_attributes(tree.as_fd(), sealed, true)?;
    make_target(root, target, source.is_dir())?;
    attach(&tree, root, target)
}

fn bind_device(root: &OwnedFd, target: &str) -> rustix::io::Result<()> {
    let tree = clone_one(CWD, Path::new("/").join(target))?;
    set_attributes(tree.as_fd(), Attributes::NO_SUID.and(Attributes::NO_EXEC), false)?;
    create_file(root, Path::new(target))?;
    attach(&tree, root, target)
}

/// Makes an empty directory or file to mount on, with its parents.
fn make_target(root: &OwnedFd, target: &Path, is_dir: bool) -> rustix::io::Result<()> {
    let mut dirs: Vec<&Path> = target.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
    if !is_dir {
        dirs.remove(0);
    }
    for dir in dirs.into_iter().rev() {
        match rustix::fs::mkdirat(root, dir, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    if !is_dir {
        create_file(root, target)?;
    }
    Ok(())
}

/// The writable tmpfs of a cell, not attached: its root with the directories in it.
pub(crate) fn writable(disk: u64, inodes: u64, owner: (u32, u32)) -> rustix::io::Result<OwnedFd> {
    let size = disk.to_string();
    let inodes = (inodes + OWN_INODES).to_string();
    let root = tmpfs(&[("size", &size), ("nr_inodes", &inodes), ("mode", "0700")])?;
    for (name, _, mode) in WRITABLE {
        rustix::fs::mkdirat(&root, name, Mode::from_raw_mode(mode))?;
        // mkdir obeys the umask; chmod does not.
        rustix::fs::chmodat(&root, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(owner.0), rustix::fs::Gid::from_raw(owner.1));
        rustix::fs::chownat(&root, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(root)
}

/// Makes a clone of a template the root of this process, with the writable directories and /proc in place. The host's
/// tree is gone afterwards. Called by init in its own mount namespace; returns a writable view of /proc that nobody
/// else can reach.
pub(crate) fn enter(root: &OwnedFd, writable: &OwnedFd) -> Result<OwnedFd, (&'static str, Errno)> {
    let at = |step| move |errno| (step, errno);
    // The new root covers the old one; from here on it is reached through its descriptor.
    move_mount(root, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(at("attach the root"))?;
    // Only what is attached can be cloned, on all but the newest kernels.
    attach(writable, root, STAGING).map_err(at("attach the writable directories"))?;
    for (name, target, _) in WRITABLE {
        let tree = clone_one(writable, name).map_err(at("open the writable directories"))?;
        attach(&tree, root, target).map_err(at("attach the writable directories"))?;
    }
    rustix::process::fchdir(root).map_err(at("enter the root"))?;
    let proc = mount_proc(root).map_err(at("mount /proc"))?;
    // With both arguments the same, the old root ends up on top of the new one, from where it is detached. (A user
    // namespace, which comes next, cannot be made while anything covers the root.)
    rustix::process::pivot_root(c".", c".").map_err(at("change the root"))?;
    unmount(c".", UnmountFlags::DETACH).map_err(at("detach the host's root"))?;
    rustix::process::chdir(c"/").map_err(at("enter the root"))?;
    Ok(proc)
}

/// Mounts /proc read-only, shows each user only its own processes, and hides what tells about the host. The working
/// directory is the new root.
fn mount_proc(root: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let writable = new_filesystem("proc", &[("hidepid", "invisible")], flags)?;
    attach(&writable, root, c"proc")?;
    let proc = instantiate(&writable)?;
    set_attributes(proc.as_fd(), Attributes::READ_ONLY, false)?;
    attach(&proc, &writable, c".")?;
    let files = MASKED_FILES.iter().map(|name| (name, "dev/null"));
    let dirs = MASKED_DIRS.iter().map(|name| (name, "run"));
    for (name, cover) in files.chain(dirs) {
        match mount_bind(cover, format!("proc/{name}")) {
            // Kernels differ in what they have.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(writable)
}

/// The directories in which programs can write, as they see them.
pub(crate) fn writable_dirs() -> [&'static str; 4] {
    [WORK_DIR, HOME_DIR, "/tmp", "/dev/shm"]
}

/// How much of the writable tmpfs is used: (bytes, inodes, bytes free, inodes free).
pub(crate) fn used(writable: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64, u64, u64)> {
    let stat = rustix::fs::fstatvfs(writable)?;
    let bytes = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
    let inodes = (stat.f_files - stat.f_ffree).saturating_sub(OWN_INODES);
    Ok((bytes, inodes, stat.f_bfree * stat.f_frsize, stat.f_ffree))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_cannot_shadow_the_cell() {
        for target in [
            "/",
            "relative",
            "/proc",
            "/proc/self",
            "/dev/shm",
            "/etc/passwd",
            "/usr/bin",
            "/sandbox/x",
            "/a/../proc",
            "/tmp/x",
        ] {
            assert!(mount_target(Path::new(target)).is_err(), "{target}");
        }
        assert_eq!(mount_target(Path::new("/opt/python")).expect("allowed"), Path::new("opt/python"));
        assert_eq!(mount_target(Path::new("/data")).expect("allowed"), Path::new("data"));
    }
}
