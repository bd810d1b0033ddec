//! Locking a cell without namespaces: see [`crate::reduced`].
//!
//! Init is locked like its programs, with two exceptions: it may read all of `/proc`, to find its descendants, and it
//! may clear the cell's directory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use super::InitParams;
use super::lock::{Handover, Locked, begin, drop_privileges, open_io, prefer_as_victim, take_handover};
use super::writable::Writable;
use crate::landlock_rules::{FileAccess, LandlockRules};
use crate::reduced::CellLayout;
use crate::rootfs;
use crate::step::{InitStep, StepError, at, named};

/// The files of `/proc` that describe the host and not its other users. Each process may also read its own entry.
const PROC: [&str; 12] = [
    "cpuinfo",
    "meminfo",
    "stat",
    "uptime",
    "loadavg",
    "version",
    "filesystems",
    "sys/vm",
    "sys/kernel/random",
    "sys/kernel/osrelease",
    "sys/kernel/pid_max",
    "sys/kernel/threads-max",
];

/// Configuration files that other cells lack or replace. Here they must be readable: some programs do not start if
/// access is denied, while a missing file is fine.
const ETC: [&str; 2] = ["/etc/ssl/openssl.cnf", "/etc/nsswitch.conf"];

pub(super) fn lock<'a>(params: &InitParams<'a>, layout: &CellLayout) -> Result<Locked<'a>, StepError> {
    let children = begin(params)?;
    let Handover { groups, gateway: outgoing, .. } = take_handover(params)?;
    let open = |path: &Path, flags: OFlags| {
        rustix::fs::openat(CWD, path, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    };
    let proc = open(Path::new("/proc"), OFlags::PATH).map_err(at(InitStep::OpenProc))?;
    let root = open(layout.root(), OFlags::RDONLY).map_err(at(InitStep::OpenCellDirectory))?;
    let (own, volumes) = layout.own_and_volumes();
    let own: Result<_, _> = own.map(|place| open(place, OFlags::RDONLY)).collect();
    let volumes = volumes.zip(&params.spec.volumes);
    let volumes: Result<_, _> = volumes.map(|(place, volume)| Ok((open(place, OFlags::RDONLY)?, volume))).collect();
    let own = own.map_err(at(InitStep::OpenCellDirectory))?;
    let volumes = volumes.map_err(at(InitStep::OpenVolumes))?;
    let writable = Writable::Directory { root, own, volumes, sized: layout.is_in_place() };
    prefer_as_victim(&proc).map_err(at(InitStep::PreferAsVictim))?;
    let io = open_io(&proc);
    drop_privileges(params, &proc)?;
    drop(proc);

    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(InitStep::SealMemory))?;
    let for_programs = seal(rules(params, layout)?)?;
    let own = allow(rules(params, layout)?, Path::new("/proc"), FileAccess::Read)?;
    let own = seal(allow(own, layout.root(), FileAccess::All)?)?;
    rustix::thread::set_no_new_privs(true).map_err(at(InitStep::GiveUpNewPrivileges))?;
    sandbox_sys::landlock::restrict_self(own.as_fd()).map_err(at(InitStep::EnterLandlockRules))?;
    let filter = params.filters.choose(rootfs::sockets_shown(&params.spec.mounts));
    sandbox_sys::seccomp::install(filter).map_err(at(InitStep::InstallFilter))?;
    Ok(Locked { writable, outgoing, park: None, terminal: None, children, landlock: Some(for_programs), groups, io })
}

/// The rules for programs: read and execute the system and the mounts of the cell, write in the cell's directories, and
/// nothing else. No signals or abstract sockets to processes outside the program's process tree.
fn rules(params: &InitParams<'_>, layout: &CellLayout) -> Result<LandlockRules, StepError> {
    let mut rules = LandlockRules::new().map_err(at(InitStep::MakeLandlockRules))?;
    if layout.is_in_place() {
        rules = allow(rules, Path::new("/"), FileAccess::Read)?;
        rules = allow(rules, Path::new("/dev"), FileAccess::Device)?;
        for place in layout.writable().chain([Path::new("/dev/shm")]) {
            rules = allow(rules, place, FileAccess::All)?;
        }
        return Ok(rules);
    }
    for path in rootfs::system_paths().filter(|path| path.exists()) {
        rules = allow(rules, &path, FileAccess::Read)?;
    }
    for path in PROC.map(|name| Path::new("/proc").join(name)).iter().filter(|path| path.exists()) {
        rules = allow(rules, path, FileAccess::Read)?;
    }
    for path in ETC.map(Path::new).into_iter().filter(|path| path.exists()) {
        rules = allow(rules, path, FileAccess::Read)?;
    }
    for path in rootfs::device_paths().filter(|path| path.exists()) {
        rules = allow(rules, &path, FileAccess::Device)?;
    }
    for mount in &params.spec.mounts {
        let access = if mount.writable { FileAccess::All } else { FileAccess::Read };
        // Like a mount: the source was checked under this name, and must not be redirected.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let source = rustix::fs::openat2(CWD, &mount.source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let source = source.map_err(shown(&mount.source))?;
        rules = rules.allow_at(&source, access).map_err(shown(&mount.source))?;
    }
    for place in layout.writable() {
        rules = allow(rules, place, FileAccess::All)?;
    }
    Ok(rules)
}

fn shown(path: &Path) -> impl FnOnce(Errno) -> StepError {
    at(InitStep::Show(named(path)))
}

fn allow(rules: LandlockRules, path: &Path, access: FileAccess) -> Result<LandlockRules, StepError> {
    rules.allow(path, access).map_err(shown(path))
}

fn seal(rules: LandlockRules) -> Result<OwnedFd, StepError> {
    rules.seal().map_err(at(InitStep::MakeLandlockRules))
}
