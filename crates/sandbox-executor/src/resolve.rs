//! Resolves facts about the host before the plan is made: real paths, variables, a random token. The plan itself is a
//! pure function of its arguments.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;

use sandbox_cell::{Failure, Mount};

use crate::request::{Request, RequestError};
use crate::settings::Settings;
use crate::stage::failure;
use crate::template::new_token;

/// The variables of the host, of which installers see a few.
#[derive(Debug, Clone, Default)]
pub struct HostVariables(Arc<HashMap<OsString, OsString>>);

impl HostVariables {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self(Arc::new(std::env::vars_os().collect()))
    }

    /// Sets each of these variables that is not set to the content of the file that `NAME_FILE` names, if there is one: an
    /// index with credentials need not be in the environment.
    pub fn read_files<'n>(&mut self, names: impl Iterator<Item = &'n str>) -> Result<(), String> {
        let variables = Arc::make_mut(&mut self.0);
        for name in names {
            let (name, file) = (OsString::from(name), OsString::from(format!("{name}_FILE")));
            let Some(path) = variables.get(&file).filter(|path| !path.is_empty() && !variables.contains_key(&name))
            else {
                continue;
            };
            let text = std::fs::read_to_string(path).map_err(|error| {
                format!("{}: cannot read {}: {error}", file.to_string_lossy(), path.to_string_lossy())
            })?;
            variables.insert(name, text.trim().into());
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<OsString> {
        self.0.get(std::ffi::OsStr::new(name)).cloned()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for HostVariables {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(Arc::new(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
    }
}

/// Why something of the host could not be found out.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// The request asks for something that does not exist or is not allowed.
    Request(RequestError),
    /// The host failed.
    Failure(Failure),
}

/// The facts that were resolved for a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    /// For each volume that is a directory or file of the host.
    pub(crate) mounts: Vec<Mount>,
    pub(crate) variables: HostVariables,
    /// What a template has to print at its end; none without a template.
    pub(crate) token: Option<String>,
}

impl Resolved {
    pub(crate) fn new(request: &Request, settings: &Settings, variables: &HostVariables) -> Result<Self, Unresolved> {
        let mut mounts = vec![];
        for mount in request.volumes.iter().filter_map(|volume| volume.mount(settings)) {
            mounts.push(mount.map_err(|why| Unresolved::Request(RequestError::Directory(why)))?);
        }
        let token = request.template.is_some().then(new_token).transpose();
        let token = token.map_err(|error| Unresolved::Failure(failure("cannot draw a random token", &error)))?;
        Ok(Self { mounts, variables: variables.clone(), token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_can_come_from_files() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("index");
        std::fs::write(&path, "https://user:password@index.example/simple/\n").expect("write");
        let path = path.to_str().expect("utf-8");
        let mut variables = HostVariables::from([("A_FILE", path), ("B", "own"), ("B_FILE", path), ("C_FILE", path)]);
        variables.read_files(["A", "B"].into_iter()).expect("readable");
        assert_eq!(variables.get("A"), Some("https://user:password@index.example/simple/".into()));
        assert_eq!((variables.get("B"), variables.get("C")), (Some("own".into()), None));
        let mut variables = HostVariables::from([("A_FILE", "/nowhere")]);
        let error = variables.read_files(["A"].into_iter()).expect_err("refused");
        assert_eq!(error, "A_FILE: cannot read /nowhere: No such file or directory (os error 2)");
    }
}
