//! The faces of the product, and what their users write to change a request. A hint has the same words on each face, and
//! names a flag on one and a field on the other.

use sandbox_base::LimitKind;

use crate::network::NetworkMode;
use crate::plan::Step;

/// The face that a request came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Face {
    /// The command line: flags.
    Command,
    /// HTTP: fields of the request.
    #[default]
    Http,
}

impl Face {
    /// Sets a limit.
    pub(crate) fn limit(self, kind: LimitKind, value: u64) -> String {
        let (info, value) = (kind.info(), kind.write(value));
        match self {
            Self::Command => format!("--{} {value}", info.flag),
            Self::Http => format!(r#""limits": {{"{}": "{value}"}}"#, info.name),
        }
    }

    /// Raises a limit of a step before the run, if its users can: on the command line those of time.
    pub(crate) fn limit_of_step(self, step: Step, kind: LimitKind) -> Option<String> {
        let is_flag = (self, kind) == (Self::Command, LimitKind::WallTime);
        is_flag.then(|| format!("--{}-timeout", step.stage()))
    }

    /// Installs packages.
    pub(crate) fn packages(self, names: &[&str]) -> String {
        match self {
            Self::Command => names.iter().map(|name| format!("--package {name}")).collect::<Vec<_>>().join(" "),
            Self::Http => {
                let names: Vec<_> = names.iter().map(|name| format!(r#""{name}""#)).collect();
                format!(r#""packages": [{}]"#, names.join(", "))
            }
        }
    }

    /// Adds a file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Command => "add it with --input",
            Self::Http => r#"add it to "files""#,
        }
    }

    /// Allows a host, with its port if that is no usual one.
    pub(crate) fn host(self, host: &str) -> String {
        match self {
            Self::Command => format!("--allow-host {host}"),
            Self::Http => format!(r#""network": {{"mode": "allowlist", "hosts": ["{host}"]}}"#),
        }
    }

    /// Chooses a network mode.
    pub(crate) fn network(self, mode: NetworkMode) -> String {
        match self {
            Self::Command => format!("--network {mode}"),
            Self::Http => format!(r#""network": "{mode}""#),
        }
    }

    /// Gives the program standard input.
    pub(crate) fn stdin(self) -> &'static str {
        match self {
            Self::Command => "pass a file with --stdin FILE, or the input of this command with --stdin -",
            Self::Http => r#"set "stdin""#,
        }
    }
}
