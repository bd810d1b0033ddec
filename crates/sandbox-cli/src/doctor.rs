//! `sandbox-run doctor`: which isolation layers work on this host, which do not, and how to fix them.

use std::io::Write;
use std::net::IpAddr;

use anstyle::{AnsiColor, Style};
use sandbox_cell::LayerSet;
use sandbox_cell::probe::{Finding, HostReport, SharedPool, examine};
use sandbox_executor::Settings;
use sandbox_runtimes::{Registry, Runtime, SearchPaths, ToolchainCache};
use serde_json::{Value, json};

use crate::exit_code;
use crate::output::print_error;

const GOOD: Style = AnsiColor::Green.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// Examines the host. Returns 1 if the default policy cannot be met.
pub(crate) fn doctor(as_json: bool) -> u8 {
    let settings = Settings::read(|name| std::env::var(name).ok()).unwrap_or_default();
    let host = match examine(settings.required()) {
        Ok(host) => host,
        Err(failure) => {
            print_error(&failure.to_string());
            return exit_code::INTERNAL;
        }
    };
    let languages = languages(&settings);
    let warnings = server_warnings(|name| std::env::var(name).ok());
    let mut out = anstream::stdout().lock();
    let printed = if as_json {
        writeln!(out, "{:#}", as_value(&host, settings.required(), &languages, &warnings))
    } else {
        write!(out, "{}", as_text(&host, &languages, &warnings))
    };
    u8::from(printed.is_err() || !host.meets_policy())
}

/// A language, and its toolchain or how to install one.
type Language = (String, Result<Runtime, String>);

fn languages(settings: &Settings) -> Vec<Language> {
    let mut cache = ToolchainCache::open(settings.data_dir.as_deref());
    let places = SearchPaths::of_this_process();
    let Ok(registry) = Registry::shipped() else { return vec![] };
    registry
        .all()
        .map(|definition| {
            let runtime = definition.discover(&places, &mut cache).map_err(|missing| missing.missing);
            (definition.name.clone(), runtime)
        })
        .collect()
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

fn as_value(host: &HostReport, required: LayerSet, languages: &[Language], warnings: &[String]) -> Value {
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
    let languages: Vec<Value> = languages
        .iter()
        .map(|(name, runtime)| match runtime {
            Ok(runtime) => json!({
                "language": name,
                "version": runtime.version,
                "path": runtime.host_executable,
                "starts_cold": runtime.starts_cold(),
            }),
            Err(fix) => json!({ "language": name, "version": null, "fix": fix }),
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
        "languages": languages,
        "warnings": warnings,
    })
}

fn as_text(host: &HostReport, languages: &[Language], warnings: &[String]) -> String {
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
    text.push_str(&format!("\n{BOLD}Languages{BOLD:#}\n"));
    for (name, runtime) in languages {
        text.push_str(&match runtime {
            Ok(runtime) => {
                let (version, path) = (&runtime.version, runtime.host_executable.display());
                let cold = runtime.starts_cold().map(|why| format!("              starts cold on servers: {why}\n"));
                format!("  {GOOD}✓{GOOD:#} {name:<9} {version} {DIM}{path}{DIM:#}\n{}", cold.unwrap_or_default())
            }
            Err(fix) => format!("  {BAD}✗{BAD:#} {name:<9} {fix}\n"),
        });
    }
    if !warnings.is_empty() {
        text.push_str(&format!("\n{BOLD}Server{BOLD:#}\n"));
        text.extend(warnings.iter().map(|warning| format!("  {WARN}!{WARN:#} {warning}\n")));
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

    fn plain(host: &HostReport, languages: &[Language]) -> String {
        anstream::adapter::strip_str(&as_text(host, languages, &[])).to_string()
    }

    #[test]
    fn a_host_with_every_layer_is_fully_isolated() {
        let text = plain(&host(&[]), &[]);
        assert!(text.starts_with("Host  Linux 6.1.0, ordinary user, cgroups v2\n"), "{text}");
        assert!(text.ends_with("Every layer works: runs on this host are fully isolated.\n"), "{text}");
        assert!(!text.contains('✗'));
    }

    #[test]
    fn missing_layers_are_explained() {
        let languages = [("python".to_owned(), Err("install Python".to_owned()))];
        let text = plain(&host(&[Layer::Memory]), &languages);
        assert!(
            text.contains("✗ memory    not here\n              without it: memory and CPU time are sampled"),
            "{text}"
        );
        assert!(text.contains("fix: run as root, or with a delegated cgroup"), "{text}");
        assert!(text.contains("! kernel memory\n              no cgroup\n              fix: run as root\n"), "{text}");
        assert!(text.contains("✗ python    install Python"), "{text}");
        assert!(text.contains("The policy is met, without memory; results report that."), "{text}");
        let value = as_value(&host(&[Layer::Memory]), LayerSet::required_by_default(), &languages, &[]);
        assert_eq!(value["layers"][9]["works"], false);
        assert_eq!(value["languages"][0]["fix"], "install Python");
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
            let text = anstream::adapter::strip_str(&as_text(&host(&[]), &[], &warnings)).to_string();
            assert!(text.contains("\nServer\n  ! sandbox-server, started with these variables, listens on "), "{text}");
            let value = as_value(&host(&[]), LayerSet::required_by_default(), &[], &warnings);
            assert_eq!(value["warnings"].as_array().map(Vec::len), Some(1));
        }
    }
}
