//! The root file system of a cell.
//!
//! # Theory of operation
//!
//! Init starts in a copy of the host's mount namespace. It first makes all mounts private, so that nothing it mounts is
//! visible outside. It then covers the root with a small tmpfs, which it accesses only through a descriptor, and fills
//! it: the host's system directories or those of an unpacked image, bound read-only; a few files and devices; the
//! cell's mounts; the writable directories; `/proc`. Finally the tmpfs becomes the root, and the host's tree is
//! detached.
//!
//! Everything writable in a cell is one tmpfs, so that one size and one inode count limit all of it. Volumes, which
//! have separate sizes, are the exception.
//!
//! The children of a zygote have cells that are all alike. Their inits start in copies of a mount namespace that has such a
//! root already, a *template* ([`become_template`]): all that is left to do is to add what each cell has for itself
//! ([`complete_template`]), which is what can be written and `/proc`. The rest of a template is read-only, like the system
//! directories that all cells share anyway.
//!
//! Detaching a mount makes the kernel wait for all CPUs, so it is done exactly once; other mounts are covered or made
//! inaccessible after use.

#[cfg(feature = "canary")]
mod exposed;
mod image;
mod targets;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_bind, mount_change, move_mount, open_tree, unmount,
};
use sandbox_sys::mount::{Attributes, set_attributes};
use sandbox_sys::process::{Namespaces, SingleThreaded, exit_now, fork_into};

pub(crate) use targets::check_targets;

use crate::spec::{CellSpec, HOME_DIR, Mount, Volume, WORK_DIR};
use crate::step::{InitStep, StepError, at, named};

/// System directories of the host. Those that are symbolic links on the host become links in the cell.
const SYSTEM_DIRS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32"];

/// Parts of the host's /etc that programs need and that reveal nothing about the host.
const ETC: [&str; 3] = ["ld.so.cache", "alternatives", "ssl/certs"];

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The most pseudo-terminals that a cell with a terminal can have. They come from a pool of the whole kernel
/// (`kernel.pty.max`); its reserve (`kernel.pty.reserve`) stays with the host's mount namespace.
const MOST_TERMINALS: u32 = 16;

/// Directories that are bound to parts of the one writable tmpfs: name in it, path in the cell, mode.
const WRITABLE: [(&str, &str, u32); 4] =
    [("work", "sandbox", 0o755), ("home", "home/sandbox", 0o755), ("tmp", "tmp", 0o1777), ("shm", "dev/shm", 0o1777)];

/// Inodes of the writable tmpfs that the cell itself uses: its root and the directories above.
const OWN_INODES: u64 = 1 + WRITABLE.len() as u64;

/// Parts of /proc that reveal the kernel, the host or its other users. Each costs a mount in every cell, so files that
/// only root can read, or that only name the host's hardware, are not listed.
const MASKED_FILES: [&str; 5] = ["cmdline", "kallsyms", "kcore", "keys", "locks"];
const MASKED_DIRS: [&str; 2] = ["acpi", "scsi"];

/// The path at which the whole writable tmpfs is attached, so that its parts can be cloned. Only init may enter.
const STAGING: &str = "mnt";

/// Names of the user and the group in a cell.
const PASSWD: &str = "root:x:0:0:root:/:/bin/false\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n\
                      nobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost\n";
/// The resolver's address; it answers only if the cell has a resolver.
const RESOLV: &str = "nameserver 127.0.0.1\noptions attempts:1\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The parts that all cells of a specification share.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// An unpacked image that replaces the system directories of the host.
    pub(crate) image: Option<&'a Path>,
    /// The cell's mounts.
    pub(crate) mounts: &'a [Mount],
    /// For each mount, the user namespace that maps the ids in it, if there is one. For a writable mount it maps the
    /// owner to the cell's user; for a read-only one it maps no owner of its files.
    pub(crate) id_maps: &'a [Option<OwnedFd>],
    /// The volumes.
    pub(crate) volumes: &'a [Volume],
    /// Whether there is a place for pseudo-terminals.
    pub(crate) terminals: bool,
    /// Empty directories, at which mounts can be added later.
    pub(crate) slots: &'a [PathBuf],
    /// Whether the host's directories are visible in it, as without a private root.
    pub(crate) host: bool,
}

impl<'a> Parts<'a> {
    /// The parts of a specification.
    pub(crate) fn new(spec: &'a CellSpec, id_maps: &'a [Option<OwnedFd>], host: bool) -> Self {
        let CellSpec { image, mounts, volumes, slots, terminal, .. } = spec;
        Self { image: image.as_deref(), mounts, id_maps, volumes, terminals: terminal.is_some(), slots, host }
    }
}

/// The parts that each cell has for itself.
#[derive(Clone, Copy)]
pub(crate) struct OwnParts<'a> {
    /// The writable tmpfs.
    pub(crate) writable: &'a OwnedFd,
    /// A tmpfs for each volume.
    pub(crate) volumes: &'a [OwnedFd],
    /// Whether /proc shows the processes of all users.
    pub(crate) all_processes: bool,
}

/// Whether the mounts of a cell may contain sockets of processes outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketsShown {
    None,
    Some,
}

/// The same for a cell without a root file system.
pub(crate) fn sockets_shown(mounts: &[Mount]) -> SocketsShown {
    if mounts.iter().any(|mount| mount.foreign) { SocketsShown::Some } else { SocketsShown::None }
}

/// Builds the root and makes it the root of this process; the host's tree is gone afterwards. Called by init in a
/// private mount namespace. Returns a writable view of /proc that no other process can reach.
pub(crate) fn enter(parts: &Parts<'_>, own: &OwnParts<'_>) -> Result<(OwnedFd, SocketsShown), StepError> {
    let (root, sockets) = build(parts)?;
    attach_writable(&root, parts.volumes, own)?;
    #[cfg(feature = "canary")]
    if parts.host {
        exposed::show_host(&root, parts)?;
    }
    if let Some(image) = parts.image {
        image::show_image(&root, image, parts)?;
    }
    rustix::process::fchdir(&root).map_err(at(InitStep::EnterRoot))?;
    let proc = mount_proc(&root, own.all_processes).map_err(at(InitStep::MountProc))?;
    become_root(&root)?;
    Ok((proc, sockets))
}

/// Moves this process to a mount namespace with the root that cells of a specification share: everything except what each
/// cell has for itself. The host's tree is gone afterwards.
pub(crate) fn become_template(alone: SingleThreaded, parts: &Parts<'_>) -> Result<SocketsShown, StepError> {
    sandbox_sys::process::unshare(alone, Namespaces::MOUNT).map_err(at(InitStep::MakeMountsPrivate))?;
    let (root, sockets) = build(parts)?;
    // In a user namespace, the kernel mounts /proc only where another one is visible as a whole. This one, of the process
    // that is the template, is below that of every cell.
    let proc = new_proc(false).map_err(at(InitStep::MountProc))?;
    attach(&proc, &root, c"proc").map_err(at(InitStep::MountProc))?;
    rustix::process::fchdir(&root).map_err(at(InitStep::EnterRoot))?;
    become_root(&root)?;
    Ok(sockets)
}

/// Adds to a copy of a template what the cell has for itself. Returns a writable view of /proc that no other process can
/// reach.
pub(crate) fn complete_template(volumes: &[Volume], own: &OwnParts<'_>) -> Result<OwnedFd, StepError> {
    rustix::process::chdir(c"/").map_err(at(InitStep::EnterRoot))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(c"/", flags, Mode::empty()).map_err(at(InitStep::EnterRoot))?;
    attach_writable(&root, volumes, own)?;
    mount_proc(&root, own.all_processes).map_err(at(InitStep::MountProc))
}

/// Builds a root without what each cell has for itself. It covers the root of this process.
fn build(parts: &Parts<'_>) -> Result<(OwnedFd, SocketsShown), StepError> {
    let mut sockets = SocketsShown::None;
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(at(InitStep::MakeMountsPrivate))?;
    // Device nodes are allowed: the cell's devices are in it, and its programs cannot create others.
    let options = [("size", "1m"), ("nr_inodes", "2k"), ("mode", "0755")];
    let root = new_filesystem("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID).map_err(at(InitStep::MakeRoot))?;
    // It covers the old root, where path lookups do not find it: they start below whatever covers the root.
    move_mount(&root, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(at(InitStep::AttachRoot))?;
    fill(&root, parts).map_err(at(InitStep::FillRoot))?;
    if parts.image.is_none() {
        show_system(&root)?;
    }
    if parts.terminals {
        make_place_for_terminals(&root).map_err(at(InitStep::MountTerminals))?;
    }
    // /dev/tty is the controlling terminal of the process that opens it.
    for name in DEVICES.into_iter().chain(parts.terminals.then_some("tty")) {
        let target = format!("dev/{name}");
        show_device(&root, &target).map_err(at(InitStep::Show(format!("/{target}"))))?;
    }
    for (index, mount) in parts.mounts.iter().enumerate() {
        let id_map = parts.id_maps.get(index).and_then(Option::as_ref);
        let shown = show(&root, mount, id_map)?;
        if shown == SocketsShown::Some {
            sockets = shown;
        }
    }
    for volume in parts.volumes {
        make_target(&root, below_root(&volume.target), true)
            .map_err(at(InitStep::MountVolume(named(&volume.target))))?;
    }
    for slot in parts.slots {
        make_target(&root, below_root(slot), true).map_err(at(InitStep::MakeSlot(named(slot))))?;
    }
    Ok((root, sockets))
}

/// Makes the mount point of [`new_devpts`], and the name under which programs look for its multiplexer.
fn make_place_for_terminals(root: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(root, "dev/pts", Mode::from_raw_mode(0o755))?;
    rustix::fs::symlinkat("pts/ptmx", root, "dev/ptmx")
}

/// An instance of devpts without any terminal yet, not attached anywhere. Whatever is opened in it belongs to `owner`.
pub(crate) fn new_devpts(owner: (u32, u32)) -> rustix::io::Result<OwnedFd> {
    let [uid, gid, max] = [owner.0, owner.1, MOST_TERMINALS].map(|number| number.to_string());
    let options = [("uid", &*uid), ("gid", &*gid), ("mode", "0600"), ("ptmxmode", "0666"), ("max", &*max)];
    new_filesystem("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

/// Attaches volumes and writable directories at their places in the root.
fn attach_writable(root: &OwnedFd, volumes: &[Volume], own: &OwnParts<'_>) -> Result<(), StepError> {
    for (volume, tmpfs) in volumes.iter().zip(own.volumes) {
        attach(tmpfs, root, below_root(&volume.target)).map_err(at(InitStep::MountVolume(named(&volume.target))))?;
    }
    // Except on the newest kernels, only attached mounts can be cloned.
    attach(own.writable, root, STAGING).map_err(at(InitStep::AttachWritable))?;
    for (name, target, _) in WRITABLE {
        let tree = clone_one(own.writable, name).map_err(at(InitStep::OpenWritable))?;
        attach(&tree, root, target).map_err(at(InitStep::AttachWritable))?;
    }
    Ok(())
}

/// Makes the finished root, which is the working directory, the root of this process, and lets go of the old one.
fn become_root(root: &OwnedFd) -> Result<(), StepError> {
    let sealed = Attributes::READ_ONLY.and(Attributes::NO_SUID);
    set_attributes(root.as_fd(), sealed, false).map_err(at(InitStep::SealRoot))?;

    // With both arguments the same, the old root ends up on top of the new one, from where it is detached. (A user
    // namespace, which comes next, cannot be created while a mount covers the root.)
    rustix::process::pivot_root(c".", c".").map_err(at(InitStep::ChangeRoot))?;
    unmount(c".", UnmountFlags::DETACH).map_err(at(InitStep::DetachHostRoot))?;
    rustix::process::chdir(c"/").map_err(at(InitStep::EnterRoot))
}

/// Tries whether a root can be built here. Called in a disposable mount namespace.
pub(crate) fn can_mount() -> rustix::io::Result<()> {
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    tmpfs(&[("size", "4k")])?;
    clone_one(CWD, c"/usr").map(drop)
}

/// Mounts the host's system directories, and the harmless parts of its /etc.
fn show_system(root: &OwnedFd) -> Result<(), StepError> {
    let shown = |path: String| at(InitStep::Show(path));
    for name in SYSTEM_DIRS {
        let host = format!("/{name}");
        match std::fs::read_link(&host) {
            Ok(target) => rustix::fs::symlinkat(&target, root, name).map_err(shown(host))?,
            Err(_) if Path::new(&host).is_dir() => {
                bind(root, Path::new(&host), Path::new(name)).map_err(shown(host))?;
            }
            Err(_) => {}
        }
    }
    for name in ETC {
        let host = format!("/etc/{name}");
        if Path::new(&host).exists() {
            bind(root, Path::new(&host), &Path::new("etc").join(name)).map_err(shown(host))?;
        }
    }
    Ok(())
}

/// Creates the cell's directories, links and files.
fn fill(root: &OwnedFd, parts: &Parts<'_>) -> rustix::io::Result<()> {
    let make = |dir: &str| rustix::fs::mkdirat(root, dir, Mode::from_raw_mode(0o755));
    for dir in ["dev", "home", STAGING, "proc", "run"].into_iter().chain(WRITABLE.map(|(_, target, _)| target)) {
        make(dir)?;
    }
    for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        rustix::fs::symlinkat(format!("/proc/self/fd{target}"), root, format!("dev/{link}"))?;
    }
    if parts.image.is_some() {
        // The unpacker of the image has created the rest.
        return Ok(());
    }
    for dir in ["etc", "etc/ssl", "opt", "var"] {
        make(dir)?;
    }
    if !parts.host {
        rustix::fs::symlinkat("/tmp", root, "var/tmp")?;
    }
    for (name, content) in own_files() {
        let file = create_file(root, &Path::new("etc").join(name))?;
        rustix::io::write(&file, content.as_bytes())?;
    }
    Ok(())
}

/// The files in /etc of every cell, whatever its root contains.
#[must_use]
pub fn own_files() -> [(&'static str, &'static str); 5] {
    [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH), ("resolv.conf", RESOLV)]
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

/// A detached copy of a mount with everything below it.
fn instantiate(mount: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(mount, c"", clone | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH)
}

/// A detached copy of the mount at `path`, without the mounts below it.
fn clone_one(dir: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    open_tree(dir, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

fn attach(mount: &OwnedFd, root: &OwnedFd, target: impl rustix::path::Arg) -> rustix::io::Result<()> {
    move_mount(mount, c"", root, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn below_root(target: &Path) -> &Path {
    target.strip_prefix("/").unwrap_or(target)
}

/// Adds a mount to the root. The source is opened without following links: it was checked under this name, and a
/// program that can write near it must not redirect it.
///
/// A program can connect to a socket even through a read-only mount. Connecting needs write permission on the file,
/// which the kernel denies if the owner is unmapped. So ids are mapped to none where the file system supports that.
fn show(root: &OwnedFd, mount: &Mount, id_map: Option<&OwnedFd>) -> Result<SocketsShown, StepError> {
    let mut sockets = sockets_shown(std::slice::from_ref(mount));
    let (from, to) = (|| named(&mount.source), || named(&mount.target));
    let mounting = |errno| StepError::new(InitStep::Mount { source: from(), target: to() }, errno);
    let source = open_source(&mount.source).map_err(mounting)?;
    let stat = rustix::fs::fstat(&source).map_err(mounting)?;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let (tree, attributes, recursive) = if mount.writable {
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(&source, c"", clone | OpenTreeFlags::AT_EMPTY_PATH).map_err(mounting)?;
        if let Some(id_map) = id_map {
            // Not every file system supports id-mapped mounts, and support was added in different kernel versions.
            let mapped = sandbox_sys::mount::map_ids(tree.as_fd(), id_map.as_fd(), false);
            mapped.map_err(at(InitStep::MapIds { source: from(), target: to() }))?;
        }
        (tree, Attributes::NO_SUID.and(Attributes::NO_DEV), false)
    } else {
        let tree = instantiate(&source).map_err(mounting)?;
        if id_map.is_some_and(|map| sandbox_sys::mount::map_ids(tree.as_fd(), map.as_fd(), true).is_ok()) {
            sockets = SocketsShown::None;
        }
        (tree, SEALED, true)
    };
    let target = below_root(&mount.target);
    set_attributes(tree.as_fd(), attributes, recursive)
        .and_then(|()| make_target(root, target, is_dir))
        .and_then(|()| attach(&tree, root, target))
        .map_err(mounting)?;
    Ok(sockets)
}

/// The attributes of read-only mounts.
const SEALED: Attributes = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV);

fn open_source(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Mounts host directories read-only at the slots of an existing cell. Called by the keeper; `namespace` is the cell's
/// mount namespace.
pub(crate) fn show_at_slots(
    alone: SingleThreaded,
    namespace: BorrowedFd<'_>,
    mounts: &[Mount],
) -> rustix::io::Result<()> {
    let tree = |mount: &Mount| {
        let tree = instantiate(&open_source(&mount.source)?)?;
        set_attributes(tree.as_fd(), SEALED, true)?;
        let target = CString::new(mount.target.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        Ok((tree, target))
    };
    let trees = mounts.iter().map(tree).collect::<rustix::io::Result<Vec<_>>>()?;
    let trees: Vec<_> = trees.iter().map(|(tree, target)| (tree.as_fd(), target.as_c_str())).collect();
    sandbox_sys::mount::attach_in(alone, namespace, &trees)
}

/// The same for a keeper without privileges over the mounts that it sees: a process with a private view of them does
/// it.
pub(crate) fn show_at_slots_from_outside(
    alone: SingleThreaded,
    namespace: BorrowedFd<'_>,
    mounts: &[Mount],
) -> rustix::io::Result<()> {
    let shown = || {
        let private = mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC);
        let shown = private.and_then(|()| show_at_slots(alone, namespace, mounts));
        exit_now(shown.map_or_else(Errno::raw_os_error, |()| 0));
    };
    let child = fork_into(alone, Namespaces::MOUNT, None, shown)?;
    let ended = rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty())?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::CHILD),
    }
}

/// Mounts a host directory or file read-only at `target` below `root`.
fn bind(root: &OwnedFd, source: &Path, target: &Path) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, source, flags)?;
    set_attributes(tree.as_fd(), SEALED, true)?;
    make_target(root, target, source.is_dir())?;
    attach(&tree, root, target)
}

/// Provides one of the host's harmless devices. Creating a node is cheaper than a mount, where that is allowed.
fn show_device(root: &OwnedFd, target: &str) -> rustix::io::Result<()> {
    let host = rustix::fs::stat(format!("/{target}"))?;
    let mode = Mode::from_raw_mode(0o666);
    match rustix::fs::mknodat(root, target, rustix::fs::FileType::CharacterDevice, mode, host.st_rdev) {
        Ok(()) => rustix::fs::chmodat(root, target, mode, AtFlags::empty()),
        Err(Errno::PERM) => bind_device(root, target),
        Err(error) => Err(error),
    }
}

fn bind_device(root: &OwnedFd, target: &str) -> rustix::io::Result<()> {
    let tree = clone_one(CWD, Path::new("/").join(target))?;
    set_attributes(tree.as_fd(), Attributes::NO_SUID.and(Attributes::NO_EXEC), false)?;
    create_file(root, Path::new(target))?;
    attach(&tree, root, target)
}

/// Creates an empty directory or file as a mount point, with its parents.
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

/// The writable tmpfs of a cell, detached: its root with the directories in it.
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

/// A tmpfs for a volume, detached.
pub(crate) fn volume(volume: &Volume, owner: (u32, u32)) -> rustix::io::Result<OwnedFd> {
    let (size, inodes) = (volume.size.to_string(), (volume.inodes + 1).to_string());
    let root = tmpfs(&[("size", &size), ("nr_inodes", &inodes), ("mode", "0755")])?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(owner.0), rustix::fs::Gid::from_raw(owner.1));
    rustix::fs::chownat(&root, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    Ok(root)
}

/// Mounts /proc read-only, shows each user only its own processes, and masks files that reveal the host. The working
/// directory is the new root.
fn mount_proc(root: &OwnedFd, all_processes: bool) -> rustix::io::Result<OwnedFd> {
    let writable = new_proc(all_processes)?;
    attach(&writable, root, c"proc")?;
    let proc = instantiate(&writable)?;
    set_attributes(proc.as_fd(), Attributes::READ_ONLY, false)?;
    attach(&proc, &writable, c".")?;
    let files = MASKED_FILES.iter().map(|name| (name, "dev/null"));
    let dirs = MASKED_DIRS.iter().map(|name| (name, "run"));
    for (name, cover) in files.chain(dirs) {
        match mount_bind(cover, format!("proc/{name}")) {
            // Kernels differ in which files exist.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(writable)
}

/// The processes of this process's PID namespace, as a file system that is not attached anywhere.
pub(crate) fn new_proc(all_processes: bool) -> rustix::io::Result<OwnedFd> {
    let flags =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new_filesystem("proc", &[("hidepid", if all_processes { "off" } else { "invisible" })], flags)
}

/// The system directories of this host, and the parts of /etc that a cell sees.
pub fn system_paths() -> impl Iterator<Item = std::path::PathBuf> {
    let dirs = SYSTEM_DIRS.iter().map(|name| Path::new("/").join(name));
    dirs.chain(ETC.iter().map(|name| Path::new("/etc").join(name)))
}

/// Whether a path belongs to the system.
pub(crate) fn is_of_system(path: &Path) -> bool {
    let plain = path.components().all(|part| part != Component::ParentDir);
    plain && (path == Path::new("/") || system_paths().any(|dir| path.starts_with(dir)))
}

/// The devices that a cell has.
pub(crate) fn device_paths() -> impl Iterator<Item = std::path::PathBuf> {
    DEVICES.iter().map(|name| Path::new("/dev").join(name))
}

/// The directories in which programs of every cell can write, by their paths in the cell.
pub(crate) fn writable_dirs() -> [&'static str; 4] {
    [WORK_DIR, HOME_DIR, "/tmp", "/dev/shm"]
}

/// Usage of the writable tmpfs: (bytes, inodes, bytes free, inodes free).
pub(crate) fn used(writable: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64, u64, u64)> {
    let stat = rustix::fs::fstatvfs(writable)?;
    let bytes = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
    let inodes = (stat.f_files - stat.f_ffree).saturating_sub(OWN_INODES);
    Ok((bytes, inodes, stat.f_bfree * stat.f_frsize, stat.f_ffree))
}
