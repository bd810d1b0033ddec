//! The layers of isolation, by the names that results, errors and `doctor` use.

use serde::{Deserialize, Serialize};

/// One layer of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// User namespace: ids and capabilities mean nothing outside.
    User,
    /// PID namespace: no process outside can be seen or signalled.
    Pid,
    /// Mount namespace with a dedicated root file system.
    Mount,
    /// Network namespace.
    Net,
    /// IPC namespace.
    Ipc,
    /// UTS namespace: a dedicated host name.
    Uts,
    /// Cgroup namespace: the host's cgroup tree is invisible.
    Cgroup,
    /// System call filter.
    Seccomp,
    /// Landlock file-system and scope rules.
    Landlock,
    /// Memory limit by cgroup.
    Memory,
    /// Process limit by cgroup.
    Pids,
    /// CPU share by cgroup.
    Cpu,
}

impl Layer {
    /// Every layer, in the order in which results list them.
    pub const ALL: [Self; 12] = [
        Self::User,
        Self::Pid,
        Self::Mount,
        Self::Net,
        Self::Ipc,
        Self::Uts,
        Self::Cgroup,
        Self::Seccomp,
        Self::Landlock,
        Self::Memory,
        Self::Pids,
        Self::Cpu,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pid => "pid",
            Self::Mount => "mount",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Cgroup => "cgroup",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// What it protects, for `doctor`.
    #[must_use]
    pub fn purpose(self) -> &'static str {
        match self {
            Self::User => "ids and capabilities mean nothing outside the cell",
            Self::Pid => "processes outside are invisible; all processes inside end together",
            Self::Mount => "a private root file system, read-only except for the cell's directories",
            Self::Net => "no network access except what the request allows",
            Self::Ipc => "no shared memory or message queues with others",
            Self::Uts => "the host name is hidden",
            Self::Cgroup => "the host's cgroups are hidden",
            Self::Seccomp => "only listed system calls are allowed",
            Self::Landlock => "a second check on access to files, signals and sockets",
            Self::Memory => "the kernel enforces the memory limit",
            Self::Pids => "the kernel enforces the process limit",
            Self::Cpu => "the kernel enforces the CPU share",
        }
    }

    /// The consequence for runs if the layer is missing and not required.
    #[must_use]
    pub fn without_it(self) -> &'static str {
        match self {
            Self::Landlock => "only mounts restrict access to files",
            Self::Memory => {
                "memory and CPU time are sampled every 10 ms instead; a program can briefly exceed the limits"
            }
            Self::Pids => "a resource limit of the cell's user applies instead; whether it was reached is an estimate",
            Self::Cpu => "a program can use every CPU; --cpus is refused",
            Self::Seccomp => "runs are refused: the layer is required",
            _ => "runs are refused unless reduced isolation is enabled",
        }
    }

    /// How to provide it on a host that lacks it.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::User | Self::Pid | Self::Mount | Self::Net | Self::Ipc | Self::Uts | Self::Cgroup => {
                "run as root, or allow unprivileged user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 \
                 (Debian), sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); in a container, \
                 start it with --security-opt seccomp=unconfined --cap-add SYS_ADMIN, or do without namespaces: \
                 --isolation reduced (SANDBOX_ISOLATION=reduced)"
            }
            Self::Seccomp => "use a kernel built with CONFIG_SECCOMP_FILTER",
            Self::Landlock => {
                "use Linux 5.13 or later with landlock in its list of security modules (lsm=landlock,… on the kernel command line)"
            }
            Self::Memory | Self::Pids | Self::Cpu => {
                "run as root, or with a delegated cgroup: systemd-run --user --scope -p Delegate=yes sandbox-run …"
            }
        }
    }
}

impl std::str::FromStr for Layer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|layer| layer.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|layer| layer.name()).collect();
            format!("unknown isolation layer '{name}': expected one of {}", names.join(", "))
        })
    }
}

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LayerSet(u16);

impl LayerSet {
    /// The layers that every run requires by default.
    #[must_use]
    pub fn required_by_default() -> Self {
        [Layer::User, Layer::Pid, Layer::Mount, Layer::Net, Layer::Ipc, Layer::Uts, Layer::Cgroup, Layer::Seccomp]
            .into_iter()
            .collect()
    }

    /// The layers that every run requires where the operator has allowed reduced isolation.
    #[must_use]
    pub fn required_at_least() -> Self {
        [Layer::Seccomp, Layer::Landlock].into_iter().collect()
    }

    /// Adds a layer.
    pub fn insert(&mut self, layer: Layer) {
        self.0 |= 1 << layer as u16;
    }

    /// Whether a layer is in the set.
    #[must_use]
    pub fn contains(self, layer: Layer) -> bool {
        self.0 & (1 << layer as u16) != 0
    }

    /// Both sets together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The layers of this set that `other` lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the sets have a layer in common.
    #[must_use]
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The layers, in the order of [`Layer::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Layer> {
        Layer::ALL.into_iter().filter(move |layer| self.contains(*layer))
    }
}

impl FromIterator<Layer> for LayerSet {
    fn from_iter<I: IntoIterator<Item = Layer>>(layers: I) -> Self {
        let mut set = Self::default();
        for layer in layers {
            set.insert(layer);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sets_agree() {
        for layer in Layer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
        }
        assert!("memroy".parse::<Layer>().is_err());
        let all: LayerSet = Layer::ALL.into_iter().collect();
        assert_eq!(all.iter().count(), 12);
        let missing = all.without(LayerSet::required_by_default());
        assert_eq!(missing.iter().collect::<Vec<_>>(), [Layer::Landlock, Layer::Memory, Layer::Pids, Layer::Cpu]);
    }
}
