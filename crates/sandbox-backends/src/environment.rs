//! The environment of the programs that a backend starts. The keeper runs with an empty environment, so the caller
//! sends the variables that container engines read, and no others, because any other variable may be a secret.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Variables that container engines and OCI runtimes read.
const NAMES: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "REGISTRY_AUTH_FILE",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "NOTIFY_SOCKET",
];

/// Prefixes of further variables: Docker, Podman, and the locations of a user's files.
const PREFIXES: [&str; 7] = ["DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_", "BUILDAH_", "XDG_", "LC_"];

/// Environment variables for the programs of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolEnvironment(Vec<(OsString, OsString)>);

impl ToolEnvironment {
    /// The variables of this process that container engines read.
    pub(crate) fn of_this_process() -> Self {
        Self(std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect())
    }

    /// A command with exactly this environment.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.0.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn is_passed_on(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // Proxy variables also exist in lower case.
    let upper = name.to_ascii_uppercase();
    NAMES.contains(&name)
        || (upper.ends_with("_PROXY") && NAMES.contains(&upper.as_str()))
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_container_engines_are_passed_on() {
        for name in ["PATH", "DOCKER_HOST", "XDG_RUNTIME_DIR", "https_proxy", "CONTAINERS_CONF"] {
            assert!(is_passed_on(OsStr::new(name)), "{name}");
        }
        for name in ["SANDBOX_API_KEYS", "REDIS_PASSWORD", "HTTP_HOST", "AWS_SECRET_ACCESS_KEY", "path", "home"] {
            assert!(!is_passed_on(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn programs_get_no_other_variables() {
        let environment = ToolEnvironment(vec![("PATH".into(), "/usr/bin:/bin".into())]);
        let output = environment.command("env").output().expect("env runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "PATH=/usr/bin:/bin\n");
    }
}
