//! The environment variables, in one table: name, default, help, and how each is read. Settings, their defaults, the
//! reference and the man pages come from it. Limits have a separate table (`sandbox-base/src/limits/table.rs`).

use std::path::PathBuf;

use sandbox_base::limits::{Caps, LimitKind, Limits};
use sandbox_base::units::parse_size;
use sandbox_network::{DenyList, HostRule};

use crate::backend::BackendChoice;
use crate::network::NetworkMode;
use crate::owner::Sharing;
use crate::settings::{Isolation, Settings, parse_layers};

/// A variable of the environment.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What applies if it is not set.
    pub default: VariableDefault,
    /// One line for the reference.
    pub help: &'static str,
    /// Takes its value.
    pub(crate) read: fn(&mut SettingsDraft, &str) -> Result<(), String>,
}

/// The default of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableDefault {
    /// Nothing.
    Nothing,
    /// A value that the variable could have.
    Value(&'static str),
    /// A description, where no single value fits.
    Text(&'static str),
}

impl VariableDefault {
    /// As people read it; empty if nothing applies.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Value(text) | Self::Text(text) => text,
        }
    }
}

/// Settings while variables are read.
#[derive(Debug)]
pub(crate) struct SettingsDraft {
    pub(crate) settings: Settings,
    pub(crate) backend: BackendChoice,
    pub(crate) home: Option<PathBuf>,
    pub(crate) cache_home: Option<PathBuf>,
}

impl Variable {
    /// The variable with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        VARIABLES.iter().find(|variable| variable.name == name)
    }
}

use VariableDefault::{Nothing, Text, Value};

const fn variable(
    name: &'static str,
    default: VariableDefault,
    help: &'static str,
    read: fn(&mut SettingsDraft, &str) -> Result<(), String>,
) -> Variable {
    Variable { name, default, help, read }
}

/// Every variable but those of limits.
pub const VARIABLES: &[Variable] = &[
    variable(
        "SANDBOX_ISOLATION",
        Value("full"),
        "isolation mode: full, or reduced for hosts that refuse namespaces",
        |draft, text| {
            let modes = [("full", Isolation::Full), ("reduced", Isolation::Reduced)];
            one_of(text, modes).map(|mode| draft.settings.isolation = mode)
        },
    ),
    variable(
        "SANDBOX_REQUIRE",
        Nothing,
        "refuse to run without these additional isolation layers (comma-separated, or all)",
        |draft, text| parse_layers(text).map(|layers| draft.settings.also_required = layers),
    ),
    variable(
        "SANDBOX_DATA_DIR",
        Text("~/.cache/sandbox-run; /var/lib/sandbox-server for a server started as root"),
        "directory for caches, images, volumes and jobs",
        |draft, text| {
            draft.settings.data_dir = Some(text.into());
            Ok(())
        },
    ),
    variable("XDG_CACHE_HOME", Text("~/.cache"), "parent of the default data directory", |draft, text| {
        draft.cache_home = Some(text.into());
        Ok(())
    }),
    variable("HOME", Nothing, "home directory, which is also searched for toolchains", |draft, text| {
        draft.home = Some(text.into());
        Ok(())
    }),
    variable("SANDBOX_COMPILE_TIMEOUT", Value("60s"), "time limit for compiling", |draft, text| {
        limit(&mut draft.settings.compile, LimitKind::WallTime, text)
    }),
    variable("SANDBOX_COMPILE_MEMORY", Value("2g"), "memory limit for compiling", |draft, text| {
        limit(&mut draft.settings.compile, LimitKind::Memory, text)
    }),
    variable("SANDBOX_COMPILE_DISK", Value("2g"), "disk limit for compiling", |draft, text| {
        limit(&mut draft.settings.compile, LimitKind::Disk, text)
    }),
    variable("SANDBOX_INSTALL_TIMEOUT", Value("5m"), "time limit for installing packages", |draft, text| {
        limit(&mut draft.settings.install, LimitKind::WallTime, text)
    }),
    variable("SANDBOX_INSTALL_MEMORY", Value("4g"), "memory limit for installing packages", |draft, text| {
        limit(&mut draft.settings.install, LimitKind::Memory, text)
    }),
    variable("SANDBOX_INSTALL_DISK", Value("4g"), "disk limit for installing packages", |draft, text| {
        limit(&mut draft.settings.install, LimitKind::Disk, text)
    }),
    variable(
        "SANDBOX_INSTALL_HOSTS",
        Text("any public host"),
        "the only hosts that installs may reach besides the package indexes",
        |draft, text| hosts(text).map(|hosts| draft.settings.install_hosts = Some(hosts)),
    ),
    variable(
        "SANDBOX_MAX_NETWORK",
        Value("full"),
        "most permissive network mode that requests may use: none, localhost, allowlist or full",
        |draft, text| NetworkMode::parse(text.trim()).map(|mode| draft.settings.max_network = mode),
    ),
    variable(
        "SANDBOX_NETWORK_ALLOW",
        Nothing,
        "hosts that are not public but that requests may allow",
        |draft, text| hosts(text).map(|hosts| draft.settings.network_allow = hosts),
    ),
    variable(
        "SANDBOX_NETWORK_DENY",
        Nothing,
        "hosts, addresses and ranges (203.0.113.0/24) that are always blocked",
        |draft, text| DenyList::parse(text).map(|deny| draft.settings.network_deny = deny),
    ),
    variable(
        "SANDBOX_VOLUME_PATHS",
        Nothing,
        "host directories that requests may mount (colon-separated)",
        |draft, text| {
            draft.settings.volume_paths = std::env::split_paths(text).collect();
            Ok(())
        },
    ),
    variable(
        "SANDBOX_NAMED_VOLUMES",
        Value("no"),
        "yes allows HTTP requests to use named volumes, which all clients share",
        |draft, text| {
            one_of(text, [("yes", true), ("no", false)]).map(|allowed| draft.settings.named_volumes = allowed)
        },
    ),
    variable("SANDBOX_FILES", Value("1000"), "maximum number of files in a result", |draft, text| {
        size(&mut draft.settings.files, text)
    }),
    variable("SANDBOX_BUILD_CACHE", Value("1g"), "size of the cache of compiled programs", |draft, text| {
        size(&mut draft.settings.build_cache, text)
    }),
    variable("SANDBOX_PACKAGE_CACHE", Value("10g"), "size of the cache of package environments", |draft, text| {
        size(&mut draft.settings.package_cache, text)
    }),
    variable(
        "SANDBOX_SHARE",
        Value("none"),
        "what API keys share: none, packages (package environments) or all (also compiled programs and warm interpreters)",
        |draft, text| Sharing::parse(text.trim()).map(|sharing| draft.settings.sharing = sharing),
    ),
    variable(
        "SANDBOX_PRELOAD",
        Nothing,
        "additional Python modules that warm interpreters import before the fork",
        |draft, text| {
            let names = text.split(',').map(str::trim).map(module_name).collect::<Result<_, _>>();
            names.map(|names| draft.settings.preload = names)
        },
    ),
    variable("SANDBOX_IMAGE_SIZE", Value("8g"), "maximum size of an unpacked image", |draft, text| {
        size(&mut draft.settings.image_size, text)
    }),
    variable(BACKEND, Value("native"), "backend that creates cells: native, oci or docker", |draft, text| {
        word(&mut draft.backend.name, text)
    }),
    variable("SANDBOX_OCI_RUNTIME", Value("runc"), "backend oci: name or path of the runtime", |draft, text| {
        word(&mut draft.backend.runtime, text)
    }),
    variable(
        "SANDBOX_DOCKER_BIN",
        Value("docker"),
        "backend docker: Docker, Podman, or a compatible program",
        |draft, text| word(&mut draft.backend.program, text),
    ),
    variable(
        DOCKER_MODE,
        Text("run; exec if SANDBOX_CONTAINER is set"),
        "backend docker: run creates a container for each run, exec uses an existing one",
        |draft, text| word(draft.backend.mode.get_or_insert_default(), text),
    ),
    variable(
        "SANDBOX_CONTAINER",
        Text(DEFAULT_CONTAINER),
        "backend docker: name of the existing container",
        |draft, text| word(draft.backend.container.get_or_insert_default(), text),
    ),
    variable(
        "SANDBOX_JOB_DIR",
        Value("/tmp/jobs"),
        "backend docker: directory in that container that every user can write to",
        |draft, text| word(&mut draft.backend.job_dir, text),
    ),
    variable(
        "SANDBOX_DOCKER_USER",
        Text("1000:1000; a dedicated user id for each run in a shared container"),
        "backend docker: user that runs programs",
        |draft, text| word(draft.backend.user.get_or_insert_default(), text),
    ),
    variable(
        "SANDBOX_NETWORK",
        Value("none"),
        "backend docker: network of the containers that are created",
        |draft, text| word(&mut draft.backend.network, text),
    ),
];

/// The variable that names the backend.
pub(crate) const BACKEND: &str = "SANDBOX_BACKEND";

/// The variable with the mode of the Docker backend.
pub(crate) const DOCKER_MODE: &str = "SANDBOX_DOCKER_MODE";

/// The container that Docker uses if none is named.
pub(crate) const DEFAULT_CONTAINER: &str = "code-sandbox-runner";

fn one_of<T: Copy, const N: usize>(text: &str, values: [(&str, T); N]) -> Result<T, String> {
    let found = values.iter().find(|(name, _)| *name == text.trim());
    let names = || values.map(|(name, _)| name).join(" or ");
    found.map(|(_, value)| *value).ok_or_else(|| format!("invalid value '{text}': expected {}", names()))
}

fn limit(limits: &mut Limits, kind: LimitKind, text: &str) -> Result<(), String> {
    let set = kind.parse(text).and_then(|value| limits.set(kind, value, &Caps::default()));
    set.map_err(|error| error.to_string())
}

fn size(setting: &mut u64, text: &str) -> Result<(), String> {
    *setting = parse_size(text).map_err(|error| error.to_string())?;
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "readers of other variables can fail")]
fn word(setting: &mut String, text: &str) -> Result<(), String> {
    text.clone_into(setting);
    Ok(())
}

fn hosts(text: &str) -> Result<Vec<HostRule>, String> {
    text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(HostRule::parse).collect()
}

/// Reads the name of a module that can be imported.
fn module_name(name: &str) -> Result<String, String> {
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits { Ok(name.to_owned()) } else { Err(format!("invalid module name '{name}'")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_that_is_accepted() {
        let mut draft = SettingsDraft::new();
        for variable in VARIABLES {
            if let Value(text) = variable.default {
                assert_eq!((variable.read)(&mut draft, text), Ok(()), "{}", variable.name);
            }
        }
        assert_eq!(draft.settings.build_cache, 1 << 30);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        assert_eq!(names.len(), VARIABLES.len());
        assert_eq!(Variable::by_name("SANDBOX_COMPILE_TIMEOUT").map(|found| found.default), Some(Value("60s")));
        assert!(Variable::by_name("SANDBOX_NOTHING").is_none());
    }
}
