//! The operator's settings, from the environment: defaults and caps of limits, limits of other stages, required layers, the
//! data directory, limits of output files, host paths that may be mounted.

use std::path::PathBuf;

use sandbox_backends::Backend;
use sandbox_base::limits::{Caps, LimitError, LimitKind, Limits, TABLE};
use sandbox_base::units::parse_size;
use sandbox_cell::archive::FileCaps;
use sandbox_cell::{Layer, LayerSet};
use sandbox_network::{DenyList, HostRule};

use crate::backend;
use crate::network::NetworkMode;
use crate::owner::Sharing;

/// The cap of a limit that has none.
const UNLIMITED: &str = "unlimited";

/// The variable that lists layers without which nothing may run.
const REQUIRE: &str = "SANDBOX_REQUIRE";

/// The variable that says whether runs may do without namespaces.
const ISOLATION: &str = "SANDBOX_ISOLATION";

/// The variable that names the directory for caches.
const DATA_DIR: &str = "SANDBOX_DATA_DIR";

/// The operator's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits for requests that do not set them.
    pub defaults: Limits,
    /// The most that requests may ask for.
    pub caps: Caps,
    /// What makes cells.
    pub backend: Backend,
    /// What must be there at least.
    pub isolation: Isolation,
    /// Layers that must be there too.
    pub also_required: LayerSet,
    /// Limits of compilers.
    pub compile: Limits,
    /// Limits of package installers.
    pub install: Limits,
    /// What may come back of the files that a program left.
    pub files: FileCaps,
    /// Directories of the host's that requests may ask to be shown, with all below them.
    pub volume_paths: Vec<PathBuf>,
    /// How far programs may reach at most.
    pub max_network: NetworkMode,
    /// Hosts that programs may reach, if their request allows them, though their addresses are not public.
    pub network_allow: Vec<HostRule>,
    /// What nothing may reach, besides what is never reached.
    pub network_deny: DenyList,
    /// The only hosts that installs may reach, besides the package indexes [default: any public host].
    pub install_hosts: Option<Vec<HostRule>>,
    /// Whether JSON requests may use named volumes, which all clients that know the name share.
    pub named_volumes: bool,
    /// What runs of different owners share.
    pub sharing: Sharing,
    /// Packages that warm interpreters import ahead, besides those that are known to be safe.
    pub preload: Vec<String>,
    /// How many bytes of compiled programs are kept.
    pub build_cache: u64,
    /// How many bytes of package environments are kept.
    pub package_cache: u64,
    /// How many bytes an image may have when it is unpacked.
    pub image_size: u64,
    /// Where caches, images and named volumes are kept; nowhere if there is no home directory.
    pub data_dir: Option<PathBuf>,
}

/// How much isolation every run must have. More is used wherever it can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Namespaces and the syscall filter.
    #[default]
    Full,
    /// Landlock and the syscall filter, where a host allows no namespaces.
    Reduced,
}

impl Isolation {
    /// The layers without which nothing runs.
    #[must_use]
    pub fn required(self) -> LayerSet {
        match self {
            Self::Full => LayerSet::required_by_default(),
            Self::Reduced => LayerSet::required_at_least(),
        }
    }
}

/// The variable that lets JSON requests use named volumes.
const NAMED_VOLUMES: &str = "SANDBOX_NAMED_VOLUMES";

/// The variable that says what runs of different owners share.
const SHARE: &str = "SANDBOX_SHARE";

/// The variable that lists packages to import ahead.
const PRELOAD: &str = "SANDBOX_PRELOAD";

/// The variable that lists directories that may be shown.
const VOLUME_PATHS: &str = "SANDBOX_VOLUME_PATHS";

/// The variable that says how far programs may reach.
const MAX_NETWORK: &str = "SANDBOX_MAX_NETWORK";

/// The variable that lists hosts that may be reached though they are not public.
const NETWORK_ALLOW: &str = "SANDBOX_NETWORK_ALLOW";

/// The variable that lists what may not be reached.
const NETWORK_DENY: &str = "SANDBOX_NETWORK_DENY";

/// The variable that lists the only hosts that installs may reach.
const INSTALL_HOSTS: &str = "SANDBOX_INSTALL_HOSTS";

/// The variables for limits of the stages before the run. All others of their limits are fixed.
const STAGES: [(&str, LimitKind); 6] = [
    ("SANDBOX_COMPILE_TIMEOUT", LimitKind::WallTime),
    ("SANDBOX_COMPILE_MEMORY", LimitKind::Memory),
    ("SANDBOX_COMPILE_DISK", LimitKind::Disk),
    ("SANDBOX_INSTALL_TIMEOUT", LimitKind::WallTime),
    ("SANDBOX_INSTALL_MEMORY", LimitKind::Memory),
    ("SANDBOX_INSTALL_DISK", LimitKind::Disk),
];

/// Limits of a stage that makes something.
fn stage_limits(wall_time: u64, bytes: u64) -> Limits {
    let mut limits = Limits::default();
    for (kind, value) in [
        (LimitKind::WallTime, wall_time),
        (LimitKind::Memory, bytes),
        (LimitKind::Disk, bytes),
        (LimitKind::FileSize, bytes),
        (LimitKind::Inodes, 400_000),
        (LimitKind::Cpus, 2_000),
        (LimitKind::Processes, 512),
        (LimitKind::OpenFiles, 4_096),
    ] {
        // These are within the bounds of the table, which is all that is checked here.
        let _ = limits.set(kind, value, &Caps::default());
    }
    limits
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            defaults: Limits::default(),
            caps: Caps::default(),
            backend: Backend::Native,
            isolation: Isolation::Full,
            also_required: LayerSet::default(),
            compile: stage_limits(60_000_000, 2 << 30),
            install: stage_limits(300_000_000, 4 << 30),
            files: FileCaps { count: 1_000, bytes: 16 << 20 },
            volume_paths: vec![],
            max_network: NetworkMode::Full,
            network_allow: vec![],
            network_deny: DenyList::default(),
            install_hosts: None,
            named_volumes: false,
            sharing: Sharing::None,
            preload: vec![],
            build_cache: 1 << 30,
            package_cache: 10 << 30,
            image_size: 8 << 30,
            data_dir: None,
        }
    }
}

/// Every invalid variable, each with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|(variable, why)| format!("{variable}: {why}")).collect::<Vec<_>>().join("; "))]
pub struct SettingsError(pub Vec<(String, String)>);

impl Settings {
    /// The layers without which nothing runs.
    #[must_use]
    pub fn required(&self) -> LayerSet {
        backend::required(&self.backend, self.isolation).union(self.also_required)
    }

    /// Whether other users than this one have to find their way through the data directory. If root makes cells, they have
    /// users of their own: with reduced isolation they see what is there without a mount, and the inits in a zygote's nest
    /// mount it without root's powers.
    #[must_use]
    pub fn passes_data_dir(&self, zygotes: bool) -> bool {
        (zygotes || self.isolation == Isolation::Reduced) && rustix::process::geteuid().is_root()
    }

    /// Reads the settings; `variable` gives the value of an environment variable. Requests may ask for anything that the
    /// operator does not cap.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        Self::read_with(variable, &Caps::default())
    }

    /// The same with caps for limits that the operator does not cap. They do not keep an operator from setting a higher
    /// default, and `unlimited` takes them away.
    pub fn read_with(variable: impl Fn(&str) -> Option<String>, usual: &Caps) -> Result<Self, SettingsError> {
        let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut settings = Self::default();
        let mut errors = vec![];
        let mut note = |name: &str, result: Result<(), LimitError>| {
            if let Err(error) = result {
                errors.push((name.to_owned(), error.to_string()));
            }
        };
        // Caps before defaults, which must respect them.
        for info in TABLE {
            if let Some(text) = get(info.cap_variable).filter(|text| text.trim() != UNLIMITED) {
                let lowered = info.kind.parse(&text).and_then(|value| settings.caps.lower(info.kind, value));
                note(info.cap_variable, lowered);
            }
        }
        for info in TABLE {
            if let Some(text) = get(info.default_variable) {
                let set = info.kind.parse(&text);
                let set = set.and_then(|value| settings.defaults.set(info.kind, value, &settings.caps));
                note(info.default_variable, set);
            }
        }
        settings.defaults.clamp(&settings.caps);
        for kind in TABLE.map(|info| info.kind).into_iter().filter(|kind| get(kind.info().cap_variable).is_none()) {
            let default = settings.defaults.get(kind).unwrap_or_default();
            note(kind.info().cap_variable, settings.caps.lower(kind, usual.most(kind).max(default)));
        }
        for (name, kind) in STAGES {
            if let Some(text) = get(name) {
                let limits = if name.contains("COMPILE") { &mut settings.compile } else { &mut settings.install };
                note(name, kind.parse(&text).and_then(|value| limits.set(kind, value, &Caps::default())));
            }
        }
        settings.read_owners(get, &mut errors);
        settings.read_choices(get, &mut errors);
        match backend::read(get) {
            Ok(backend) => settings.backend = backend,
            Err(error) => errors.push(error),
        }
        if let Some(text) = get(VOLUME_PATHS) {
            settings.volume_paths = std::env::split_paths(&text).collect();
        }
        for (name, value) in [
            ("SANDBOX_FILES", &mut settings.files.count),
            ("SANDBOX_FILES_SIZE", &mut settings.files.bytes),
            ("SANDBOX_BUILD_CACHE", &mut settings.build_cache),
            ("SANDBOX_PACKAGE_CACHE", &mut settings.package_cache),
            ("SANDBOX_IMAGE_SIZE", &mut settings.image_size),
        ] {
            match get(name).map(|text| parse_size(&text)) {
                None => {}
                Some(Ok(number)) => *value = number,
                Some(Err(error)) => errors.push((name.to_owned(), error.to_string())),
            }
        }
        if let Some(text) = get(MAX_NETWORK) {
            match NetworkMode::parse(text.trim()) {
                Ok(mode) => settings.max_network = mode,
                Err(why) => errors.push((MAX_NETWORK.to_owned(), why)),
            }
        }
        let mut hosts = |name: &str| {
            let text = get(name)?;
            let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty());
            match hosts.map(HostRule::parse).collect() {
                Ok(hosts) => Some(hosts),
                Err(why) => {
                    errors.push((name.to_owned(), why));
                    None
                }
            }
        };
        settings.network_allow = hosts(NETWORK_ALLOW).unwrap_or_default();
        settings.install_hosts = hosts(INSTALL_HOSTS);
        match get(NETWORK_DENY).map(|text| DenyList::parse(&text)) {
            None => {}
            Some(Ok(deny)) => settings.network_deny = deny,
            Some(Err(why)) => errors.push((NETWORK_DENY.to_owned(), why)),
        }
        if let Some(text) = get(REQUIRE) {
            match parse_layers(&text) {
                Ok(layers) => settings.also_required = layers,
                Err(why) => errors.push((REQUIRE.to_owned(), why)),
            }
        }
        let home =
            || get("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(get("HOME")?).join(".cache")));
        settings.data_dir = get(DATA_DIR).map(PathBuf::from).or_else(|| Some(home()?.join("sandbox-run")));
        if errors.is_empty() { Ok(settings) } else { Err(SettingsError(errors)) }
    }
}

impl Settings {
    /// Reads settings that have one of two values.
    fn read_choices(&mut self, get: impl Fn(&str) -> Option<String>, errors: &mut Vec<(String, String)>) {
        match get(ISOLATION).as_deref() {
            None | Some("full") => {}
            Some("reduced") => self.isolation = Isolation::Reduced,
            Some(other) => {
                errors.push((ISOLATION.to_owned(), format!("invalid value '{other}': expected full or reduced")));
            }
        }
        match get(NAMED_VOLUMES).as_deref() {
            None | Some("no") => {}
            Some("yes") => self.named_volumes = true,
            Some(other) => {
                errors.push((NAMED_VOLUMES.to_owned(), format!("invalid value '{other}': expected yes or no")));
            }
        }
    }

    /// Reads what runs of different owners have in common.
    fn read_owners(&mut self, get: impl Fn(&str) -> Option<String>, errors: &mut Vec<(String, String)>) {
        match get(SHARE).map(|text| Sharing::parse(text.trim())) {
            None => {}
            Some(Ok(sharing)) => self.sharing = sharing,
            Some(Err(why)) => errors.push((SHARE.to_owned(), why)),
        }
        if let Some(text) = get(PRELOAD) {
            match text.split(',').map(str::trim).map(module_name).collect() {
                Ok(names) => self.preload = names,
                Err(why) => errors.push((PRELOAD.to_owned(), why)),
            }
        }
    }
}

/// Reads the name of a module that can be imported.
fn module_name(name: &str) -> Result<String, String> {
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits { Ok(name.to_owned()) } else { Err(format!("invalid module name '{name}'")) }
}

/// Reads a list of layers, or `all`.
pub fn parse_layers(text: &str) -> Result<LayerSet, String> {
    if text.trim() == "all" {
        return Ok(Layer::ALL.into_iter().collect());
    }
    text.split(',').map(|name| name.trim().parse::<Layer>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let variables: HashMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::read(|name| variables.get(name).cloned())
    }

    #[test]
    fn nothing_set_is_the_default() {
        let settings = read(&[("SANDBOX_TIMEOUT", " ")]).expect("valid");
        assert_eq!(settings.defaults, Limits::default());
        assert_eq!(settings.data_dir, None);
    }

    #[test]
    fn defaults_caps_layers_and_directory() {
        let settings = read(&[
            ("SANDBOX_TIMEOUT", "500ms"),
            ("SANDBOX_MAX_MEMORY", "64m"),
            ("SANDBOX_REQUIRE", "memory, landlock"),
            ("SANDBOX_COMPILE_TIMEOUT", "5s"),
            ("SANDBOX_INSTALL_DISK", "1g"),
            ("SANDBOX_FILES_SIZE", "1m"),
            ("SANDBOX_VOLUME_PATHS", "/srv:/data"),
            ("SANDBOX_MAX_NETWORK", "allowlist"),
            ("SANDBOX_NETWORK_ALLOW", "10.0.0.1, db.internal:5432"),
            ("SANDBOX_INSTALL_HOSTS", "*.example.com"),
            ("SANDBOX_SHARE", "packages"),
            ("SANDBOX_PRELOAD", "mylib, other_lib"),
            ("HOME", "/home/u"),
        ])
        .expect("valid");
        assert_eq!(settings.defaults.wall_time().as_millis(), 500);
        assert_eq!(settings.caps.most(LimitKind::Memory), 64 << 20);
        assert_eq!(settings.defaults.memory(), 64 << 20);
        assert!(settings.required().contains(Layer::Memory) && settings.required().contains(Layer::User));
        assert_eq!(settings.data_dir, Some("/home/u/.cache/sandbox-run".into()));
        assert_eq!(settings.compile.wall_time().as_secs(), 5);
        assert_eq!((settings.install.disk(), settings.compile.disk()), (1 << 30, 2 << 30));
        assert_eq!((settings.files.count, settings.files.bytes), (1_000, 1 << 20));
        assert_eq!(settings.max_network, NetworkMode::Allowlist);
        assert_eq!((settings.network_allow.len(), settings.install_hosts.map_or(0, |hosts| hosts.len())), (2, 1));
        assert_eq!((settings.sharing, settings.preload.join(" ").as_str()), (Sharing::Packages, "mylib other_lib"));
        assert_eq!(settings.volume_paths, [PathBuf::from("/srv"), PathBuf::from("/data")]);
    }

    #[test]
    fn usual_caps_hold_unless_the_operator_says_otherwise() {
        let usual = Caps::for_server(2 << 30, 4);
        let read = |variables: &[(&str, &str)]| {
            let variables: HashMap<&str, &str> = variables.iter().copied().collect();
            Settings::read_with(|name| variables.get(name).map(ToString::to_string), &usual).expect("valid")
        };
        let settings =
            read(&[("SANDBOX_MAX_DISK", "unlimited"), ("SANDBOX_MAX_TIMEOUT", "1h"), ("SANDBOX_PROCESSES", "5000")]);
        assert_eq!(settings.caps.most(LimitKind::Memory), 1 << 30, "half of the host's");
        assert_eq!(settings.caps.most(LimitKind::Disk), LimitKind::Disk.info().most);
        assert_eq!(settings.caps.most(LimitKind::WallTime), 3_600_000_000);
        assert_eq!(settings.caps.most(LimitKind::Processes), 5_000, "a default that is higher raises the cap");
        assert_eq!(settings.defaults.cpu_time(), None, "what has no limit of its own gets none");
        for info in TABLE {
            assert!(read(&[]).caps.most(info.kind) < info.most, "{}", info.name);
        }
        let mut limits = settings.defaults.clone();
        let error = limits.set(LimitKind::Memory, 2 << 30, &settings.caps).expect_err("refused");
        assert_eq!(error.to_string(), "memory: 2 GiB is above the maximum of 1 GiB (SANDBOX_MAX_MEMORY)");
    }

    #[test]
    fn reduced_isolation_has_to_be_asked_for() {
        assert_eq!(read(&[]).expect("valid").required(), LayerSet::required_by_default());
        let settings = read(&[("SANDBOX_ISOLATION", "reduced"), ("SANDBOX_REQUIRE", "pid")]).expect("valid");
        assert_eq!(settings.required().iter().collect::<Vec<_>>(), [Layer::Pid, Layer::Seccomp, Layer::Landlock]);
        assert!(read(&[("SANDBOX_ISOLATION", "none")]).is_err());
    }

    #[test]
    fn all_mistakes_are_listed_at_once() {
        let error = read(&[
            ("SANDBOX_TIMEOUT", "0"),
            ("SANDBOX_MAX_DISK", "lots"),
            ("SANDBOX_REQUIRE", "moat"),
            ("SANDBOX_MAX_NETWORK", "all"),
            ("SANDBOX_NETWORK_ALLOW", "a,b c"),
            ("SANDBOX_NETWORK_DENY", "10.0.0.0/40"),
            ("SANDBOX_SHARE", "most"),
            ("SANDBOX_PRELOAD", "os;evil"),
        ])
        .expect_err("refused");
        assert_eq!(error.0.len(), 8, "{error}");
        let text = error.to_string();
        assert!(text.contains("SANDBOX_TIMEOUT: wall_time: 0s is too little"), "{text}");
        assert!(text.contains("unknown isolation layer 'moat'"), "{text}");
    }
}
