//! `--check-config`: what is wrong with settings that can be read, as far as this can be found out without a start.

use sandbox_executor::HostVariables;
use sandbox_runtimes::{Definition, Registry};

use super::{Config, ConfigError};
use crate::prepare::PrepareChoice;
use crate::privilege;

impl Config {
    /// Checks what otherwise only the start of a server would notice.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut errors = self.check_languages();
        if rustix::process::geteuid().is_root() && self.user != "root" && privilege::look_up(&self.user).is_none() {
            errors.push(format!("{}: no user '{}'", self.name_of("user"), self.user));
        }
        let name = self.of_runs("SANDBOX_DATA_DIR");
        let name = name.map_or("SANDBOX_DATA_DIR".to_owned(), |(_, source)| source.name("SANDBOX_DATA_DIR"));
        match &self.settings.data_dir {
            None => errors.push(format!("{name}: no data directory; set one")),
            Some(path) if path.exists() && !path.is_dir() => {
                errors.push(format!("{name}: {} is no directory", path.display()));
            }
            Some(_) => {}
        }
        if errors.is_empty() { Ok(()) } else { Err(ConfigError(errors)) }
    }

    /// What is wrong with the definitions of languages, and with settings that name languages.
    fn check_languages(&self) -> Vec<String> {
        let mut registry = match Registry::shipped() {
            Ok(registry) => registry,
            Err(error) => return vec![error.to_string()],
        };
        let mut errors = vec![];
        if let Some(dir) = &self.runtimes
            && let Err(error) = registry.add_directory(dir)
        {
            errors.push(format!("{}: {error}", self.name_of("runtimes")));
        }
        if let PrepareChoice::Named(names) = &self.prepare {
            let unknown = names.iter().filter_map(|name| registry.by_name(name).err());
            errors.extend(unknown.map(|error| format!("{}: {error}", self.name_of("prepare"))));
        }
        let mut variables = HostVariables::of_this_process();
        errors.extend(variables.read_files(registry.all().flat_map(Definition::passed_variables)).err());
        errors
    }

    /// A setting as the operator has written it.
    fn name_of(&self, flag: &str) -> String {
        let key = flag.replace('-', "_");
        self.sources.get(flag).map_or(key.clone(), |(_, source)| source.name(&key))
    }
}
