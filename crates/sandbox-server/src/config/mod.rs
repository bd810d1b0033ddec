//! Configuration: flags, environment, a file, defaults, in this order. All settings are in one table.

mod check;
mod print;
mod reload;
mod secrets;
mod source;
mod table;
mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sandbox_base::limits::{Caps, TABLE as LIMITS};
use sandbox_executor::{HostRule, Settings, Variable};
use sandbox_jobs::{Labels, StoreLimits};

pub(crate) use self::reload::Reloaded;
use self::source::SettingsFile;
pub(crate) use self::source::{Sourced, ValueSource};
use self::table::TABLE;
use self::values::Values;
use crate::auth::Keys;
use crate::prepare::PrepareChoice;
use crate::web::{AllowedHost, Cors};

/// The role of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerRole {
    /// Serves clients and carries out their runs.
    All,
    /// Serves clients, and leaves jobs to workers.
    Api,
    /// Runs jobs, and serves only operators.
    Worker,
}

impl ServerRole {
    /// Its name in settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Api => "api",
            Self::Worker => "worker",
        }
    }

    fn parse(values: &mut Values<'_>) -> Self {
        let role = [Self::All, Self::Api, Self::Worker].into_iter().find(|role| role.name() == values.text("role"));
        if role.is_none() {
            values.wrong("role", format!("invalid role '{}': expected all, api or worker", values.text("role")));
        }
        let role = role.unwrap_or(Self::All);
        if role != Self::All && !is_store_shared(values) {
            let why = format!(
                "the role {} needs a job store that several servers share; set a Redis server, or use the role all",
                role.name()
            );
            values.wrong("role", why);
        }
        role
    }
}

/// The labels of the worker.
fn labels(values: &mut Values<'_>) -> Labels {
    let names = values.text("labels").split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    match Labels::new(names.collect::<Vec<_>>()) {
        Ok(labels) => labels,
        Err(why) => {
            values.wrong("labels", why);
            Labels::default()
        }
    }
}

/// Whether other servers use the same job store.
fn is_store_shared(values: &Values<'_>) -> bool {
    ["redis-addr", "redis-url"].iter().any(|name| !values.text(name).is_empty())
}

/// The configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) role: ServerRole,
    /// What the worker offers to jobs that ask for it.
    pub(crate) labels: Labels,
    pub(crate) listen: SocketAddr,
    pub(crate) read_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) capacity: usize,
    /// The percentage of the capacity reserved for each class of runs.
    pub(crate) reserved_share: usize,
    pub(crate) max_body: usize,
    pub(crate) api_keys: Vec<String>,
    pub(crate) max_held: usize,
    /// Names of this server, besides its own.
    pub(crate) allowed_hosts: Vec<AllowedHost>,
    pub(crate) cors: Cors,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) max_streams: usize,
    #[cfg_attr(not(feature = "webhooks"), expect(dead_code, reason = "nothing is sent"))]
    pub(crate) webhook_allow: Vec<HostRule>,
    #[cfg_attr(not(feature = "webhooks"), expect(dead_code, reason = "nothing is sent"))]
    pub(crate) webhook_retry: Duration,
    pub(crate) log_json: bool,
    pub(crate) log_level: tracing::Level,
    pub(crate) runtimes: Option<PathBuf>,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing is sent"))]
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) user: String,
    pub(crate) rate_limit: Option<f64>,
    #[cfg(feature = "redis")]
    pub(crate) redis: Option<sandbox_jobs::RedisSettings>,
    pub(crate) bounds: StoreLimits,
    pub(crate) retention: Duration,
    /// What runs may use, and where things are kept.
    pub(crate) settings: Settings,
    /// How many cells are kept ready at most.
    pub(crate) ready_cells: usize,
    /// How many interpreters are kept warm at most.
    pub(crate) zygotes: usize,
    /// Which toolchains are prepared ahead.
    pub(crate) prepare: PrepareChoice,
    /// The value of each setting, and where it came from.
    sources: BTreeMap<&'static str, Sourced>,
    /// The same for the variables of runs that are set.
    run_sources: BTreeMap<String, Sourced>,
    /// What the operator should know, though the settings are valid.
    pub(crate) warnings: Vec<String>,
    /// The file of settings.
    file: Option<PathBuf>,
}

/// The command line.
pub(crate) fn command() -> Command {
    let mut command = Command::new("sandbox-server")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run untrusted code over HTTP, each run in a single-use Linux sandbox")
        .after_help(
            "Every flag is also a variable and a key in the file; flags override variables, variables override the file.\n\
             Limits of runs are variables, as for sandbox-run: SANDBOX_TIMEOUT, SANDBOX_MAX_TIMEOUT, SANDBOX_MEMORY, …\n\n\
             Exit code:\n  0  stopped by a signal (with --health: the server is ready)\n  \
             1  cannot serve; the last line gives the reason\n  \
             2  invalid configuration",
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .help("Read settings from a TOML file")
                .env("SANDBOX_CONFIG"),
        )
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("Print the settings in effect and where each came from, and exit"),
        )
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .action(ArgAction::SetTrue)
                .conflicts_with("print-config")
                .help("Check the settings without serving, print what is wrong with them, and exit"),
        )
        .arg(
            Arg::new("health")
                .long("health")
                .action(ArgAction::SetTrue)
                .help("Query the health of the server with these settings, print the response and exit"),
        )
        .subcommand(
            clap::Command::new("backup")
                .about("Copy the job store to a file, while the server with these settings runs or is stopped")
                .arg(
                    Arg::new("file")
                        .value_name("FILE")
                        .required(true)
                        .value_parser(clap::value_parser!(std::path::PathBuf))
                        .help("The file to create; it must not exist"),
                ),
        )
        .disable_help_subcommand(true)
        .arg(Arg::new("man").long("man").action(ArgAction::SetTrue).help("Print the man page and exit"))
        .arg(
            Arg::new("cold")
                .long("cold")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["ready-cells", "zygotes"])
                .help("Start every run cold; short for --ready-cells 0 --zygotes 0"),
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

/// The settings of Redis, if it is used.
#[cfg(feature = "redis")]
fn redis(values: &mut Values<'_>) -> Option<sandbox_jobs::RedisSettings> {
    use sandbox_jobs::RedisSettings;
    let database = values.number("redis-db", 0..=999).unwrap_or_default();
    let replicas = values.number("redis-wait-replicas", 0..=100).unwrap_or_default();
    let file = |flag: &str| values.optional(flag).map(PathBuf::from);
    let (ca, certificate, key) = (file("redis-tls-ca"), file("redis-tls-cert"), file("redis-tls-key"));
    let (flag, settings) = match (values.optional("redis-url"), values.optional("redis-addr")) {
        (Some(_), Some(_)) => {
            values.wrong("redis-url", "cannot be combined with redis-addr");
            return None;
        }
        (Some(url), None) => ("redis-url", RedisSettings::from_url(&url)),
        (None, Some(address)) => ("redis-addr", RedisSettings::from_address(&address)),
        (None, None) => return None,
    };
    let identity = match (&certificate, &key) {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        (Some(_), None) => {
            values.wrong("redis-tls-cert", "needs redis-tls-key");
            return None;
        }
        (None, Some(_)) => {
            values.wrong("redis-tls-key", "needs redis-tls-cert");
            return None;
        }
    };
    let settings = settings
        .and_then(|settings| settings.or_password(values.optional("redis-password")).or_database(database))
        .and_then(|settings| settings.with_tls_files(ca.as_deref(), identity));
    match settings {
        Ok(settings) => Some(settings.with_replicas(replicas)),
        Err(why) => {
            values.wrong(flag, why);
            None
        }
    }
}

/// A URL without its user, password and options.
fn without_secrets(url: &str) -> String {
    let url = url.split_once('?').map_or_else(|| url.to_owned(), |(url, _)| format!("{url}?…"));
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        (None, _) => "not shown".to_owned(),
        _ => url,
    }
}

/// Settings that need a feature of this crate, and whether the server was built with it.
const FEATURES: [(&str, &str, bool); 5] = [
    ("redis-addr", "redis", cfg!(feature = "redis")),
    ("redis-url", "redis", cfg!(feature = "redis")),
    ("webhook-allow", "webhooks", cfg!(feature = "webhooks")),
    ("webhook-retry", "webhooks", cfg!(feature = "webhooks")),
    ("otlp-endpoint", "otlp", cfg!(feature = "otlp")),
];

/// Refuses settings for which the server was not built.
fn refuse_missing_features(values: &mut Values<'_>) {
    for (flag, feature, _) in FEATURES.iter().filter(|(_, _, built)| !built) {
        if values.is_set(flag) {
            let why =
                format!("this server was built without the feature {feature}; build it with --features {feature}");
            values.wrong(flag, why);
        }
    }
}

/// The values of all settings, before those of the server are parsed.
struct Gathered {
    sources: BTreeMap<&'static str, Sourced>,
    run_sources: BTreeMap<String, Sourced>,
    settings: Settings,
    errors: Vec<String>,
}

impl Gathered {
    fn from(matches: &ArgMatches, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut errors = vec![];
        let variable =
            |name: &str| variable(name).and_then(|value| value.into_string().ok()).filter(|v| !v.trim().is_empty());
        let file = matches.get_one::<String>("config").map(|path| SettingsFile::read(Path::new(path))).transpose();
        let file = file.unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        let file = file.unwrap_or_default();
        let from_environment = |name: &str| Some((variable(name)?, ValueSource::Variable(name.to_owned())));
        let mut sources = BTreeMap::new();
        for setting in TABLE {
            let value = matches
                .get_one::<String>(setting.flag)
                .map(|value| (value.clone(), ValueSource::Flag(setting.flag.to_owned())))
                .or_else(|| {
                    let off = matches.get_flag("cold") && ["ready-cells", "zygotes"].contains(&setting.flag);
                    off.then(|| ("0".to_owned(), ValueSource::Flag("cold".to_owned())))
                })
                .or_else(|| setting.variables.iter().find_map(|name| from_environment(name)))
                .or_else(|| file.get(&setting.flag.replace('-', "_")))
                .unwrap_or_else(|| (setting.default.to_owned(), ValueSource::Default));
            sources.insert(setting.flag, value);
        }
        for key in file.keys().filter(|key| !is_key(key)) {
            let line = file.get(key).map(|(_, source)| source.to_string()).unwrap_or_default();
            let setting = TABLE.iter().find(|setting| setting.variables.contains(&key.as_str()));
            let fix = setting.map(|setting| format!("; write it as {}", setting.flag.replace('-', "_")));
            errors.push(format!("{line}: unknown key '{key}'{}", fix.unwrap_or_default()));
        }
        let of_runs = |name: &str| from_environment(name).or_else(|| file.get(name));
        let run_sources = RefCell::new(BTreeMap::new());
        let setting = |name: &str| {
            if name == "SANDBOX_BACKEND" {
                return sources.get("backend").map(|(value, _)| value.clone());
            }
            let sourced = of_runs(name)?;
            run_sources.borrow_mut().insert(name.to_owned(), sourced.clone());
            Some(sourced.0)
        };
        let settings = Settings::read_with(setting, &default_caps());
        let run_sources = run_sources.take();
        let settings = settings.unwrap_or_else(|error| {
            errors.extend(error.0.into_iter().map(|(name, why)| {
                let name = run_sources.get(&name).map_or(name.clone(), |(_, source)| source.name(&name));
                format!("{name}: {why}")
            }));
            Settings::default()
        });
        Self { sources, run_sources, settings, errors }
    }
}

impl Config {
    /// Puts the configuration together. All mistakes are reported at once.
    pub(crate) fn read(matches: &ArgMatches, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let Gathered { mut sources, run_sources, mut settings, mut errors } = Gathered::from(matches, variable);
        secrets::resolve(&mut sources, &mut errors);
        // A service's files do not belong in root's home directory, which other users cannot enter.
        if !run_sources.contains_key("SANDBOX_DATA_DIR") && rustix::process::geteuid().is_root() {
            settings.data_dir = Some(PathBuf::from("/var/lib/sandbox-server"));
        }
        let config = Self::parse(&mut Values { values: &sources, errors: &mut errors }, settings);
        match config {
            Some(config) if errors.is_empty() => {
                let warnings = secrets::warnings(&sources);
                let file = matches.get_one::<String>("config").map(PathBuf::from);
                Ok(Self { sources, run_sources, warnings, file, ..config })
            }
            _ => Err(ConfigError(errors)),
        }
    }

    /// The address of Redis, without secrets.
    #[cfg(feature = "redis")]
    pub(crate) fn redis_address(&self) -> String {
        let text =
            |flag: &str| self.sources.get(flag).map(|(value, _)| value.clone()).filter(|value| !value.is_empty());
        text("redis-addr").or_else(|| text("redis-url").map(|url| without_secrets(&url))).unwrap_or_default()
    }

    /// The directories of the files that are read again for a reload. A file that is replaced is another one.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let keys = self.sources.get("api-keys-file").map(|(path, _)| PathBuf::from(path.trim()));
        let files = self.file.clone().into_iter().chain(keys);
        let parents = files.filter_map(|file| Some(std::path::absolute(file).ok()?.parent()?.to_owned()));
        parents.filter(|parent| parent.parent().is_some()).collect()
    }

    /// The value of a variable of runs, if it is set, and where it came from.
    fn of_runs(&self, name: &str) -> Option<Sourced> {
        self.run_sources.get(name).filter(|(value, _)| !value.trim().is_empty()).cloned()
    }

    fn parse(values: &mut Values<'_>, settings: Settings) -> Option<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let capacity =
            if values.text("capacity").is_empty() { Some(2 * cores) } else { values.number("capacity", 1..=2000) };
        let ready_cells = if values.text("ready-cells").is_empty() {
            Some(4 * cores)
        } else {
            values.number("ready-cells", 0..=1000)
        };
        let zygotes = values.number("zygotes", 0..=64);
        let (max_body, max_held) = (values.size("max-body"), values.size("max-held"));
        // Half of it is for requests, half of that for one client, and a body is charged twice; a fifth more for its parts.
        if max_body.zip(max_held).is_some_and(|(body, held)| held / 10 < body) {
            values.wrong("max-held", "must be at least ten times max-body, so that a request of that size fits");
        }
        let otlp_endpoint = values.optional("otlp-endpoint");
        refuse_missing_features(values);
        let log_json = match values.text("log-format") {
            "json" => true,
            "pretty" => false,
            other => {
                let why = format!("invalid value '{other}': expected pretty or json");
                values.wrong("log-format", why);
                false
            }
        };
        let api_keys = api_keys(values);
        let bounds = bounds(values, api_keys.len());
        let max_connections = values.number("max-connections", 1..=100_000).unwrap_or_default();
        let host = values.parsed::<IpAddr>("http-host", "an IP address");
        let port = values.number("http-port", 0..=u16::MAX);
        let cors = cors(values, !api_keys.is_empty());
        let role = ServerRole::parse(values);
        Some(Self {
            role,
            labels: labels(values),
            allowed_hosts: values.list("allowed-hosts", AllowedHost::parse),
            cors,
            read_timeout: values.duration("http-read-timeout"),
            idle_timeout: values.duration("http-idle-timeout"),
            write_timeout: values.duration("http-write-timeout"),
            shutdown_timeout: values.duration("http-shutdown-timeout"),
            retention: values.duration("job-retention"),
            webhook_retry: values.duration("webhook-retry"),
            webhook_allow: values.list("webhook-allow", HostRule::parse),
            rate_limit: values.optional("rate-limit").and_then(|_| values.rate("rate-limit")),
            bounds,
            api_keys,
            max_connections_per_address: per_address(values, max_connections),
            max_streams: values.number("max-streams", 1..=100_000).unwrap_or_default(),
            max_connections,
            log_level: values.parsed("log-level", "a level").unwrap_or(tracing::Level::INFO),
            runtimes: values.optional("runtimes").map(PathBuf::from),
            prepare: PrepareChoice::parse(values.text("prepare")),
            user: values.text("user").to_owned(),
            log_json,
            otlp_endpoint,
            #[cfg(feature = "redis")]
            redis: redis(values),
            settings,
            sources: BTreeMap::new(),
            run_sources: BTreeMap::new(),
            warnings: vec![],
            file: None,
            listen: SocketAddr::new(host?, port?),
            capacity: capacity?,
            reserved_share: values.number("reserved-share", 0..=50)?,
            ready_cells: ready_cells?,
            zygotes: zygotes?,
            max_body: max_body?,
            max_held: max_held?,
        })
    }
}

/// The default caps of limits on this host.
fn default_caps() -> Caps {
    let host = rustix::system::sysinfo();
    let host = host.totalram.saturating_mul(host.mem_unit.into());
    // A container may have less than its host.
    let group = |file: &str| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let memory = groups.into_iter().filter_map(group).fold(host, u64::min);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Caps::for_server(memory, u64::try_from(cpus).unwrap_or(1))
}

/// Whether a variable sets a default or a cap of a limit.
fn is_limit(name: &str) -> bool {
    let mut variables = LIMITS.iter().flat_map(|info| info.default_variables().chain(info.cap_variables()));
    variables.any(|variable| variable == name)
}

/// Whether a file may have this key: a setting of the server, or a variable of runs.
fn is_key(key: &str) -> bool {
    TABLE.iter().any(|setting| setting.flag.replace('-', "_") == key)
        || (key.starts_with("SANDBOX_") && Variable::by_name(key).is_some() && key != "SANDBOX_BACKEND")
        || is_limit(key)
}

/// The quotas of the job store.
fn bounds(values: &mut Values<'_>, keys: usize) -> StoreLimits {
    let waiting = values.number("queue", 0..=u64::MAX).unwrap_or_default();
    let waiting_per_owner = if !values.text("queue-per-key").is_empty() {
        values.number("queue-per-key", 0..=u64::MAX).unwrap_or_default()
    } else if keys >= 2 {
        waiting.div_ceil(2)
    } else {
        waiting
    };
    let bytes_per_owner = values.size("job-storage").unwrap_or_default() as u64;
    StoreLimits { waiting, waiting_per_owner, bytes_per_owner }
}

/// The maximum number of connections of one address.
fn per_address(values: &mut Values<'_>, of: usize) -> usize {
    match values.optional("max-connections-per-address") {
        None => of.div_ceil(2),
        Some(_) => values.number("max-connections-per-address", 1..=100_000).unwrap_or_default(),
    }
}

/// The keys in a list and in a file.
fn api_keys(values: &mut Values<'_>) -> Vec<String> {
    let mut keys = values.list("api-keys", |key| Ok(key.to_owned()));
    if let Some(path) = values.optional("api-keys-file") {
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                keys.extend(lines.map(str::to_owned));
            }
            Err(error) => values.wrong("api-keys-file", format!("cannot read {path}: {error}")),
        }
    }
    if let Err(error) = Keys::new(&keys) {
        values.wrong("api-keys", error);
    }
    keys
}

/// The origins whose pages may use the server. All of them only if a page needs a key too.
fn cors(values: &mut Values<'_>, has_keys: bool) -> Cors {
    let mut cors = Cors::default();
    for origin in values.list("cors-origins", |origin| Ok(origin.to_owned())) {
        if let Err(why) = cors.add(&origin) {
            values.wrong("cors-origins", why);
        }
    }
    if cors.is_any() && !has_keys {
        values.wrong("cors-origins", "* requires api-keys: without keys, any web page could run code");
    }
    cors
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
    fn settings_without_their_feature_are_refused() {
        let values = [("redis-addr", "localhost:6379"), ("webhook-allow", "a.example"), ("webhook-retry", "7s")];
        for (flag, value) in values.into_iter().chain([("otlp-endpoint", "http://localhost:4318")]) {
            let (_, feature, built) = FEATURES.into_iter().find(|(known, _, _)| *known == flag).expect(flag);
            let refused = read(&[&format!("--{flag}"), value], &[]).err().map(|error| error.to_string());
            let expected = format!(
                "--{flag}: this server was built without the feature {feature}; build it with --features {feature}"
            );
            assert_eq!(refused, (!built).then_some(expected));
        }
    }

    #[test]
    fn generated_parts_are_up_to_date() {
        let reference = sandbox_manual::chapter(command());
        sandbox_manual::hold("docs/REFERENCE.md", "sandbox-server", &reference).expect("up to date");
        let rows = TABLE.iter().map(|setting| {
            let variables = sandbox_manual::code_list(setting.variables.iter().copied());
            [format!("`--{}`", setting.flag), variables, setting.default.to_owned(), setting.help.to_owned()]
        });
        let settings = sandbox_manual::table(["flag", "variable", "default", "meaning"], rows);
        sandbox_manual::hold("docs/SERVER.md", "settings", &settings).expect("up to date");
    }

    #[test]
    fn every_value_in_effect_is_printed_with_its_source() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "http_port = 1\n\nSANDBOX_MAX_MEMORY = \"1g\"\n").expect("write");
        let file = file.to_str().expect("utf-8");
        let variables = [("SANDBOX_PIDS", "9"), ("SANDBOX_SHARE", "packages"), ("SANDBOX_DATA_DIR", "/srv/x")];
        let printed = read(&["--config", file, "--capacity", "3"], &variables).expect("valid").print();
        for line in [
            "capacity = \"3\" # flag --capacity".to_owned(),
            format!("http_port = \"1\" # {file}:1"),
            format!("SANDBOX_MAX_MEMORY = \"1g\" # {file}:3"),
            "SANDBOX_PROCESSES = \"9\" # variable SANDBOX_PIDS".to_owned(),
            "SANDBOX_SHARE = \"packages\" # variable SANDBOX_SHARE".to_owned(),
            "SANDBOX_DATA_DIR = \"/srv/x\" # variable SANDBOX_DATA_DIR".to_owned(),
            "SANDBOX_ISOLATION = \"full\" # default".to_owned(),
            "SANDBOX_TIMEOUT = \"3s\" # default".to_owned(),
            "queue_per_key = \"10000\" # default".to_owned(),
        ] {
            assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
        }
        assert!(printed.lines().all(|line| line.contains(" = \"") && line.contains(" # ")), "{printed}");
    }

    #[test]
    fn secrets_can_come_from_files_and_are_never_printed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("secret");
        let file = path.to_str().expect("utf-8");
        std::fs::write(&path, "the-secret-0123456\n").expect("write");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("mode");
        let files = ["--api-keys-file", file, "--redis-password-file", file, "--redis-addr", "localhost:1"];
        let config = read(&files, &[]);
        if cfg!(feature = "redis") {
            let config = config.expect("valid");
            assert_eq!((config.api_keys.len(), config.warnings.as_slice()), (1, &[][..]));
            let printed = config.print();
            assert!(printed.contains(&format!("redis_password = \"not shown\" # file {file}")), "{printed}");
            assert!(!printed.contains("the-secret"), "{printed}");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("mode");
            let warnings = read(&files, &[]).expect("valid").warnings;
            assert!(warnings.len() == 2 && warnings[0].contains("mode 0644"), "{warnings:?}");
            let error = read(&["--redis-password-file", file, "--redis-password", "x"], &[]).expect_err("refused");
            assert_eq!(error.to_string(), "--redis-password-file: cannot be combined with redis-password");
        }
        let warnings = read(&["--api-keys", "the-secret-0123456"], &[]).expect("valid").warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("--api-keys-file"), "{warnings:?}");
        let error = read(&["--redis-url-file", "/nowhere"], &[]).expect_err("refused").to_string();
        assert_eq!(error, "--redis-url-file: cannot read /nowhere: No such file or directory (os error 2)");
    }

    #[test]
    fn mistakes_are_named_as_the_operator_has_written_them() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "max_body = \"lots\"\nSANDBOX_MEMROY = \"1g\"\nSANDBOX_QUEUE = 1\n").expect("write");
        let file = file.to_str().expect("utf-8");
        let error = read(&["--config", file, "--capacity", "0"], &[("HTTP_PORT", "x")]).expect_err("refused");
        for part in [
            "--capacity: invalid value '0'".to_owned(),
            "HTTP_PORT: invalid value 'x'".to_owned(),
            format!("{file}:1: max_body: invalid size"),
            format!("{file}:2: unknown key 'SANDBOX_MEMROY'"),
            format!("{file}:3: unknown key 'SANDBOX_QUEUE'; write it as queue"),
        ] {
            assert!(error.0.iter().any(|error| error.starts_with(&part)), "{part}\n{error}");
        }
        let config = read(&["--user", "no-such-user", "--prepare", "pyhton"], &[("SANDBOX_DATA_DIR", "/dev/null")]);
        let error = config.expect("valid").check().expect_err("refused");
        assert!(error.0.iter().any(|error| error == "SANDBOX_DATA_DIR: /dev/null is no directory"), "{error}");
        assert!(error.0.iter().any(|error| error.starts_with("--prepare: unknown language 'pyhton'")), "{error}");
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(error.0.iter().any(|error| error == "--user: no user 'no-such-user'"), is_root, "{error}");
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
