//! The backend that creates cells, from the operator's settings.

use sandbox_backends::{Backend, Docker, DockerMode};
use sandbox_cell::{Layer, LayerSet};

use crate::settings::Isolation;

/// The variable that names the backend.
pub(crate) const BACKEND: &str = "SANDBOX_BACKEND";

const MODE: &str = "SANDBOX_DOCKER_MODE";

/// Reads the backend; `get` gives a variable that is set. What is wrong comes with the variable's name.
pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Backend, (String, String)> {
    let or = |name: &str, usual: &str| get(name).unwrap_or_else(|| usual.to_owned());
    match or(BACKEND, "native").as_str() {
        "native" => Ok(Backend::Native),
        "oci" => Ok(Backend::Oci(or("SANDBOX_OCI_RUNTIME", "runc"))),
        "docker" => {
            let container = or("SANDBOX_CONTAINER", "code-sandbox-runner");
            let usual = if get("SANDBOX_CONTAINER").is_some() { "exec" } else { "run" };
            let mode = match or(MODE, usual).as_str() {
                "run" => DockerMode::Run,
                "exec" => DockerMode::Exec(container),
                other => return Err((MODE.to_owned(), format!("invalid value '{other}': expected run or exec"))),
            };
            Ok(Backend::Docker(Docker {
                program: or("SANDBOX_DOCKER_BIN", "docker"),
                mode,
                user: get("SANDBOX_DOCKER_USER"),
                job_dir: or("SANDBOX_JOB_DIR", "/tmp/jobs"),
                network: or("SANDBOX_NETWORK", "none"),
            }))
        }
        other => Err((BACKEND.to_owned(), format!("invalid value '{other}': expected native, oci or docker"))),
    }
}

/// The layers without which nothing runs. Docker gives containers no user namespace by itself, and a container that is
/// shared does not isolate its users from each other: the operator who chooses it accepts that.
pub(crate) fn required(backend: &Backend, isolation: Isolation) -> LayerSet {
    match backend {
        Backend::Native | Backend::Oci(_) => isolation.required(),
        Backend::Docker(Docker { mode: DockerMode::Run, .. }) => {
            isolation.required().without([Layer::User].into_iter().collect())
        }
        Backend::Docker(Docker { mode: DockerMode::Exec(_), .. }) => LayerSet::required_at_least(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(variables: &[(&str, &str)]) -> Result<Backend, (String, String)> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        read(find)
    }

    #[test]
    fn a_backend_is_named_and_described_by_variables() {
        assert_eq!(read_from(&[]), Ok(Backend::Native));
        assert_eq!(read_from(&[(BACKEND, "oci")]), Ok(Backend::Oci("runc".into())));
        assert!(read_from(&[(BACKEND, "vm")]).is_err() && read_from(&[(BACKEND, "docker"), (MODE, "x")]).is_err());
        let mode = |variables: &[(&str, &str)]| match read_from(variables) {
            Ok(Backend::Docker(docker)) => docker.mode,
            other => panic!("{other:?}"),
        };
        assert_eq!(mode(&[(BACKEND, "docker")]), DockerMode::Run);
        assert_eq!(mode(&[(BACKEND, "docker"), ("SANDBOX_CONTAINER", "c")]), DockerMode::Exec("c".into()));
        let exec = DockerMode::Exec("code-sandbox-runner".into());
        assert_eq!(mode(&[(BACKEND, "docker"), (MODE, "exec")]), exec);
    }

    #[test]
    fn what_is_required_is_what_the_backend_can_have() {
        let docker = read_from(&[(BACKEND, "docker")]).expect("valid");
        assert!(!required(&docker, Isolation::Full).contains(Layer::User));
        assert!(required(&docker, Isolation::Full).contains(Layer::Pid));
        assert!(required(&Backend::Oci("runc".into()), Isolation::Full).contains(Layer::User));
    }
}
