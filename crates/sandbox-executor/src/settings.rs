//! The operator's settings, from the environment: defaults and caps of limits, limits of other stages, required layers, the
//! data directory, limits of output files, host paths that may be mounted.

use std::path::PathBuf;

use sandbox_backends::Backend;
use sandbox_base::limits::{Caps, LimitError, LimitInfo, LimitKind, Limits, TABLE};
use sandbox_cell::{Layer, LayerSet};
use sandbox_network::{DenyList, HostRule};

use crate::backend::{self, BackendChoice};
use crate::network::NetworkMode;
use crate::owner::Sharing;
use crate::variables::{SettingsDraft, VARIABLES, VariableDefault};

/// The cap of a limit that has none.
const UNLIMITED: &str = "unlimited";

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
    /// How many of the files that a program left may come back.
    pub files: u64,
    /// Host directories that requests may mount, with everything below them.
    pub volume_paths: Vec<PathBuf>,
    /// The most permissive network mode of programs.
    pub max_network: NetworkMode,
    /// Hosts that programs may reach, if their request allows them, though their addresses are not public.
    pub network_allow: Vec<HostRule>,
    /// The addresses that are blocked, besides those that are always blocked.
    pub network_deny: DenyList,
    /// The only hosts that installs may reach, besides the package indexes [default: any public host].
    pub install_hosts: Option<Vec<HostRule>>,
    /// Whether JSON requests may use named volumes, which all clients that know the name share.
    pub named_volumes: bool,
    /// The resources that runs of different owners share.
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

/// The isolation that every run must have. Further layers are used wherever they are available.
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

/// Limits of a stage that makes something. Variables set time, memory and disk.
fn stage_limits(file_size: u64) -> Limits {
    let mut limits = Limits::default();
    for (kind, value) in [
        (LimitKind::FileSize, file_size),
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
        SettingsDraft::new().settings
    }
}

impl SettingsDraft {
    /// The defaults of all variables.
    pub(crate) fn new() -> Self {
        let settings = Settings {
            defaults: Limits::default(),
            caps: Caps::default(),
            backend: Backend::Native,
            isolation: Isolation::Full,
            also_required: LayerSet::default(),
            compile: stage_limits(2 << 30),
            install: stage_limits(4 << 30),
            files: 0,
            volume_paths: vec![],
            max_network: NetworkMode::None,
            network_allow: vec![],
            network_deny: DenyList::default(),
            install_hosts: None,
            named_volumes: false,
            sharing: Sharing::None,
            preload: vec![],
            build_cache: 0,
            package_cache: 0,
            image_size: 0,
            data_dir: None,
        };
        let mut draft = Self { settings, backend: BackendChoice::default(), home: None, cache_home: None };
        for variable in VARIABLES {
            if let VariableDefault::Value(text) = variable.default {
                // A test reads every default.
                let _ = (variable.read)(&mut draft, text);
            }
        }
        draft
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

    /// Whether other users than this one have to pass through the data directory. If root makes cells, they have dedicated
    /// users: with reduced isolation they see the directory without a mount, and the inits in a zygote namespace mount it
    /// without root's powers.
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
        let mut draft = SettingsDraft::new();
        let mut errors = vec![];
        for variable in VARIABLES {
            if let Some(Err(why)) = get(variable.name).map(|text| (variable.read)(&mut draft, &text)) {
                errors.push((variable.name.to_owned(), why));
            }
        }
        let SettingsDraft { mut settings, backend, home, cache_home } = draft;
        match backend.resolve() {
            Ok(backend) => settings.backend = backend,
            Err(error) => errors.push(error),
        }
        let cache_home = cache_home.or_else(|| Some(home?.join(".cache")));
        settings.data_dir = settings.data_dir.or_else(|| Some(cache_home?.join("sandbox-run")));
        let mut note = |name: &str, result: Result<(), LimitError>| {
            if let Err(error) = result {
                errors.push((name.to_owned(), error.to_string()));
            }
        };
        // Caps before defaults, which must respect them.
        let cap = |info: &LimitInfo| info.cap_variables().find_map(|name| get(&name).map(|text| (name, text)));
        for info in &TABLE {
            if let Some((name, text)) = cap(info).filter(|(_, text)| text.trim() != UNLIMITED) {
                let lowered = info.kind.parse(&text).and_then(|value| settings.caps.lower(info.kind, value));
                note(&name, lowered);
            }
        }
        for info in &TABLE {
            let default = info.default_variables().find_map(|name| get(&name).map(|text| (name, text)));
            if let Some((name, text)) = default {
                let set = info.kind.parse(&text);
                let set = set.and_then(|value| settings.defaults.set(info.kind, value, &settings.caps));
                note(&name, set);
            }
        }
        settings.defaults.clamp(&settings.caps);
        for kind in TABLE.iter().filter(|info| cap(info).is_none()).map(|info| info.kind) {
            let default = settings.defaults.get(kind).unwrap_or_default();
            note(kind.info().cap_variable, settings.caps.lower(kind, usual.most(kind).max(default)));
        }
        if errors.is_empty() { Ok(settings) } else { Err(SettingsError(errors)) }
    }
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
            ("SANDBOX_PIDS", "7"),
            ("SANDBOX_MAX_OUTPUT", "2m"),
            ("SANDBOX_REQUIRE", "memory, landlock"),
            ("SANDBOX_COMPILE_TIMEOUT", "5s"),
            ("SANDBOX_INSTALL_DISK", "1g"),
            ("SANDBOX_OUTPUT_SIZE", "1m"),
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
        let older = (settings.defaults.processes(), settings.caps.most(LimitKind::Output));
        assert_eq!(older, (7, 2 << 20), "older names");
        assert_eq!(settings.defaults.memory(), 64 << 20);
        assert!(settings.required().contains(Layer::Memory) && settings.required().contains(Layer::User));
        assert_eq!(settings.data_dir, Some("/home/u/.cache/sandbox-run".into()));
        assert_eq!(settings.compile.wall_time().as_secs(), 5);
        assert_eq!((settings.install.disk(), settings.compile.disk()), (1 << 30, 2 << 30));
        assert_eq!((settings.files, settings.defaults.output_size()), (1_000, 1 << 20));
        assert_eq!(settings.max_network, NetworkMode::Allowlist);
        assert_eq!((settings.network_allow.len(), settings.install_hosts.map_or(0, |hosts| hosts.len())), (2, 1));
        assert_eq!((settings.sharing, settings.preload.join(" ").as_str()), (Sharing::Packages, "mylib other_lib"));
        assert_eq!(settings.volume_paths, [PathBuf::from("/srv"), PathBuf::from("/data")]);
    }

    #[test]
    fn default_caps_apply_unless_overridden() {
        let usual = Caps::for_server(2 << 30, 4);
        let read = |variables: &[(&str, &str)]| {
            let variables: HashMap<&str, &str> = variables.iter().copied().collect();
            Settings::read_with(|name| variables.get(name).map(ToString::to_string), &usual).expect("valid")
        };
        let settings =
            read(&[("SANDBOX_MAX_DISK", "unlimited"), ("SANDBOX_MAX_TIMEOUT", "1h"), ("SANDBOX_PROCESSES", "5000")]);
        assert_eq!(settings.caps.most(LimitKind::Memory), 1 << 30, "half of the memory of the host");
        assert_eq!(settings.caps.most(LimitKind::Disk), LimitKind::Disk.info().most);
        assert_eq!(settings.caps.most(LimitKind::WallTime), 3_600_000_000);
        assert_eq!(settings.caps.most(LimitKind::Processes), 5_000, "a default that is higher raises the cap");
        assert_eq!(settings.defaults.cpu_time(), None, "what has no limit of its own gets none");
        for info in TABLE {
            assert!(read(&[]).caps.most(info.kind) < info.most, "{}", info.name);
        }
        let mut limits = settings.defaults.clone();
        let error = limits.set(LimitKind::Memory, 2 << 30, &settings.caps).expect_err("refused");
        assert_eq!(error.to_string(), "memory limit 2 GiB is above the maximum of 1 GiB (SANDBOX_MAX_MEMORY)");
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
            ("SANDBOX_PIDS", "none"),
            ("SANDBOX_MAX_DISK", "lots"),
            ("SANDBOX_REQUIRE", "moat"),
            ("SANDBOX_MAX_NETWORK", "all"),
            ("SANDBOX_NETWORK_ALLOW", "a,b c"),
            ("SANDBOX_NETWORK_DENY", "10.0.0.0/40"),
            ("SANDBOX_SHARE", "most"),
            ("SANDBOX_PRELOAD", "os;evil"),
        ])
        .expect_err("refused");
        assert_eq!(error.0.len(), 9, "{error}");
        let text = error.to_string();
        assert!(text.contains("SANDBOX_TIMEOUT: time limit 0s is below the minimum"), "{text}");
        assert!(text.contains("SANDBOX_PIDS: invalid process limit"), "the name that was used: {text}");
        assert!(text.contains("unknown isolation layer 'moat'"), "{text}");
    }
}
