//! Creating cells: what a keeper needs for it, and in which order it happens.
//!
//! Privileges: as root the keeper stays in the host's user namespace, because it needs root to give each cell dedicated
//! ids. As an ordinary user it first creates a user namespace in which it is root, and continues in the same way. The
//! keeper itself mounts nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal};
use sandbox_sys::process::{Child, Namespaces, SingleThreaded, fork_into};
use sandbox_sys::seccomp::Instruction;

use super::ids::{CellIds, Ids};
use super::networks::{Networks, open_here};
use super::privilege::{can_assign_ids, enter_user_namespace, is_privileged, namespaces};
use super::supervise::{BootPhase, CellEntry, CellState};
use super::user_namespaces::NamespaceIds;
use super::zygote_namespace::{InitOrder, ZygoteNamespace, ZygoteNamespaceParams};
use crate::cgroup::{Cgroup, CgroupTree};
use crate::environment::CellEnvironment;
use crate::error::Failure;
use crate::init;
use crate::layer::{Layer, LayerSet};
use crate::reduced::{CellsDirectory, SWEEP_AGE};
use crate::rootfs;
use crate::spec::{CellSpec, Mount, Network, Role};
use crate::syscalls::{self, EntryKey, Sockets};
use crate::wire::{self, Sources, ToInit};
use sandbox_base::wait::is_readable;

/// Everything that is needed to create cells.
pub(super) struct CellFactory {
    pub(super) alone: SingleThreaded,
    pub(super) tree: CgroupTree,
    pub(super) ids: Ids,
    /// The compiled syscall filters so far, by the sockets that they allow.
    filters: Vec<(Sockets, Vec<Instruction>)>,
    /// A user namespace in which no id exists that owns a file on the host, created when first needed.
    unowned: Option<OwnedFd>,
    /// The host's /proc, through which id maps are written.
    pub(super) proc: OwnedFd,
    /// The Landlock version of the kernel; 0 if it has none.
    pub(super) landlock: u32,
    /// Whether cells can have namespaces, or why not.
    pub(super) namespaces: Result<(), Failure>,
    /// Whether that was tried to the end.
    pub(super) tried: bool,
    /// The directory of cells without namespaces, created when first needed.
    pub(super) directory: Option<CellsDirectory>,
    /// The network namespace that the keeper was started in; it moves to another with its first cell.
    net: OwnedFd,
    /// The network namespaces of cells.
    networks: Networks,
    /// Whether this is a container that was created for one cell: all paths are the usual ones.
    pub(super) contained: bool,
    /// The host paths that cells may mount; `None` means any.
    sources: Option<Sources>,
    /// Processes to be reaped when they have ended.
    pub(super) leaving: Vec<Child>,
    /// The process that started this keeper.
    caller: i32,
    /// When to search again for directories of dead keepers.
    pub(super) sweep_again: Option<Instant>,
}

/// A cell's process and the resources that belong to it.
struct MadeCell {
    group: Cgroup,
    child: Child,
    /// The connection to init.
    init: OwnedFd,
    boot: BootPhase,
    /// The key with which a zygote enters, if the cell is in a zygote's namespaces.
    key: Option<EntryKey>,
    /// The namespaces that were created with it, if it is the cell of a zygote.
    zygote_namespace: Option<ZygoteNamespace>,
}

impl CellFactory {
    /// Determines the features of the host, before a cell is requested. Creates nothing that outlives this process.
    pub(super) fn open(alone: SingleThreaded) -> Result<Self, Failure> {
        let tree = CgroupTree::locate();
        let privileged = is_privileged();
        let namespaces = if privileged { Ok(()) } else { enter_user_namespace(alone) };
        let ids = Ids::claim(privileged || (namespaces.is_err() && can_assign_ids()))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::openat(CWD, c"/proc", flags, Mode::empty());
        let proc = proc.map_err(|e| Failure::os("cannot open /proc", e))?;
        let net = open_here().map_err(|e| Failure::os("cannot open the host's network", e))?;
        Ok(Self {
            alone,
            tree,
            ids,
            filters: vec![],
            unowned: None,
            proc,
            net,
            networks: Networks::new(4),
            landlock: sandbox_sys::landlock::abi_version(),
            namespaces,
            tried: false,
            directory: None,
            contained: false,
            sources: None,
            leaving: vec![],
            caller: rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
            sweep_again: None,
        })
    }

    /// Prepares what the first cell will probably need, while the caller finds out what it wants. A keeper that is not
    /// privileged could not come back from the namespace of a cell.
    pub(super) fn with_first_cell_prepared(mut self) -> Self {
        if self.namespaces.is_ok() && is_privileged() {
            self.networks.prepare(self.alone, &self.net);
        }
        self.filter(Sockets { internet: false, named: true });
        self
    }

    /// Records that a launcher started this keeper, and which killed keeper it replaces, if any.
    pub(super) fn launched(&mut self, caller: i32, predecessor: Option<&str>) {
        self.caller = caller;
        if let Some(predecessor) = predecessor {
            self.tree.succeed(predecessor);
            // The directory of a keeper that was just killed is still too young to be swept.
            self.sweep_again = Some(Instant::now() + 2 * SWEEP_AGE);
        }
    }

    /// Limits the host paths that cells may mount and, with `lock`, the system calls of this process and its
    /// descendants. Only the first call has an effect.
    pub(super) fn confine(&mut self, sources: Sources, lock: bool) -> rustix::io::Result<()> {
        if self.sources.is_none() && lock {
            rustix::thread::set_no_new_privs(true)?;
            sandbox_sys::seccomp::install(&syscalls::compile(&syscalls::policy_of_keeper()))?;
        }
        self.sources.get_or_insert(sources);
        Ok(())
    }

    /// Whether [`Self::confine`] was called.
    pub(super) fn is_confined(&self) -> bool {
        self.sources.is_some()
    }

    fn check_source(&self, source: &Path, writable: bool) -> Result<(), Failure> {
        let Some(sources) = &self.sources else { return Ok(()) };
        let below = |allowed: &Vec<std::path::PathBuf>| allowed.iter().any(|path| source.starts_with(path));
        let plain = source.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        if plain && (below(&sources.writable) || (!writable && below(&sources.readable))) {
            return Ok(());
        }
        let what = format!("cannot mount {}", source.display());
        Err(Failure::of_request(what, "it is outside the paths that the keeper may expose"))
    }

    /// Refuses mounts that an existing cell may not get.
    pub(super) fn check_late_mounts(&self, spec: &CellSpec, mounts: &[Mount]) -> Result<(), Failure> {
        for (n, mount) in mounts.iter().enumerate() {
            let taken = mounts[..n].iter().any(|other| other.target == mount.target);
            if mount.writable || mount.foreign || taken || !spec.slots.contains(&mount.target) {
                let what = format!("cannot mount {} at {}", mount.source.display(), mount.target.display());
                return Err(Failure::of_request(what, "the cell has no slot at this path"));
            }
            self.check_source(&mount.source, false)?;
        }
        Ok(())
    }

    /// Refuses a specification that is invalid or not allowed, whatever the backend.
    pub(super) fn check_spec(&self, spec: &CellSpec) -> Result<(), Failure> {
        if !spec.limits.is_valid() {
            return Err(Failure::of_request("cannot create the cell", "a limit is out of bounds"));
        }
        if let Network::Gateway(gateway) = &spec.network
            && !gateway.is_valid()
        {
            return Err(Failure::of_request("cannot create the cell", "invalid gateway port"));
        }
        if spec.terminal.is_some() && spec.role != Role::Plain {
            return Err(Failure::of_request("cannot create the cell", "a zygote's cell cannot have a terminal"));
        }
        rootfs::check_targets(&spec.mounts, &spec.volumes, &spec.slots)?;
        spec.mounts.iter().try_for_each(|mount| self.check_source(&mount.source, mount.writable))?;
        spec.image.as_ref().map_or(Ok(()), |image| self.check_source(image, false))?;
        #[cfg(feature = "canary")]
        self.check_disabled_layers(spec)?;
        Ok(())
    }

    /// Refuses a specification that this host cannot satisfy.
    fn check(&self, spec: &CellSpec, reduced: bool) -> Result<LayerSet, Failure> {
        self.check_spec(spec)?;
        // A namespace that cannot be created is an error later; this is about the layers that may be absent.
        let mut layers = self.tree.layers().union(LayerSet::required_by_default());
        if reduced {
            layers = layers.without(namespaces());
            self.check_reduced(spec)?;
        }
        if self.landlock > 0 {
            layers.insert(Layer::Landlock);
        }
        let layers = layers.without(spec.disabled_layers());
        match spec.required.without(spec.disabled_layers()).without(layers).iter().next() {
            None => Ok(layers),
            Some(Layer::Landlock) => Err(Failure::missing(Layer::Landlock, "the kernel does not support it")),
            Some(layer) => Err(Failure::missing(layer, self.tree.why_missing(layer))),
        }
    }

    /// Refuses disabled layers where a test may not disable them: a confined keeper serves others.
    #[cfg(feature = "canary")]
    fn check_disabled_layers(&self, spec: &CellSpec) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::of_request("cannot disable a layer of isolation", why));
        if spec.disabled_layers().is_empty() {
            return Ok(());
        }
        if self.sources.is_some() {
            return refuse("the keeper is confined");
        }
        for layer in [Layer::User, Layer::Pid, Layer::Net] {
            if spec.disabled_layers().contains(layer) && matches!(self.ids, Ids::Single) {
                return refuse(&format!("cells of an unprivileged keeper need the {} namespace", layer.name()));
            }
        }
        if spec.disabled_layers().contains(Layer::Net) && matches!(spec.network, Network::Gateway(_)) {
            return refuse("a gateway needs the net layer");
        }
        if spec.disabled_layers().contains(Layer::Mount) && spec.image.is_some() {
            return refuse("an image needs the mount layer");
        }
        Ok(())
    }

    /// Creates a cell; init is still locking itself when this returns. The cell of a zygote's child is created in
    /// `zygote_namespace`.
    pub(super) fn make(
        &mut self,
        number: u64,
        spec: CellSpec,
        caller: OwnedFd,
        zygote_namespace: Option<&ZygoteNamespace>,
    ) -> Result<CellEntry, Failure> {
        let began = Instant::now();
        self.tree.prepare(self.caller);
        let reduced = self.is_reduced(&spec)?;
        let mut layers = self.check(&spec, reduced)?;
        if spec.role == Role::Zygote {
            layers = layers.without([Layer::User, Layer::Pid, Layer::Landlock].into_iter().collect());
        }
        if !layers.contains(Layer::Pid) && zygote_namespace.is_none() && spec.role != Role::Zygote {
            // The keeper adopts and kills the processes that such a cell leaves when its init ends.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
                .map_err(|e| Failure::os("cannot adopt a cell's processes", e))?;
        }
        let ids = self
            .ids
            .take()
            .ok_or_else(|| Failure::new("cannot create the cell", "the ids for 2048 concurrent cells are in use"))?;
        match self.make_in(number, &spec, ids, layers, reduced, zygote_namespace) {
            Ok(MadeCell { group, child, init, boot, key, zygote_namespace }) => {
                let counts_cpu = self.tree.counts_cpu();
                let (fresh, pending, state, root) = (true, None, CellState::Idle, None);
                Ok(CellEntry {
                    caller,
                    init,
                    child,
                    group,
                    ids,
                    spec,
                    layers,
                    counts_cpu,
                    began,
                    fresh,
                    key,
                    zygote_namespace,
                    root,
                    alone: self.alone,
                    boot,
                    pending,
                    state,
                })
            }
            Err((failure, gone)) => {
                self.clear(number);
                // The ids of a process that does not die are never reused.
                if gone {
                    self.ids.give_back(ids);
                }
                Err(failure)
            }
        }
    }

    /// Prepares the environment of a cell and creates its process in it. An error says whether everything was removed.
    fn make_in(
        &mut self,
        number: u64,
        spec: &CellSpec,
        ids: CellIds,
        layers: LayerSet,
        reduced: bool,
        zygote_namespace: Option<&ZygoteNamespace>,
    ) -> Result<MadeCell, (Failure, bool)> {
        let nothing_left = |failure| (failure, true);
        if reduced {
            let layout = self.lay_out(number, spec, ids).map_err(nothing_left)?;
            return self.make_process(number, spec, ids, layers, CellEnvironment::Reduced(&layout));
        }
        if spec.role == Role::Zygote {
            let own = self.make_zygote_namespace(spec, ids).map_err(nothing_left)?;
            return match self.make_process(number, spec, ids, layers, CellEnvironment::ZygoteNamespace(&own)) {
                Ok(made) => Ok(MadeCell { zygote_namespace: Some(own), ..made }),
                Err(failed) => {
                    self.leaving.push(own.end());
                    Err(failed)
                }
            };
        }
        if let Some(zygote_namespace) = zygote_namespace {
            return self.make_process(number, spec, ids, layers, CellEnvironment::ZygoteNamespace(zygote_namespace));
        }
        let id_maps = self.id_maps(&spec.mounts, ids).map_err(nothing_left)?;
        self.make_process(number, spec, ids, layers, CellEnvironment::Namespaces { id_maps: &id_maps })
    }

    /// Creates a cell's process. An error says whether everything was removed.
    fn make_process(
        &mut self,
        number: u64,
        spec: &CellSpec,
        ids: CellIds,
        layers: LayerSet,
        environment: CellEnvironment<'_, &ZygoteNamespace>,
    ) -> Result<MadeCell, (Failure, bool)> {
        let no_group = |e| Failure::os("cannot create a cgroup for the cell", e);
        let no_process = |e: Errno| Failure::os("cannot create the cell's namespaces", e).with_fix(Layer::Pid.fix());
        let undo = |child: &Child, group: Option<&Cgroup>, failure: Failure| {
            let gone = kill_and_wait(child);
            let _ = group.map(Cgroup::remove);
            (failure, gone)
        };
        // On v2 init is created in its cgroup; on v1 the cgroup is created while init is busy.
        let early = if self.tree.has_birthplace() {
            Some(
                self.tree
                    .create(number, &spec.limits, spec.disabled_layers())
                    .map_err(|error| (no_group(error), true))?,
            )
        } else {
            None
        };
        let program_ids = if layers.contains(Layer::User) { ids.program() } else { ids.init().map(|_| ids.owner()) };
        let born = wire::pair().and_then(|(ours, theirs)| {
            let birthplace = early.as_ref().and_then(Cgroup::birthplace);
            let environment = match environment {
                CellEnvironment::ZygoteNamespace(zygote_namespace) => {
                    let order = InitOrder {
                        spec: spec.clone(),
                        owner: ids.owner(),
                        user: NamespaceIds { map: ids.map(), owner: ids.init().map(|(uid, _)| uid) },
                        without: without(layers),
                        init_ids: ids.init(),
                        program_ids,
                        duties: self.duties(spec, layers),
                    };
                    return zygote_namespace.make(&order, theirs.as_fd(), birthplace).map(|child| (child, ours));
                }
                CellEnvironment::Namespaces { id_maps } => CellEnvironment::Namespaces { id_maps },
                CellEnvironment::Reduced(layout) => CellEnvironment::Reduced(layout),
            };
            let filters = self.filters_of(spec, environment.is_reduced());
            let params = init::InitParams {
                alone: self.alone,
                socket: &theirs,
                spec,
                environment,
                owner: ids.owner(),
                without: without(layers),
                init_ids: ids.init(),
                program_ids,
                filters: &filters,
                duties: self.duties(spec, layers),
            };
            // Mounts are private even where the cell sees the host's directories.
            let private = if environment.is_reduced() { Namespaces::NONE } else { Namespaces::MOUNT };
            let namespaces =
                [(Layer::Pid, Namespaces::PID), (Layer::Ipc, Namespaces::IPC), (Layer::Uts, Namespaces::UTS)]
                    .into_iter()
                    .filter(|(layer, _)| layers.contains(*layer))
                    .fold(private, |all, (_, namespace)| all.and(namespace));
            fork_into(self.alone, namespaces, birthplace, || init::main(&params)).map(|child| (child, ours))
        });
        let (child, ours) = match born {
            Ok(born) => born,
            Err(errno) => {
                let _ = early.map(|group| group.remove());
                return Err((no_process(errno), true));
            }
        };
        // Init builds its root meanwhile.
        let group = match early.map_or_else(|| self.tree.create(number, &spec.limits, spec.disabled_layers()), Ok) {
            Ok(group) => group,
            Err(error) => return Err(undo(&child, None, no_group(error))),
        };
        if spec.network != Network::None
            && layers.contains(Layer::Memory)
            && let Err(error) = group.limit_sockets(spec.limits.memory())
        {
            return Err(undo(&child, Some(&group), no_group(error)));
        }
        let needs_network = matches!(environment, CellEnvironment::Namespaces { .. });
        if let Err(errno) = self.hand_over(&ours, &group, layers, needs_network.then_some((spec, &child))) {
            return Err(undo(&child, Some(&group), no_process(errno)));
        }
        let key = match environment {
            CellEnvironment::ZygoteNamespace(zygote_namespace) => Some(zygote_namespace.key),
            CellEnvironment::Namespaces { .. } | CellEnvironment::Reduced(_) => None,
        };
        let boot = if environment.asks_for_ids(spec) { BootPhase::Building } else { BootPhase::Locking };
        Ok(MadeCell { group, child, init: ours, boot, key, zygote_namespace: None })
    }

    /// The limits that init has to enforce because no cgroup does, except for disabled layers.
    fn duties(&self, spec: &CellSpec, layers: LayerSet) -> init::Duties {
        let present = layers.union(spec.disabled_layers());
        let own_user = layers.contains(Layer::User) || !matches!(self.ids, Ids::Single);
        init::Duties {
            memory: !present.contains(Layer::Memory),
            cpu_time: !self.tree.counts_cpu(),
            processes: match present.contains(Layer::Pids) {
                true => init::ProcessLimit::Elsewhere,
                // The container enforces it.
                false if self.contained => init::ProcessLimit::Elsewhere,
                false if own_user => init::ProcessLimit::ByUser,
                false => init::ProcessLimit::ByCounting,
            },
        }
    }

    /// The syscall filters that a cell may need.
    fn filters_of(&mut self, spec: &CellSpec, reduced: bool) -> init::Filters {
        if reduced && !self.contained {
            let own_ids = !matches!(self.ids, Ids::Single);
            let usual = syscalls::compile(&syscalls::policy_without_namespaces(own_ids));
            return init::Filters { no_named_sockets: usual.clone(), usual };
        }
        let internet = spec.network != Network::None;
        let foreign = spec.mounts.iter().any(|mount| mount.foreign);
        if spec.terminal.is_some() {
            let filter = |named| syscalls::compile(&syscalls::policy_with_terminals(Sockets { internet, named }));
            return init::Filters {
                usual: filter(true),
                no_named_sockets: if foreign { filter(false) } else { vec![] },
            };
        }
        let usual = self.filter(Sockets { internet, named: true });
        let no_named_sockets = if foreign { self.filter(Sockets { internet, named: false }) } else { vec![] };
        init::Filters { usual, no_named_sockets }
    }

    /// The compiled filter of a policy, from the cache if possible.
    fn filter(&mut self, sockets: Sockets) -> Vec<Instruction> {
        if let Some((_, known)) = self.filters.iter().find(|(of, _)| *of == sockets) {
            return known.clone();
        }
        let filter = syscalls::compile(&syscalls::policy(sockets));
        self.filters.push((sockets, filter.clone()));
        filter
    }

    /// For each writable mount, a user namespace that maps its owner to the cell's user. For each read-only mount that
    /// a caller chose, one that maps none of its owners. With a single id there is nothing to map: the owner is the
    /// cell's user.
    fn id_maps(&mut self, mounts: &[Mount], ids: CellIds) -> Result<Vec<Option<OwnedFd>>, Failure> {
        let map = |mount: &Mount| {
            if ids.program().is_none() || !(mount.writable || mount.foreign) {
                return Ok(None);
            }
            if !mount.writable {
                return Ok(self.unowned(ids).ok());
            }
            let what = || format!("cannot make {} writable", mount.source.display());
            let stat = rustix::fs::lstat(&mount.source).map_err(|e| Failure::os(what(), e))?;
            id_map(self.alone, &self.proc, (stat.st_uid, stat.st_gid), ids.owner())
                .map(Some)
                .map_err(|e| Failure::os(what(), e))
        };
        mounts.iter().map(map).collect()
    }

    /// A user namespace that contains only an id of this keeper, which owns nothing on a disk.
    fn unowned(&mut self, ids: CellIds) -> std::io::Result<OwnedFd> {
        if self.unowned.is_none() {
            self.unowned = Some(id_map(self.alone, &self.proc, ids.owner(), ids.owner())?);
        }
        self.unowned.as_ref().map_or_else(|| Err(Errno::NOENT.into()), OwnedFd::try_clone)
    }

    /// A zygote namespace that contains every id that cells can have, for a zygote with these ids.
    fn make_zygote_namespace(&mut self, spec: &CellSpec, ids: CellIds) -> Result<ZygoteNamespace, Failure> {
        let failed = |errno: Errno| Failure::os("cannot create the namespaces of a zygote", errno);
        let key = EntryKey::random().map_err(failed)?;
        let internet = spec.network != Network::None;
        let zygote = |named| syscalls::compile(&syscalls::policy_of_zygotes(Sockets { internet, named }, key));
        // The programs of these cells have the filter of the zygote.
        let waiting_init = syscalls::compile(&syscalls::policy_of_waiting_init());
        let params = ZygoteNamespaceParams {
            map: &self.ids.map(),
            owner: ids.init().map(|(uid, _)| uid),
            children: init::Filters { usual: waiting_init.clone(), no_named_sockets: waiting_init },
            zygote: init::Filters { usual: zygote(true), no_named_sockets: zygote(false) },
            key,
        };
        ZygoteNamespace::start(self.alone, &self.proc, &params).map_err(failed)
    }

    /// Hands init its network namespace, if it gets one from here, and, on v1, its cgroups.
    fn hand_over(
        &mut self,
        init: &OwnedFd,
        group: &Cgroup,
        layers: LayerSet,
        needs_network: Option<(&CellSpec, &Child)>,
    ) -> rustix::io::Result<()> {
        let net = needs_network.map(|(spec, child)| self.network(spec, layers, child)).transpose()?;
        let joined_by_init = group.joined_by_init();
        let back = group.ways_back();
        let groups = joined_by_init.iter().chain(group.joined_by_program()).chain(back);
        let fds: Vec<_> = net.iter().map(AsFd::as_fd).chain(groups.map(AsFd::as_fd)).collect();
        let count = |files: &[std::fs::File]| u8::try_from(files.len()).unwrap_or(u8::MAX);
        let places = ToInit::Handover { init: count(joined_by_init), back: count(back) };
        match wire::send(init, &places, &fds, SendFlags::DONTWAIT) {
            // Init has already failed; the reason is in the receive queue.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            sent => sent,
        }
    }

    /// Releases the resources that were kept for later cells and exceed the limit now that a cell has ended.
    pub(super) fn trim(&mut self) {
        self.networks.trim();
    }

    /// The network namespace of a cell.
    fn network(&mut self, spec: &CellSpec, layers: LayerSet, child: &Child) -> rustix::io::Result<OwnedFd> {
        let copy = |net: &OwnedFd| net.try_clone().map_err(|_| Errno::MFILE);
        if !layers.contains(Layer::Net) {
            return copy(&self.net);
        }
        let network = self.networks.take(self.alone, spec)?;
        let namespace = copy(&network.namespace)?;
        self.networks.keep(network, child);
        Ok(namespace)
    }
}

/// Kills a process that never became a cell. Returns whether it is gone. Every other cell waits meanwhile, so a process
/// that does not die soon is not waited for.
pub(super) fn kill_and_wait(child: &Child) -> bool {
    const PATIENCE: Duration = Duration::from_millis(200);
    let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    // It may be a child of a zygote namespace, of which only the pidfd reports the end.
    let gone = is_readable(&[&child.pidfd], PATIENCE);
    let _ = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    gone
}

/// The layers that are not in this set.
fn without(layers: LayerSet) -> LayerSet {
    Layer::ALL.into_iter().collect::<LayerSet>().without(layers)
}

/// A user namespace that maps the ids `in_namespace` to the ids `on_host`, created by a short-lived process.
fn id_map(
    alone: SingleThreaded,
    proc: &OwnedFd,
    in_namespace: (u32, u32),
    on_host: (u32, u32),
) -> rustix::io::Result<OwnedFd> {
    let child = fork_into(alone, Namespaces::USER, None, rustix::event::pause)?;
    let pid = child.pid.as_raw_nonzero();
    let write = |file: &str, text: String| {
        let path = format!("{pid}/{file}");
        let file = rustix::fs::openat(proc, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes()).map(drop)
    };
    let namespace = write("uid_map", format!("{} {} 1", in_namespace.0, on_host.0))
        .and_then(|()| write("gid_map", format!("{} {} 1", in_namespace.1, on_host.1)))
        .and_then(|()| {
            rustix::fs::openat(proc, format!("{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        });
    kill_and_wait(&child);
    namespace
}
