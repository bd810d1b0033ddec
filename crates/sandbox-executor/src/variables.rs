//! What can be set through the environment, for the reference and the man pages. A test holds it against what is read.

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
    variable("SANDBOX_ISOLATION", "full", "full, or reduced where there can be no namespaces"),
    variable("SANDBOX_REQUIRE", "", "layers without which nothing runs, besides the usual ones: a list, or all"),
    variable(
        "SANDBOX_DATA_DIR",
        "~/.cache/sandbox-run; /var/lib/sandbox-server for a server of root's",
        "directory for caches, images, volumes and jobs",
    ),
    variable("XDG_CACHE_HOME", "~/.cache", "directory in which that directory is, if it is not named"),
    variable("HOME", "", "the home directory, in which toolchains are looked for too"),
    variable("SANDBOX_COMPILE_TIMEOUT", "60s", "time for compiling"),
    variable("SANDBOX_COMPILE_MEMORY", "2g", "memory for compiling"),
    variable("SANDBOX_COMPILE_DISK", "2g", "bytes that compiling may write"),
    variable("SANDBOX_INSTALL_TIMEOUT", "5m", "time for installing packages"),
    variable("SANDBOX_INSTALL_MEMORY", "4g", "memory for installing packages"),
    variable("SANDBOX_INSTALL_DISK", "4g", "bytes that installing packages may write"),
    variable("SANDBOX_INSTALL_HOSTS", "any public one", "the only hosts that installs may reach, besides the indexes"),
    variable("SANDBOX_MAX_NETWORK", "full", "how far programs may reach at most: none, localhost, allowlist or full"),
    variable(
        "SANDBOX_NETWORK_ALLOW",
        "",
        "hosts that programs may reach, if their request names them, though they are not public",
    ),
    variable(
        "SANDBOX_NETWORK_DENY",
        "",
        "hosts, addresses and ranges (203.0.113.0/24) that nothing may reach, whatever else is allowed",
    ),
    variable(
        "SANDBOX_VOLUME_PATHS",
        "",
        "directories of the host's (separated by colons) that requests may ask to be shown",
    ),
    variable("SANDBOX_NAMED_VOLUMES", "no", "yes lets requests over HTTP use named volumes, which all clients share"),
    variable("SANDBOX_FILES", "1000", "files that may come back from a run"),
    variable("SANDBOX_FILES_SIZE", "16m", "bytes of files that may come back from a run"),
    variable("SANDBOX_BUILD_CACHE", "1g", "bytes of compiled programs that are kept"),
    variable("SANDBOX_PACKAGE_CACHE", "10g", "bytes of package environments that are kept"),
    variable(
        "SANDBOX_SHARE",
        "none",
        "share between API keys: none, packages (package environments) or all (compiled programs and warm interpreters too)",
    ),
    variable(
        "SANDBOX_PRELOAD",
        "",
        "Python modules that warm interpreters import before the fork, besides those known to be safe",
    ),
    variable("SANDBOX_IMAGE_SIZE", "8g", "bytes that an image may have when it is unpacked"),
    variable("SANDBOX_BACKEND", "native", "what makes cells: native, oci or docker"),
    variable("SANDBOX_OCI_RUNTIME", "runc", "backend oci: a runtime, by name or path"),
    variable("SANDBOX_DOCKER_BIN", "docker", "backend docker: Docker, Podman, or what has the same command line"),
    variable(
        "SANDBOX_DOCKER_MODE",
        "run; exec if SANDBOX_CONTAINER is set",
        "backend docker: a container for each run, or processes in one that is there",
    ),
    variable("SANDBOX_CONTAINER", "code-sandbox-runner", "backend docker: the container that is there"),
    variable(
        "SANDBOX_JOB_DIR",
        "/tmp/jobs",
        "backend docker: a directory in that container that every user can write to",
    ),
    variable(
        "SANDBOX_DOCKER_USER",
        "1000:1000; in a shared container one for each run",
        "backend docker: the user of programs",
    ),
    variable("SANDBOX_NETWORK", "none", "backend docker: the network of containers that are made"),
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
