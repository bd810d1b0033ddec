//! The environment variables, for the reference and the man pages. A test compares the table with the variables that are read.

use sandbox_base::limits::{LimitInfo, TABLE};

/// A variable of the environment.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What applies if it is not set, as people read it.
    pub default: &'static str,
    /// One line for the reference.
    pub help: &'static str,
}

const fn variable(name: &'static str, default: &'static str, help: &'static str) -> Variable {
    Variable { name, default, help }
}

/// The limits of runs; each has a variable for its default and one for its cap.
#[must_use]
pub fn limits() -> &'static [LimitInfo] {
    &TABLE
}

/// Every other variable that [`Settings::read`](crate::Settings::read) asks for.
pub const VARIABLES: &[Variable] = &[
    variable("SANDBOX_ISOLATION", "full", "isolation mode: full, or reduced for hosts that refuse namespaces"),
    variable(
        "SANDBOX_REQUIRE",
        "",
        "refuse to run without these additional isolation layers (comma-separated, or all)",
    ),
    variable(
        "SANDBOX_DATA_DIR",
        "~/.cache/sandbox-run; /var/lib/sandbox-server for a server started as root",
        "directory for caches, images, volumes and jobs",
    ),
    variable("XDG_CACHE_HOME", "~/.cache", "parent of the default data directory"),
    variable("HOME", "", "home directory, which is also searched for toolchains"),
    variable("SANDBOX_COMPILE_TIMEOUT", "60s", "time limit for compiling"),
    variable("SANDBOX_COMPILE_MEMORY", "2g", "memory limit for compiling"),
    variable("SANDBOX_COMPILE_DISK", "2g", "disk limit for compiling"),
    variable("SANDBOX_INSTALL_TIMEOUT", "5m", "time limit for installing packages"),
    variable("SANDBOX_INSTALL_MEMORY", "4g", "memory limit for installing packages"),
    variable("SANDBOX_INSTALL_DISK", "4g", "disk limit for installing packages"),
    variable(
        "SANDBOX_INSTALL_HOSTS",
        "any public host",
        "the only hosts that installs may reach besides the package indexes",
    ),
    variable(
        "SANDBOX_MAX_NETWORK",
        "full",
        "most permissive network mode that requests may use: none, localhost, allowlist or full",
    ),
    variable("SANDBOX_NETWORK_ALLOW", "", "hosts that are not public but that requests may allow"),
    variable("SANDBOX_NETWORK_DENY", "", "hosts, addresses and ranges (203.0.113.0/24) that are always blocked"),
    variable("SANDBOX_VOLUME_PATHS", "", "host directories that requests may mount (colon-separated)"),
    variable("SANDBOX_NAMED_VOLUMES", "no", "yes allows HTTP requests to use named volumes, which all clients share"),
    variable("SANDBOX_FILES", "1000", "maximum number of files in a result"),
    variable("SANDBOX_FILES_SIZE", "16m", "maximum total size of the files in a result"),
    variable("SANDBOX_BUILD_CACHE", "1g", "size of the cache of compiled programs"),
    variable("SANDBOX_PACKAGE_CACHE", "10g", "size of the cache of package environments"),
    variable(
        "SANDBOX_SHARE",
        "none",
        "what API keys share: none, packages (package environments) or all (also compiled programs and warm interpreters)",
    ),
    variable("SANDBOX_PRELOAD", "", "additional Python modules that warm interpreters import before the fork"),
    variable("SANDBOX_IMAGE_SIZE", "8g", "maximum size of an unpacked image"),
    variable("SANDBOX_BACKEND", "native", "backend that creates cells: native, oci or docker"),
    variable("SANDBOX_OCI_RUNTIME", "runc", "backend oci: name or path of the runtime"),
    variable("SANDBOX_DOCKER_BIN", "docker", "backend docker: Docker, Podman, or a compatible program"),
    variable(
        "SANDBOX_DOCKER_MODE",
        "run; exec if SANDBOX_CONTAINER is set",
        "backend docker: run creates a container for each run, exec uses an existing one",
    ),
    variable("SANDBOX_CONTAINER", "code-sandbox-runner", "backend docker: name of the existing container"),
    variable(
        "SANDBOX_JOB_DIR",
        "/tmp/jobs",
        "backend docker: directory in that container that every user can write to",
    ),
    variable(
        "SANDBOX_DOCKER_USER",
        "1000:1000; a dedicated user id for each run in a shared container",
        "backend docker: user that runs programs",
    ),
    variable("SANDBOX_NETWORK", "none", "backend docker: network of the containers that are created"),
];

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::Settings;

    #[test]
    fn the_table_lists_what_is_read() {
        let asked = RefCell::new(BTreeSet::new());
        for backend in ["native", "oci", "docker"] {
            let read = Settings::read(|name| {
                asked.borrow_mut().insert(name.to_owned());
                (name == "SANDBOX_BACKEND").then(|| backend.to_owned())
            });
            assert!(read.is_ok());
        }
        let limits = limits().iter().flat_map(|limit| [limit.default_variable, limit.cap_variable]);
        let listed: BTreeSet<String> =
            VARIABLES.iter().map(|variable| variable.name).chain(limits).map(str::to_owned).collect();
        assert_eq!(asked.into_inner(), listed);
    }
}
