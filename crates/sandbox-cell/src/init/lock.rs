//! The steps from a fork of the keeper to a locked cell.
//!
//! The order matters. Operations that need privileges over the namespaces (cgroups, network, mounts) come first. The
//! user namespace follows; in it init keeps a handful of capabilities over its own cell and none over anything else.
//! The filter comes last, because it forbids most of the preceding operations.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space};
use sandbox_sys::process::Namespaces;
use sandbox_sys::signal::{SignalFd, SignalSet};

use super::park::{self, Park};
use super::terminal::TerminalEnds;
use super::writable::Writable;
use super::{InitParams, network};
use crate::environment::{CellEnvironment, ZygoteParts};
use crate::identity::{self, acting_as};
use crate::landlock_rules::{FileAccess, LandlockRules};
use crate::layer::Layer;
use crate::rootfs;
use crate::spec::{CellSpec, Role};
use crate::stdio;
use crate::step::{InitStep, StepError, at};
use crate::wire::{self, FromInit, Received, ToInit};

/// The resources of a locked init.
pub(super) struct Locked<'a> {
    /// The directories that programs can write to.
    pub(super) writable: Writable<'a>,
    /// The gateway's sockets for the caller, or the descriptors with which a zygote enters, and the caller's end of the
    /// terminal, until they are sent.
    pub(super) outgoing: Vec<OwnedFd>,
    /// The waiting child of a zygote, if the cell is for one.
    pub(super) park: Option<Park>,
    /// The terminal that the program gets as its standard streams, if the cell has one.
    pub(super) terminal: Option<OwnedFd>,
    /// Reports when a child has ended.
    pub(super) children: SignalFd,
    /// The Landlock rules that programs enter.
    pub(super) landlock: Option<OwnedFd>,
    /// The cgroups that programs join.
    pub(super) groups: Vec<OwnedFd>,
    /// The I/O counters of init and its reaped children, where the kernel keeps them.
    pub(super) io: Option<File>,
}

/// The capabilities that init keeps, valid only inside its user namespace: kill, observe and become its programs, and
/// own the files that it creates for them.
const KEPT: CapabilitySet = CapabilitySet::KILL
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::DAC_OVERRIDE);

/// The capabilities with which a zygote enters its children's cells; its init needs them too.
pub(super) const TO_ENTER: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_CHROOT);

pub(super) fn lock<'a>(params: &InitParams<'a>) -> Result<Locked<'a>, StepError> {
    let children = begin(params)?;
    if params.has(Layer::Uts) && !matches!(params.environment, CellEnvironment::ZygoteNamespace(_)) {
        set_host_name().map_err(at(InitStep::SetHostName))?;
    }
    let limits = &params.spec.limits;
    let writable =
        rootfs::writable(limits.disk(), limits.inodes(), params.owner).map_err(at(InitStep::MakeWritable))?;
    let volumes: Result<Vec<_>, _> =
        params.spec.volumes.iter().map(|volume| rootfs::volume(volume, params.owner)).collect();
    let volumes = volumes.map_err(at(InitStep::MakeVolume))?;
    let all_processes = params.spec.disabled_layers().contains(Layer::Pid);
    let own = rootfs::OwnParts { writable: &writable, volumes: &volumes, all_processes };
    let template = match params.environment {
        CellEnvironment::ZygoteNamespace(ZygoteParts { template, .. }) => template,
        CellEnvironment::Namespaces { .. } | CellEnvironment::Reduced(_) => None,
    };
    let (proc, sockets) = if let Some(sockets) = template {
        (rootfs::complete_template(&params.spec.volumes, &own)?, sockets)
    } else {
        let host = !params.has(Layer::Mount);
        rootfs::enter(&rootfs::Parts::new(params.spec, params.environment.id_maps(), host), &own)?
    };
    let terminal = params.spec.terminal.map(|size| TerminalEnds::open(size, params.owner)).transpose()?;
    let Handover { groups, joined, gateway } = take_handover(params)?;

    prefer_as_victim(&proc).map_err(at(InitStep::PreferAsVictim))?;
    // Opened while this is still allowed: making init undumpable below hands its /proc entry to root.
    let io = open_io(&proc);
    drop_privileges(params, &proc)?;
    let namespaces = if let Role::Child(_) = params.spec.role { park::namespaces(&proc)? } else { vec![] };
    drop(proc);

    if params.has(Layer::Pid) {
        // Without a PID namespace the programs would survive init; init then kills them when its connection closes.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(at(InitStep::TieToKeeper))?;
    }
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(InitStep::SealMemory))?;
    let landlock = params.has(Layer::Landlock).then(|| landlock_rules(params.spec)).transpose();
    let landlock = landlock.map_err(at(InitStep::MakeLandlockRules))?;
    rustix::thread::set_no_new_privs(true).map_err(at(InitStep::GiveUpNewPrivileges))?;
    if params.has(Layer::Seccomp) {
        sandbox_sys::seccomp::install(params.filters.choose(sockets)).map_err(at(InitStep::InstallFilter))?;
    }
    let writable = Writable::Tmpfs { root: writable, volumes };
    let (park, outgoing) = if namespaces.is_empty() {
        (None, gateway)
    } else {
        let groups = joined.into_iter().chain(groups.iter().flat_map(OwnedFd::try_clone)).collect();
        let (park, outgoing) =
            Park::new(namespaces, landlock.as_ref(), groups).map_err(at(InitStep::MakePlaceForChild))?;
        (Some(park), outgoing)
    };
    let (terminal, master) = terminal.map(|TerminalEnds { master, slave }| (slave, master)).unzip();
    // The caller takes the last descriptor for it.
    let outgoing = outgoing.into_iter().chain(master).collect();
    Ok(Locked { writable, outgoing, park, terminal, children, landlock, groups, io })
}

/// Gives the UTS namespace of this process the name that programs see.
pub(crate) fn set_host_name() -> rustix::io::Result<()> {
    rustix::system::sethostname(b"sandbox")
}

/// The first step of every init: it releases everything that it has inherited.
pub(super) fn begin(params: &InitParams<'_>) -> Result<SignalFd, StepError> {
    let (network, user) = match params.environment {
        CellEnvironment::ZygoteNamespace(ZygoteParts { network, user, .. }) => (Some(network), user),
        CellEnvironment::Namespaces { .. } | CellEnvironment::Reduced(_) => (None, None),
    };
    let kept = params.environment.id_maps().iter().flatten().chain([params.socket]).chain(network).chain(user);
    let kept: Vec<_> = kept.map(AsFd::as_fd).collect();
    sandbox_sys::process::close_all_except(&kept).map_err(at(InitStep::CloseDescriptors))?;
    // Programs get their standard streams from the caller; init has none.
    stdio::let_go_of_all().map_err(at(InitStep::OpenDevNull))?;
    sandbox_sys::signal::reset(crate::keeper::IGNORED_SIGNALS);
    // The process of a zygote namespace ignores SIGCHLD, and init inherits that.
    sandbox_sys::signal::reset([libc::SIGCHLD]);
    SignalSet::all().block().map_err(at(InitStep::BlockSignals))?;
    // The kernel runs no crash handler on the host for a process with a limit of 1; a limit of 0 would only prevent
    // core files. The filter keeps programs from changing the limit.
    let core = Rlimit { current: Some(1), maximum: Some(1) };
    match rustix::process::setrlimit(Resource::Core, core) {
        // If the keeper inherited a limit of 0, only root can raise it; `doctor` reports that.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(StepError::new(InitStep::DisableCrashHandlers, errno)),
    }
    let children = SignalFd::new(&SignalSet::of(&[libc::SIGCHLD])).map_err(at(InitStep::WatchChildren))?;
    let _ = rustix::thread::set_name(c"sandbox-init");
    rustix::process::umask(Mode::from_raw_mode(0o022));
    if !params.has(Layer::Pid) {
        // Init adopts orphans, as it would in a PID namespace.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(at(InitStep::AdoptOrphans))?;
    }
    Ok(children)
}

/// If the host runs out of memory, cells are killed first. Set with privileges, this cannot be reverted without them.
pub(super) fn prefer_as_victim(proc: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, c"self/oom_score_adj", flags, Mode::empty())?;
    rustix::io::write(&file, b"1000").map(drop)
}

/// The bytes that init and its reaped children have read and written.
pub(super) fn open_io(proc: &OwnedFd) -> Option<File> {
    rustix::fs::openat(proc, c"self/io", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

/// The result of entering what the keeper has created.
pub(super) struct Handover {
    /// Cgroups for the program.
    pub(super) groups: Vec<OwnedFd>,
    /// Cgroups that init has joined.
    pub(super) joined: Vec<OwnedFd>,
    /// The sockets of a gateway.
    pub(super) gateway: Vec<OwnedFd>,
}

/// Enters the network namespace and the cgroups that the keeper has created meanwhile.
pub(super) fn take_handover(params: &InitParams<'_>) -> Result<Handover, StepError> {
    let mut buffer = [0; 64];
    let received =
        wire::receive(params.socket, &mut buffer, RecvFlags::empty()).map_err(at(InitStep::WaitForNetwork))?;
    let Received::Message(ToInit::Handover { init, back }, fds) = received else {
        return Err(StepError::new(InitStep::WaitForNetwork, Errno::PIPE));
    };
    let mut fds = fds.into_iter();
    match params.environment {
        CellEnvironment::Namespaces { .. } => {
            let net = fds.next().ok_or(StepError::new(InitStep::WaitForNetwork, Errno::PIPE))?;
            move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(at(InitStep::EnterNetwork))?;
        }
        CellEnvironment::ZygoteNamespace(ZygoteParts { network, .. }) => {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(at(InitStep::EnterNetwork))?;
        }
        CellEnvironment::Reduced(_) => {}
    }
    // A network that is not dedicated to the cell is left unchanged.
    let gateway = if params.has(Layer::Net) { network::set_up(&params.spec.network)? } else { vec![] };
    let joined: Vec<OwnedFd> = fds.by_ref().take(usize::from(init)).collect();
    for group in &joined {
        rustix::io::write(group, b"0").map_err(at(InitStep::JoinCgroup))?;
    }
    let mut groups: Vec<OwnedFd> = fds.collect();
    let back = groups.split_off(groups.len().saturating_sub(usize::from(back)));
    if params.has(Layer::Cgroup) {
        let join = |groups: &[OwnedFd]| groups.iter().try_for_each(|group| rustix::io::write(group, b"0").map(drop));
        // The roots of a cgroup namespace are the cgroups of its creator. So init joins the program's cgroups for a
        // moment, because otherwise the program would see their names. It must not stay there, because of the CPU
        // share.
        if !back.is_empty() {
            join(&groups).map_err(at(InitStep::JoinProgramCgroup))?;
        }
        sandbox_sys::process::unshare(params.alone, Namespaces::CGROUP).map_err(at(InitStep::MakeCgroupNamespace))?;
        join(&back).map_err(at(InitStep::LeaveProgramCgroup))?;
    }
    Ok(Handover { groups, joined, gateway })
}

/// Leaves the keeper's user namespace for one in which only the cell's ids exist, and keeps next to no capability even
/// there.
pub(super) fn drop_privileges(params: &InitParams<'_>, proc: &OwnedFd) -> Result<(), StepError> {
    // An unprivileged keeper cannot drop supplementary groups. They then still apply to files, but the cell sees only
    // those of the system.
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) => {}
        Err(Errno::PERM) if params.program_ids.is_none() => {}
        Err(errno) => return Err(StepError::new(InitStep::DropGroups, errno)),
    }
    let ready_made = match params.environment {
        CellEnvironment::ZygoteNamespace(ZygoteParts { user, .. }) => user,
        CellEnvironment::Namespaces { .. } | CellEnvironment::Reduced(_) => None,
    };
    if let Some(user) = ready_made {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
            .map_err(at(InitStep::MakeUserNamespace))?;
    } else if params.has(Layer::User) {
        // The kernel also charges a user's resources in a namespace to the namespace's owner, in the parent namespace.
        // The owner is the cell's user: if it were the host's root, root would run out of message queues, signals and
        // timers.
        let make = || sandbox_sys::process::unshare(params.alone, Namespaces::USER);
        params
            .init_ids
            .map_or_else(make, |(owner, _)| acting_as(owner, make))
            .map_err(at(InitStep::MakeUserNamespace))?;
    }
    if params.environment.asks_for_ids(params.spec) {
        ask_for_ids(params)?;
    }
    if params.has(Layer::User) {
        if params.program_ids.is_some() {
            take_ids((0, 0))?;
        }
        if ready_made.is_none() {
            // The kernel itself refuses nested user namespaces, even without the filter.
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let nested = rustix::fs::openat(proc, c"sys/user/max_user_namespaces", flags, Mode::empty());
            nested.and_then(|file| rustix::io::write(&file, b"0")).map_err(at(InitStep::ForbidNestedNamespaces))?;
        }
    } else if let Some(ids) = params.init_ids {
        // When root changes to another user id, it loses its capabilities unless it asks to keep them.
        rustix::thread::set_keep_capabilities(true).map_err(at(InitStep::KeepCapabilities))?;
        take_ids(ids)?;
        let mut sets = rustix::thread::capabilities(None).map_err(at(InitStep::ReadCapabilities))?;
        sets.effective = sets.permitted;
        rustix::thread::set_capabilities(None, sets).map_err(at(InitStep::KeepCapabilities))?;
        rustix::thread::set_keep_capabilities(false).map_err(at(InitStep::KeepCapabilities))?;
    }

    rustix::thread::clear_ambient_capability_set().map_err(at(InitStep::DropAmbientCapabilities))?;
    let to_enter = if params.spec.role == Role::Zygote { TO_ENTER } else { CapabilitySet::empty() };
    if !cannot_execute(params) {
        empty_bounding_set(params, to_enter)?;
    }
    let held = rustix::thread::capabilities(None).map_err(at(InitStep::ReadCapabilities))?.permitted;
    // Without namespaces, init has at most the capabilities of its container.
    let kept = if params.environment.is_reduced() { KEPT.intersection(held) } else { KEPT.union(to_enter) };
    let kept = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, kept).map_err(at(InitStep::DropCapabilities))
}

/// Has the keeper assign the ids of the cell's user namespace.
fn ask_for_ids(params: &InitParams<'_>) -> Result<(), StepError> {
    wire::send(params.socket, &FromInit::NeedsMap, &[], SendFlags::empty()).map_err(at(InitStep::AskForIds))?;
    let mut buffer = [0; 64];
    match wire::receive(params.socket, &mut buffer, RecvFlags::empty()).map_err(at(InitStep::WaitForIds))? {
        Received::Message(ToInit::Mapped, _) => Ok(()),
        _ => Err(StepError::new(InitStep::WaitForIds, Errno::PIPE)),
    }
}

/// Whether the filter keeps this init from executing a program, and from creating a process that could. The bounding set
/// then has no effect on init: it limits the capabilities that are gained by executing a file. A zygote's child enters the
/// user namespace with a separate bounding set, and empties that itself.
fn cannot_execute(params: &InitParams<'_>) -> bool {
    matches!(params.spec.role, Role::Child(_)) && params.has(Layer::Seccomp)
}

/// Empties the bounding set, except for these capabilities.
fn empty_bounding_set(params: &InitParams<'_>, except: CapabilitySet) -> Result<(), StepError> {
    for capability in CapabilitySet::all().difference(except).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Newer capabilities are unknown to older kernels.
            Ok(()) | Err(Errno::INVAL) => {}
            // Without namespaces this may need a missing privilege. The capabilities are dropped in any case.
            Err(Errno::PERM) if params.environment.is_reduced() => break,
            Err(errno) => return Err(StepError::new(InitStep::EmptyBoundingSet, errno)),
        }
    }
    Ok(())
}

fn take_ids(ids: (u32, u32)) -> Result<(), StepError> {
    identity::take(ids).map_err(at(InitStep::TakeIds))
}

/// The second wall around files: read and execute below the cell's root, write only in its writable directories,
/// nothing elsewhere. It also blocks signals and abstract sockets to processes outside the program's process tree.
fn landlock_rules(spec: &CellSpec) -> Result<OwnedFd, Errno> {
    let mut rules = LandlockRules::new()?.allow(Path::new("/"), FileAccess::Read)?;
    let mounts = spec.mounts.iter().filter(|mount| mount.writable).map(|mount| mount.target.as_path());
    let volumes = spec.volumes.iter().map(|volume| volume.target.as_path());
    for path in rootfs::writable_dirs().map(Path::new).into_iter().chain(mounts).chain(volumes) {
        rules = rules.allow(path, FileAccess::All)?;
    }
    rules.allow(Path::new("/dev"), FileAccess::Device)?.seal()
}

impl Locked<'_> {
    /// Reports that the cell is locked, and sends the descriptors for the caller or the zygote.
    pub(super) fn ready(&mut self, params: &InitParams<'_>) -> rustix::io::Result<()> {
        let outgoing = std::mem::take(&mut self.outgoing);
        let fds: Vec<_> = outgoing.iter().map(AsFd::as_fd).collect();
        let ready = FromInit::Ready { landlock: self.landlock.is_some() };
        wire::send(params.socket.as_fd(), &ready, &fds, SendFlags::empty())
    }
}
