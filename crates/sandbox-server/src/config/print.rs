//! `--print-config`: every setting in effect, in the form of a file of settings, with where it came from.

use std::fmt::Display;

use sandbox_base::limits::{LimitInfo, TABLE as LIMITS};
use sandbox_executor::{VARIABLES, VariableDefault};

use super::table::TABLE;
use super::{Config, without_secrets};
use crate::config::source::ValueSource;

impl Config {
    /// The settings in effect. Secrets are not shown.
    pub(crate) fn print(&self) -> String {
        let mut lines = vec![];
        for setting in TABLE {
            let (value, source) =
                self.sources.get(setting.flag).cloned().unwrap_or((String::new(), ValueSource::Default));
            let shown = self.shown(setting.flag, value);
            lines.push(line(&setting.flag.replace('-', "_"), &shown, &source));
        }
        // The backend is above, and the two directories only say where others are.
        let hidden = ["SANDBOX_BACKEND", "HOME", "XDG_CACHE_HOME"];
        for variable in VARIABLES.iter().filter(|variable| !hidden.contains(&variable.name)) {
            let (mut value, source) = self.of_runs(variable.name).unwrap_or_else(|| {
                let default = match variable.default {
                    VariableDefault::Value(text) => text,
                    VariableDefault::Nothing | VariableDefault::Text(_) => "",
                };
                (default.to_owned(), ValueSource::Default)
            });
            if variable.name == "SANDBOX_DATA_DIR" {
                value = self.settings.data_dir.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            }
            lines.push(line(variable.name, &value, &source));
        }
        for info in &LIMITS {
            let value =
                self.settings.defaults.get(info.kind).map_or("unlimited".to_owned(), |value| info.kind.write(value));
            lines.push(line(info.default_variable, &value, &self.source(info.default_variables())));
        }
        for info in &LIMITS {
            lines.push(line(info.cap_variable, &self.cap(info), &self.source(info.cap_variables())));
        }
        lines.join("\n")
    }

    /// Where the first of these variables that is set came from.
    fn source(&self, mut names: impl Iterator<Item = String>) -> ValueSource {
        names.find_map(|name| self.of_runs(&name)).map_or(ValueSource::Default, |(_, source)| source)
    }

    /// The cap of a limit.
    fn cap(&self, info: &LimitInfo) -> String {
        let most = self.settings.caps.most(info.kind);
        if most == info.most { "unlimited".to_owned() } else { info.kind.write(most) }
    }

    /// The value that a setting has in effect, if it is no secret.
    fn shown(&self, flag: &str, value: String) -> String {
        match (flag, value.is_empty()) {
            ("api-keys", _) if !self.api_keys.is_empty() => {
                let keys = self.api_keys.len();
                if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") }
            }
            ("redis-password", false) => "not shown".to_owned(),
            ("redis-url", false) => without_secrets(&value),
            ("capacity", _) => self.capacity.to_string(),
            ("ready-cells", _) => self.ready_cells.to_string(),
            ("max-connections-per-address", _) => self.max_connections_per_address.to_string(),
            ("queue-per-key", _) => self.bounds.waiting_per_owner.to_string(),
            ("rate-limit", true) => "unlimited".to_owned(),
            _ => value,
        }
    }
}

fn line(name: &str, value: &str, source: &dyn Display) -> String {
    format!("{name} = {value:?} # {source}")
}
