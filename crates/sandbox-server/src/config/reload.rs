//! The part of the configuration that a running server can read again: API keys, the rate limit, and the limits of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use clap::ArgMatches;
use sandbox_base::limits::{Caps, Limits};

use super::source::Sourced;
use super::table::TABLE;
use super::values::Values;
use super::{Config, ConfigError, Gathered, api_keys, is_limit};

/// The settings of the server that a reload applies.
const RELOADED: [&str; 3] = ["api-keys", "api-keys-file", "rate-limit"];

/// What was read again.
#[derive(Debug)]
pub(crate) struct Reloaded {
    pub(crate) api_keys: Vec<String>,
    pub(crate) rate_limit: Option<f64>,
    pub(crate) defaults: Limits,
    pub(crate) caps: Caps,
    sources: BTreeMap<&'static str, Sourced>,
    run_sources: BTreeMap<String, Sourced>,
}

/// What a reload has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Settings that are in effect now.
    pub(crate) applied: Vec<String>,
    /// Settings that need a restart.
    pub(crate) pending: Vec<String>,
}

impl Reloaded {
    /// Reads the settings again. Files of other settings are not read: the server may not be able to by now.
    pub(crate) fn read(matches: &ArgMatches, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let Gathered { sources, run_sources, settings, mut errors } = Gathered::from(matches, variable);
        let mut values = Values { values: &sources, errors: &mut errors };
        let api_keys = api_keys(&mut values);
        let rate_limit = values.optional("rate-limit").and_then(|_| values.rate("rate-limit"));
        if !errors.is_empty() {
            return Err(ConfigError(errors));
        }
        let (defaults, caps) = (settings.defaults, settings.caps);
        Ok(Self { api_keys, rate_limit, defaults, caps, sources, run_sources })
    }
}

impl Config {
    /// Takes over what was read again.
    pub(crate) fn take(&mut self, new: Reloaded) -> Changes {
        let mut changes = Changes::default();
        let text = |sourced: Option<&Sourced>| sourced.map(|(value, _)| value.trim().to_owned()).unwrap_or_default();
        for setting in TABLE {
            let key = setting.flag.replace('-', "_");
            let is_new = text(self.sources.get(setting.flag)) != text(new.sources.get(setting.flag));
            if setting.flag == "api-keys" {
                // The keys may be others though their file is the same.
                if self.api_keys != new.api_keys {
                    let (before, now) = (self.api_keys.len(), new.api_keys.len());
                    changes.applied.push(format!("{key}: {before} before, {now} now"));
                }
            } else if is_new && RELOADED.contains(&setting.flag) {
                changes.applied.push(format!("{key} = {:?}", text(new.sources.get(setting.flag))));
            } else if is_new && !is_secret_of_a_file(setting.flag) {
                changes.pending.push(key);
            }
        }
        let names: BTreeSet<&String> = self.run_sources.keys().chain(new.run_sources.keys()).collect();
        for name in names {
            let value = text(new.run_sources.get(name));
            if text(self.run_sources.get(name)) != value {
                let changed = if is_limit(name) { &mut changes.applied } else { &mut changes.pending };
                changed.push(if is_limit(name) { format!("{name} = {value:?}") } else { name.clone() });
            }
        }
        for flag in RELOADED {
            if let Some(value) = new.sources.get(flag) {
                self.sources.insert(flag, value.clone());
            }
        }
        self.run_sources.retain(|name, _| !is_limit(name));
        self.run_sources.extend(new.run_sources.into_iter().filter(|(name, _)| is_limit(name)));
        (self.api_keys, self.rate_limit) = (new.api_keys, new.rate_limit);
        (self.settings.defaults, self.settings.caps) = (new.defaults, new.caps);
        changes
    }
}

/// Settings whose value may have come from a file that a reload does not read.
fn is_secret_of_a_file(flag: &str) -> bool {
    ["redis-url", "redis-password"].contains(&flag)
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    #[test]
    fn a_reload_applies_keys_and_limits_and_names_the_rest() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (file, keys) = (dir.path().join("c.toml"), dir.path().join("keys"));
        std::fs::write(&keys, "first-key-0123456\n").expect("write");
        let write = |settings: &str| {
            let text = format!("api_keys_file = {:?}\n{settings}", keys.display().to_string());
            std::fs::write(&file, text).expect("write");
        };
        write("SANDBOX_TIMEOUT = \"4s\"\nqueue = 7\nSANDBOX_SHARE = \"all\"");
        let matches = command().get_matches_from(["sandbox-server", "--config", file.to_str().expect("utf-8")]);
        let mut config = Config::read(&matches, |_| None).expect("valid");
        let mut reload = || Reloaded::read(&matches, |_| None).map(|new| config.take(new));
        assert_eq!(reload().expect("valid"), Changes::default());
        std::fs::write(&keys, "other-key-0123456\nthird-key-0123456\n").expect("write");
        write("SANDBOX_TIMEOUT = \"5s\"\nSANDBOX_MAX_PIDS = \"9\"\nqueue = 8\nrate_limit = 2");
        let Changes { applied, pending } = reload().expect("valid");
        let expected =
            ["api_keys: 1 before, 2 now", "rate_limit = \"2\"", "SANDBOX_MAX_PIDS = \"9\"", "SANDBOX_TIMEOUT = \"5s\""];
        assert_eq!(applied, expected);
        assert_eq!(pending, ["queue", "SANDBOX_SHARE"]);
        write("SANDBOX_TIMEOUT = \"never\"");
        assert!(reload().is_err_and(|error| error.to_string().contains("c.toml:2: SANDBOX_TIMEOUT")));
        assert_eq!((config.api_keys.len(), config.settings.defaults.wall_time().as_secs()), (2, 5));
    }
}
