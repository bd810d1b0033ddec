//! `sandbox-run doctor`: what runs on this host need and whether it is there: isolation layers, toolchains, package
//! installers, storage, and what a server is configured to use. With the cost of each absence, and the fix.

mod check;
mod redis;
mod storage;
mod toolchains;

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use sandbox_backends::Backend;
use sandbox_cell::LayerSet;
use sandbox_cell::probe::{Finding, HostReport, SharedPool, examine};
use sandbox_executor::Settings;
use sandbox_runtimes::{ArtifactStore, Registry};
use serde_json::{Value, json};

use crate::exit_code;
use crate::output::print_error;
use crate::request;
use check::{HostCheck, lines};
use toolchains::{Language, language_lines, language_values};

const GOOD: Style = AnsiColor::Green.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// What was found, besides the host itself.
#[derive(Default)]
struct Surroundings {
    languages: Vec<Language>,
    packages: Vec<HostCheck>,
    prepared: Vec<HostCheck>,
    storage: Vec<HostCheck>,
    backend: Option<HostCheck>,
    redis: Option<HostCheck>,
    warnings: Vec<String>,
}

/// Examines the host. Returns 1 if the default policy cannot be met.
pub(crate) fn doctor(as_json: bool) -> u8 {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::read(variable).unwrap_or_default();
    let host = match examine(settings.required()) {
        Ok(host) => host,
        Err(failure) => {
            print_error(&failure.to_string());
            return exit_code::INTERNAL;
        }
    };
    let around = Surroundings::examine(&settings, variable);
    let mut out = anstream::stdout().lock();
    let printed = if as_json {
        writeln!(out, "{:#}", as_value(&host, settings.required(), &around))
    } else {
        write!(out, "{}", as_text(&host, &around))
    };
    u8::from(printed.is_err() || !host.meets_policy())
}

impl Surroundings {
    fn examine(settings: &Settings, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut warnings = server_warnings(&variable);
        let own = variable("SANDBOX_RUNTIMES").filter(|dir| !dir.is_empty());
        let registry = request::registry(own.as_deref().map(Path::new)).or_else(|error| {
            warnings.push(format!("SANDBOX_RUNTIMES: {error}"));
            Registry::shipped()
        });
        let languages = registry.map(|registry| toolchains::languages(settings, &registry)).unwrap_or_default();
        let store = settings.data_dir.as_deref().map(ArtifactStore::new);
        Self {
            packages: toolchains::packages(&languages),
            prepared: store.map(|store| toolchains::prepared(&languages, &store)).unwrap_or_default(),
            storage: storage::storage(settings),
            redis: redis::redis(&variable),
            backend: backend(&settings.backend, variable),
            languages,
            warnings,
        }
    }
}

/// The program of a backend that variables select instead of the native one.
fn backend(backend: &Backend, variable: impl Fn(&str) -> Option<String>) -> Option<HostCheck> {
    let (program, package) = match backend {
        Backend::Native => return None,
        Backend::Oci(runtime) => (runtime, "runc"),
        Backend::Docker(docker) => (&docker.program, "docker.io"),
    };
    let path = variable("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
    Some(match found {
        Some(file) => HostCheck::ok("backend", file.display().to_string()),
        None => HostCheck::missing(
            "backend",
            format!("{program} was not found"),
            "no program runs",
            format!("install it (Debian: apt-get install {package}) or change SANDBOX_BACKEND"),
        ),
    })
}

/// Problems of a `sandbox-server` that is started with these variables. Its flags and its configuration file are not
/// known here.
fn server_warnings(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let get = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let host = get("HTTP_HOST").unwrap_or_else(|| "0.0.0.0".to_owned());
    let is_local = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_local || ["SANDBOX_API_KEYS", "SANDBOX_API_KEYS_FILE"].iter().any(|name| get(name).is_some()) {
        return vec![];
    }
    vec![format!(
        "sandbox-server, started with these variables, listens on {host} without an API key: everyone who can reach it can \
         run code; set SANDBOX_API_KEYS or HTTP_HOST=127.0.0.1, unless its flags or its configuration file do"
    )]
}

fn as_value(host: &HostReport, required: LayerSet, around: &Surroundings) -> Value {
    let layers: Vec<Value> = host
        .findings
        .iter()
        .map(|finding| {
            json!({
                "layer": finding.layer.name(),
                "works": finding.works,
                "required": required.contains(finding.layer),
                "purpose": finding.layer.purpose(),
                "why": finding.why,
                "without_it": (!finding.works).then(|| finding.layer.without_it()),
                "fix": (!finding.works).then(|| finding.layer.fix()),
            })
        })
        .collect();
    let shared: Vec<Value> =
        host.shared.iter().map(|pool| json!({ "pool": pool.pool, "why": pool.why, "fix": pool.fix })).collect();
    json!({
        "policy_met": host.meets_policy(),
        "namespaces": !host.reduced,
        "error": host.failure.as_ref().map(ToString::to_string),
        "kernel": host.kernel,
        "privileged": host.privileged,
        "cgroups": host.cgroups,
        "layers": layers,
        "shared": shared,
        "languages": language_values(&around.languages),
        "packages": around.packages,
        "prepared": around.prepared,
        "storage": around.storage,
        "backend": around.backend,
        "redis": around.redis,
        "warnings": around.warnings,
    })
}

fn as_text(host: &HostReport, around: &Surroundings) -> String {
    let user = if host.privileged { "root" } else { "ordinary user" };
    let mut text = format!("{BOLD}Host{BOLD:#}  Linux {}, {user}, cgroups {}\n\n", host.kernel, host.cgroups);
    text.push_str(&format!("{BOLD}Isolation{BOLD:#}\n"));
    for finding in &host.findings {
        text.push_str(&layer_lines(finding));
    }
    if !host.shared.is_empty() {
        text.push_str(&format!("\n{BOLD}Shared kernel resources without a limit for each cell{BOLD:#}\n"));
        for SharedPool { pool, why, fix } in &host.shared {
            text.push_str(&format!("  {WARN}!{WARN:#} {pool}\n              {why}\n              fix: {fix}\n"));
        }
    }
    text.push_str(&format!("\n{BOLD}Languages{BOLD:#}\n{}", language_lines(&around.languages)));
    let warnings: String = around.warnings.iter().map(|warning| format!("  {WARN}!{WARN:#} {warning}\n")).collect();
    for (title, content) in [
        ("Packages", lines(&around.packages)),
        ("Prepared toolchains", lines(&around.prepared)),
        ("Storage", lines(&around.storage)),
        ("Backend", lines(around.backend.as_slice())),
        ("Server", lines(around.redis.as_slice()) + &warnings),
    ] {
        if !content.is_empty() {
            text.push_str(&format!("\n{BOLD}{title}{BOLD:#}\n{content}"));
        }
    }
    let missing: Vec<_> = host.findings.iter().filter(|f| !f.works).map(|f| f.layer.name()).collect();
    let verdict = match (&host.failure, missing.as_slice()) {
        (Some(failure), _) if host.reduced => format!(
            "{BAD}The policy cannot be met:{BAD:#} {failure}\n\nWith --isolation reduced (SANDBOX_ISOLATION=reduced) \
             programs can still run. {REDUCED}"
        ),
        (Some(failure), _) => format!("{BAD}The policy cannot be met:{BAD:#} {failure}"),
        (None, _) if host.reduced => format!("{GOOD}Runs are possible with reduced isolation.{GOOD:#} {REDUCED}"),
        (None, []) => format!("{GOOD}Every layer works: runs on this host are fully isolated.{GOOD:#}"),
        (None, missing) => {
            format!("{GOOD}The policy is met{GOOD:#}, without {}; results report that.", missing.join(", "))
        }
    };
    format!("{text}\n{verdict}\n")
}

/// The consequences of reduced isolation.
const REDUCED: &str = "Landlock and the syscall filter then confine programs to their own directory, without a network. \
                       Memory, processes and disk usage are sampled instead of limited. Other processes of the same user stay \
                       visible.";

fn layer_lines(finding: &Finding) -> String {
    let layer = finding.layer;
    let name = layer.name();
    if finding.works {
        return format!("  {GOOD}✓{GOOD:#} {name:<9} {DIM}{}{DIM:#}\n", layer.purpose());
    }
    let why = finding.why.as_deref().unwrap_or("unknown");
    format!(
        "  {BAD}✗{BAD:#} {name:<9} {why}\n              without it: {}\n              fix: {}\n",
        layer.without_it(),
        layer.fix()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_cell::Layer;

    fn host(missing: &[Layer]) -> HostReport {
        let findings = Layer::ALL
            .into_iter()
            .map(|layer| {
                let works = !missing.contains(&layer);
                Finding { layer, works, why: (!works).then(|| "not here".to_owned()) }
            })
            .collect();
        let shared = if missing.is_empty() {
            vec![]
        } else {
            vec![SharedPool { pool: "kernel memory", why: "no cgroup".to_owned(), fix: "run as root" }]
        };
        HostReport {
            kernel: "6.1.0".to_owned(),
            privileged: false,
            cgroups: "v2",
            findings,
            failure: None,
            reduced: false,
            shared,
        }
    }

    fn plain(host: &HostReport, around: &Surroundings) -> String {
        anstream::adapter::strip_str(&as_text(host, around)).to_string()
    }

    #[test]
    fn a_host_with_every_layer_is_fully_isolated() {
        let text = plain(&host(&[]), &Surroundings::default());
        assert!(text.starts_with("Host  Linux 6.1.0, ordinary user, cgroups v2\n"), "{text}");
        assert!(text.ends_with("Every layer works: runs on this host are fully isolated.\n"), "{text}");
        assert!(!text.contains('✗'));
    }

    #[test]
    fn missing_layers_are_explained() {
        let runtime = Err("install Python".to_owned());
        let language = Language { name: "python".to_owned(), title: "Python".to_owned(), runtime };
        let around = Surroundings { languages: vec![language], ..Surroundings::default() };
        let text = plain(&host(&[Layer::Memory]), &around);
        assert!(
            text.contains("✗ memory    not here\n              without it: memory and CPU time are sampled"),
            "{text}"
        );
        assert!(text.contains("fix: run as root, or with a delegated cgroup"), "{text}");
        assert!(text.contains("! kernel memory\n              no cgroup\n              fix: run as root\n"), "{text}");
        assert!(text.contains("✗ python  not found: Python programs do not run; install Python\n"), "{text}");
        assert!(text.contains("The policy is met, without memory; results report that."), "{text}");
        let value = as_value(&host(&[Layer::Memory]), LayerSet::required_by_default(), &around);
        assert_eq!(value["layers"][9]["works"], false);
        assert_eq!(value["languages"][0]["fix"], "install Python");
    }

    #[test]
    fn every_line_is_in_the_text_and_in_the_json() {
        let check = |name: &str| {
            let (cost, fix) = ("something does not work", "install it".to_owned());
            HostCheck::missing(name, format!("{name} was not found"), cost, fix)
        };
        let around = Surroundings {
            packages: vec![check("a")],
            prepared: vec![check("b")],
            storage: vec![check("c")],
            backend: Some(check("d")),
            redis: Some(check("e")),
            ..Surroundings::default()
        };
        let text = plain(&host(&[]), &around);
        let value = as_value(&host(&[]), LayerSet::required_by_default(), &around);
        for (title, key, name) in [
            ("Packages", "packages", "a"),
            ("Prepared toolchains", "prepared", "b"),
            ("Storage", "storage", "c"),
            ("Backend", "backend", "d"),
            ("Server", "redis", "e"),
        ] {
            let line = format!("\n{title}\n  ✗ {name}  {name} was not found: something does not work; install it\n");
            assert!(text.contains(&line), "{text}");
            let expected = json!({
                "name": name,
                "state": "missing",
                "what": format!("{name} was not found"),
                "without_it": "something does not work",
                "fix": "install it",
            });
            let found = value[key].as_array().map_or(&value[key], |list| &list[0]);
            assert_eq!(*found, expected);
        }
    }

    #[test]
    fn only_a_selected_backend_is_looked_for() {
        let look = |choice: &Backend, path: &str| backend(choice, |_| Some(path.to_owned()));
        assert_eq!(look(&Backend::Native, "/usr/bin"), None);
        let found = look(&Backend::Oci("sh".to_owned()), "/nothing:/usr/bin:/bin");
        assert!(found.is_some_and(|check| check.what.ends_with("bin/sh")));
        let missing = look(&Backend::Oci("runc-of-a-test".to_owned()), "/usr/bin");
        assert_eq!(missing.map(|check| check.what), Some("runc-of-a-test was not found".to_owned()));
    }

    #[test]
    fn a_public_server_without_keys_is_a_warning() {
        let warnings = |variables: &[(&str, &str)]| {
            server_warnings(|name| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned()))
        };
        for safe in [
            ("SANDBOX_API_KEYS", "k"),
            ("SANDBOX_API_KEYS_FILE", "/k"),
            ("HTTP_HOST", "127.0.0.1"),
            ("HTTP_HOST", "::1"),
        ] {
            assert_eq!(warnings(&[safe]), [""; 0], "{safe:?}");
        }
        for open in [&[][..], &[("HTTP_HOST", "::")], &[("SANDBOX_API_KEYS", " "), ("HTTP_HOST", "10.0.0.1")]] {
            let warnings = warnings(open);
            let around = Surroundings { warnings, ..Surroundings::default() };
            let text = plain(&host(&[]), &around);
            assert!(text.contains("\nServer\n  ! sandbox-server, started with these variables, listens on "), "{text}");
            let value = as_value(&host(&[]), LayerSet::required_by_default(), &around);
            assert_eq!(value["warnings"].as_array().map(Vec::len), Some(1));
        }
    }
}
