//! The backend that creates cells, from the operator's settings.

use sandbox_backends::{Backend, Docker, DockerMode};
use sandbox_cell::{Layer, LayerSet};

use crate::settings::Isolation;
use crate::variables::{BACKEND, DEFAULT_CONTAINER, DOCKER_MODE};

/// The backend that variables select.
#[derive(Debug, Default)]
pub(crate) struct BackendChoice {
    pub(crate) name: String,
    /// The OCI runtime.
    pub(crate) runtime: String,
    /// Docker, or a compatible program.
    pub(crate) program: String,
    pub(crate) mode: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) job_dir: String,
    pub(crate) network: String,
}

impl BackendChoice {
    /// The backend. An error comes with the name of the variable.
    pub(crate) fn resolve(self) -> Result<Backend, (String, String)> {
        let Self { name, runtime, program, mode, container, user, job_dir, network } = self;
        match name.as_str() {
            "native" => Ok(Backend::Native),
            "oci" => Ok(Backend::Oci(runtime)),
            "docker" => {
                let usual = if container.is_some() { "exec" } else { "run" };
                let mode = match mode.as_deref().unwrap_or(usual) {
                    "run" => DockerMode::Run,
                    "exec" => DockerMode::Exec(container.unwrap_or_else(|| DEFAULT_CONTAINER.to_owned())),
                    other => {
                        return Err((DOCKER_MODE.to_owned(), format!("invalid value '{other}': expected run or exec")));
                    }
                };
                Ok(Backend::Docker(Docker { program, mode, user, job_dir, network }))
            }
            other => Err((BACKEND.to_owned(), format!("invalid value '{other}': expected native, oci or docker"))),
        }
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
    use crate::settings::{Settings, SettingsError};

    fn read_from(variables: &[(&str, &str)]) -> Result<Backend, SettingsError> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Settings::read(find).map(|settings| settings.backend)
    }

    #[test]
    fn a_backend_is_named_and_described_by_variables() {
        assert_eq!(read_from(&[]), Ok(Backend::Native));
        assert_eq!(read_from(&[(BACKEND, "oci")]), Ok(Backend::Oci("runc".into())));
        assert!(
            read_from(&[(BACKEND, "vm")]).is_err() && read_from(&[(BACKEND, "docker"), (DOCKER_MODE, "x")]).is_err()
        );
        let mode = |variables: &[(&str, &str)]| match read_from(variables) {
            Ok(Backend::Docker(docker)) => docker.mode,
            other => panic!("{other:?}"),
        };
        assert_eq!(mode(&[(BACKEND, "docker")]), DockerMode::Run);
        assert_eq!(mode(&[(BACKEND, "docker"), ("SANDBOX_CONTAINER", "c")]), DockerMode::Exec("c".into()));
        let exec = DockerMode::Exec("code-sandbox-runner".into());
        assert_eq!(mode(&[(BACKEND, "docker"), (DOCKER_MODE, "exec")]), exec);
    }

    #[test]
    fn required_layers_depend_on_the_backend() {
        let docker = read_from(&[(BACKEND, "docker")]).expect("valid");
        assert!(!required(&docker, Isolation::Full).contains(Layer::User));
        assert!(required(&docker, Isolation::Full).contains(Layer::Pid));
        assert!(required(&Backend::Oci("runc".into()), Isolation::Full).contains(Layer::User));
    }
}
