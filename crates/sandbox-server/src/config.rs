//! Configuration: flags, environment, a file, defaults, in this order. One table says what there is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sandbox_cell::units::{parse_duration, parse_size};
use sandbox_executor::Settings;

/// One setting.
pub(crate) struct Setting {
    /// Its flag, without dashes; with underscores, its name in a file.
    pub(crate) flag: &'static str,
    /// Its variables; the first is the one to use.
    pub(crate) variables: &'static [&'static str],
    /// What applies if nobody says anything.
    pub(crate) default: &'static str,
    /// One line for help and reference.
    pub(crate) help: &'static str,
}

/// Every setting of the server's own. Those of runs (limits, caches, volumes) are variables of the executor's, and may
/// stand in a file too.
pub(crate) const TABLE: &[Setting] = &[
    Setting { flag: "http-host", variables: &["HTTP_HOST"], default: "0.0.0.0", help: "address to listen on" },
    Setting {
        flag: "http-port",
        variables: &["HTTP_PORT", "SANDBOX_PORT"],
        default: "8080",
        help: "port to listen on; 0 for any",
    },
    Setting {
        flag: "http-read-timeout",
        variables: &["HTTP_READ_TIMEOUT"],
        default: "5s",
        help: "time for a client to send its request",
    },
    Setting {
        flag: "http-write-timeout",
        variables: &["HTTP_WRITE_TIMEOUT"],
        default: "10s",
        help: "time for a client to read what is sent to it; a run may take longer",
    },
    Setting {
        flag: "http-shutdown-timeout",
        variables: &["HTTP_SHUTDOWN_TIMEOUT"],
        default: "15s",
        help: "time for runs to end at shutdown",
    },
    Setting {
        flag: "capacity",
        variables: &["SANDBOX_CAPACITY"],
        default: "",
        help: "runs at one time [default: twice the number of CPUs]",
    },
    Setting { flag: "max-body", variables: &["SANDBOX_MAX_BODY"], default: "16m", help: "largest request body" },
    Setting {
        flag: "api-keys",
        variables: &["SANDBOX_API_KEYS"],
        default: "",
        help: "API keys, or sha256:… of them, separated by commas",
    },
    Setting { flag: "log-format", variables: &["SANDBOX_LOG_FORMAT"], default: "pretty", help: "pretty or json" },
    Setting {
        flag: "log-level",
        variables: &["SANDBOX_LOG_LEVEL"],
        default: "info",
        help: "error, warn, info, debug or trace",
    },
    Setting {
        flag: "rate-limit",
        variables: &["SANDBOX_RATE_LIMIT"],
        default: "",
        help: "requests a second for each key, or for each address where no key is needed [default: no limit]",
    },
    Setting {
        flag: "redis-addr",
        variables: &["REDIS_ADDR"],
        default: "",
        help: "Redis (HOST:PORT) for jobs that many servers share; without it they are in a file",
    },
    Setting { flag: "redis-password", variables: &["REDIS_PASSWORD"], default: "", help: "its password" },
    Setting { flag: "redis-db", variables: &["REDIS_DB"], default: "0", help: "the number of its database" },
    Setting { flag: "queue", variables: &["SANDBOX_QUEUE"], default: "10000", help: "jobs that may wait" },
    Setting {
        flag: "job-retention",
        variables: &["SANDBOX_JOB_RETENTION"],
        default: "24h",
        help: "how long jobs are kept after their end",
    },
    Setting {
        flag: "user",
        variables: &["SANDBOX_USER"],
        default: "nobody",
        help: "who the server becomes when it is started as root; the keeper stays root",
    },
    Setting {
        flag: "runtimes",
        variables: &["SANDBOX_RUNTIMES"],
        default: "",
        help: "directory with more definitions of languages",
    },
];

/// The configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) read_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) capacity: usize,
    pub(crate) max_body: usize,
    pub(crate) api_keys: Vec<String>,
    pub(crate) log_json: bool,
    pub(crate) log_level: tracing::Level,
    pub(crate) runtimes: Option<PathBuf>,
    pub(crate) user: String,
    pub(crate) rate_limit: Option<f64>,
    pub(crate) redis: Option<RedisConfig>,
    pub(crate) most_waiting: u64,
    pub(crate) retention: Duration,
    /// What runs may use, and where things are kept.
    pub(crate) settings: Settings,
    /// Every value with where it came from, for `--print-config`.
    pub(crate) origins: BTreeMap<&'static str, (String, &'static str)>,
}

/// Where Redis is.
#[derive(Clone)]
pub(crate) struct RedisConfig {
    pub(crate) address: String,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
}

impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The command line.
pub(crate) fn command() -> Command {
    let mut command = Command::new("sandbox-server")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Serves runs of code nobody trusts over HTTP, each in a single-use Linux sandbox")
        .after_help(
            "Every flag is also a variable and a key of the file; a flag beats a variable, which beats the file.\n\
             Limits of runs: SANDBOX_TIMEOUT, SANDBOX_MAX_TIMEOUT, SANDBOX_MEMORY, … as for sandbox-run.",
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .help("a TOML file with settings")
                .env("SANDBOX_CONFIG"),
        )
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("print the settings in effect and end"),
        );
    for setting in TABLE {
        let default =
            if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
        let help = format!("{}{default} [env: {}]", setting.help, setting.variables.join(", "));
        command = command.arg(Arg::new(setting.flag).long(setting.flag).value_name("VALUE").help(help));
    }
    command
}

/// Everything that is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

impl Config {
    /// Puts the configuration together. All mistakes are reported at once.
    pub(crate) fn read(matches: &ArgMatches, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let mut errors = vec![];
        let variable =
            |name: &str| variable(name).and_then(|value| value.into_string().ok()).filter(|v| !v.trim().is_empty());
        let file = match matches.get_one::<String>("config").map(|path| read_file(Path::new(path))) {
            Some(Ok(file)) => file,
            Some(Err(error)) => {
                errors.push(error);
                BTreeMap::new()
            }
            None => BTreeMap::new(),
        };
        let mut origins = BTreeMap::new();
        for setting in TABLE {
            let key = setting.flag.replace('-', "_");
            let value = matches
                .get_one::<String>(setting.flag)
                .map(|value| (value.clone(), "flag"))
                .or_else(|| Some((setting.variables.iter().find_map(|name| variable(name))?, "environment")))
                .or_else(|| Some((file.get(&key)?.clone(), "file")))
                .unwrap_or_else(|| (setting.default.to_owned(), "default"));
            origins.insert(setting.flag, value);
        }
        let known = |key: &String| TABLE.iter().any(|setting| setting.flag.replace('-', "_") == *key);
        for key in file.keys().filter(|key| !known(key) && !key.starts_with("SANDBOX_")) {
            errors.push(format!("the file's key '{key}' is unknown"));
        }
        let settings = Settings::read(|name| variable(name).or_else(|| file.get(name).cloned()));
        let mut settings = settings.unwrap_or_else(|error| {
            errors.extend(error.0.into_iter().map(|(name, why)| format!("{name}: {why}")));
            Settings::default()
        });
        // A service's files do not belong into root's home, where nobody else can go.
        let named = variable("SANDBOX_DATA_DIR").or_else(|| file.get("SANDBOX_DATA_DIR").cloned());
        if named.is_none() && rustix::process::geteuid().is_root() {
            settings.data_dir = Some(PathBuf::from("/var/lib/sandbox-server"));
        }
        let config = Self::parse(&origins, settings, &mut errors);
        match config {
            Some(config) if errors.is_empty() => Ok(Self { origins, ..config }),
            _ => Err(ConfigError(errors)),
        }
    }

    fn parse(
        values: &BTreeMap<&'static str, (String, &'static str)>,
        settings: Settings,
        errors: &mut Vec<String>,
    ) -> Option<Self> {
        let get = |flag: &str| values.get(flag).map_or("", |(value, _)| value.trim());
        let mut wrong = |flag: &str, why: String| errors.push(format!("{flag}: {why}"));
        let mut duration = |flag: &str| match parse_duration(get(flag)) {
            Ok(duration) => duration,
            Err(error) => {
                wrong(flag, error.to_string());
                Duration::ZERO
            }
        };
        let (read_timeout, shutdown_timeout) = (duration("http-read-timeout"), duration("http-shutdown-timeout"));
        let (write_timeout, retention) = (duration("http-write-timeout"), duration("job-retention"));
        let database: Option<i64> = get("redis-db").parse().ok().filter(|number| (0..1000).contains(number));
        if database.is_none() {
            wrong("redis-db", format!("'{}' is not the number of a database", get("redis-db")));
        }
        let redis = Some(get("redis-addr")).filter(|address| !address.is_empty()).map(|address| RedisConfig {
            address: address.to_owned(),
            password: Some(get("redis-password").to_owned()).filter(|password| !password.is_empty()),
            database: database.unwrap_or_default(),
        });
        let rate_limit = match get("rate-limit") {
            "" => None,
            text => match text.parse::<f64>() {
                Ok(rate) if rate > 0.0 && rate.is_finite() => Some(rate),
                _ => {
                    wrong("rate-limit", format!("'{text}' is not a number of requests a second"));
                    None
                }
            },
        };
        let most_waiting = get("queue").parse().ok();
        if most_waiting.is_none() {
            wrong("queue", format!("'{}' is not a number", get("queue")));
        }
        let host: Option<IpAddr> = get("http-host").parse().ok();
        if host.is_none() {
            wrong("http-host", format!("'{}' is not an IP address", get("http-host")));
        }
        let port: Option<u16> = get("http-port").parse().ok();
        if port.is_none() {
            wrong("http-port", format!("'{}' is not a port", get("http-port")));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let capacity = match get("capacity") {
            "" => Some(2 * cores),
            text => text.parse().ok().filter(|capacity| (1..=2000).contains(capacity)),
        };
        if capacity.is_none() {
            wrong("capacity", format!("'{}' is not a number from 1 to 2000", get("capacity")));
        }
        let max_body = match parse_size(get("max-body")).map(usize::try_from) {
            Ok(Ok(size)) if size > 0 => Some(size),
            _ => None,
        };
        if max_body.is_none() {
            wrong("max-body", format!("'{}' is not a size", get("max-body")));
        }
        let log_level = get("log-level").parse().ok();
        if log_level.is_none() {
            wrong("log-level", format!("'{}' is not a level", get("log-level")));
        }
        let log_json = match get("log-format") {
            "json" => Some(true),
            "pretty" => Some(false),
            other => {
                wrong("log-format", format!("'{other}' is neither pretty nor json"));
                None
            }
        };
        let api_keys: Vec<String> =
            get("api-keys").split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect();
        if let Some(short) = api_keys.iter().find(|key| key.len() < 16) {
            wrong("api-keys", format!("a key of {} characters is too short; use at least 16", short.len()));
        }
        Some(Self {
            listen: SocketAddr::new(host?, port?),
            read_timeout,
            write_timeout,
            shutdown_timeout,
            capacity: capacity?,
            max_body: max_body?,
            api_keys,
            log_json: log_json?,
            log_level: log_level?,
            runtimes: Some(get("runtimes")).filter(|dir| !dir.is_empty()).map(PathBuf::from),
            user: get("user").to_owned(),
            rate_limit,
            redis,
            most_waiting: most_waiting?,
            retention,
            settings,
            origins: BTreeMap::new(),
        })
    }

    /// The settings in effect, with where each came from. Keys are not shown.
    pub(crate) fn print(&self) -> String {
        let mut lines = vec![];
        for (flag, (value, origin)) in &self.origins {
            let shown = match (*flag, value.is_empty()) {
                ("api-keys", false) => format!("{} keys", self.api_keys.len()),
                ("redis-password", false) => "not shown".to_owned(),
                _ => value.clone(),
            };
            lines.push(format!("{} = {shown:?} # {origin}", flag.replace('-', "_")));
        }
        lines.join("\n")
    }
}

/// A file's settings as text.
fn read_file(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            _ => return Err(format!("{}: '{key}' must be text or a number", path.display())),
        };
        values.insert(key, text);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str], variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let matches = command().get_matches_from(std::iter::once(&"sandbox-server").chain(args));
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        Config::read(&matches, |name| variables.get(name).map(OsString::from))
    }

    #[test]
    fn flags_beat_variables_which_beat_the_file() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "http_port = 1\ncapacity = 7\nmax_body = \"1m\"\nSANDBOX_TIMEOUT = \"9s\"\n")
            .expect("write");
        let file = file.to_str().expect("utf-8");
        let config = read(&["--config", file, "--http-port", "3"], &[("HTTP_PORT", "2"), ("SANDBOX_CAPACITY", "5")]);
        let config = config.expect("valid");
        assert_eq!((config.listen.port(), config.capacity, config.max_body), (3, 5, 1 << 20));
        assert_eq!(config.settings.defaults.wall_time().as_secs(), 9);
        assert!(config.print().contains("http_port = \"3\" # flag"), "{}", config.print());
        assert_eq!(read(&[], &[("SANDBOX_PORT", "9")]).expect("valid").listen.port(), 9);
    }

    #[test]
    fn the_reference_lists_every_setting() {
        let reference = include_str!("../../../docs/SERVER.md");
        for setting in TABLE {
            let default = if setting.default.is_empty() { "" } else { setting.default };
            let row = format!("| `--{}` | `{}` | {default} |", setting.flag, setting.variables.join("`, `"));
            assert!(reference.contains(&row), "{row}");
        }
    }

    #[test]
    fn all_mistakes_are_listed_at_once() {
        let error = read(
            &["--http-port", "x", "--capacity", "0", "--api-keys", "tiny-secret"],
            &[("SANDBOX_MAX_BODY", "lots"), ("SANDBOX_MEMORY", "1k"), ("HTTP_READ_TIMEOUT", "soon")],
        )
        .expect_err("refused");
        assert_eq!(error.0.len(), 6, "{error}");
        assert!(!error.to_string().contains("tiny-secret"), "keys are not repeated");
    }
}
