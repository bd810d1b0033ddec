//! `sandbox-server`: runs untrusted code over HTTP.
//!
//! The keeper is started first, before any configuration is read; the HTTP side comes after it and asks it for cells.

mod answer_form;
mod auth;
mod backup;
mod batch;
mod body;
mod capacity;
mod config;
mod connections;
mod descriptors;
mod docs_page;
mod drain;
mod execute;
mod follow;
mod health;
mod health_client;
mod job_events;
mod jobs;
mod json_bounds;
mod keeper_watch;
mod languages;
mod memory_budget;
mod metrics;
mod middleware;
mod openapi;
#[cfg(feature = "otlp")]
mod otlp;
mod prepare;
mod privilege;
mod problem;
mod rate_limit;
mod ready;
mod recorder;
mod reload;
mod routes;
mod runs;
mod schedule;
mod serve;
mod state;
mod streams;
mod tasks;
mod trace;
mod web;
#[cfg_attr(not(feature = "webhooks"), path = "webhook_disabled.rs")]
mod webhook;
mod worker;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use config::{Config, ServerRole};
use sandbox_backends::{Backend, GUEST_COMMAND, serve_in_container};
use sandbox_base::data_dir::keep_private;
use sandbox_cell::Failure;
use sandbox_executor::{Executor, HostVariables, RENDER_COMMAND, RunService};
use sandbox_jobs::{FileError, StoreError};
use sandbox_runtimes::{Definition, Registry};

fn main() -> ExitCode {
    sandbox_backends::keeper_main_if_asked();
    if std::env::args_os().nth(1).is_some_and(|word| word == RENDER_COMMAND) {
        return render();
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == GUEST_COMMAND) {
        return match serve_in_container(std::env::args_os().nth(2).as_deref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => fail(&failure.to_string(), 1),
        };
    }
    let matches = config::command().get_matches();
    if matches.get_flag("man") {
        let page = sandbox_manual::page(config::command(), "8");
        let printed = page.and_then(|page| std::io::stdout().write_all(&page));
        return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    }
    // Before the configuration, which holds keys and passwords.
    let backup = matches.subcommand_matches("backup").and_then(|backup| backup.get_one::<std::path::PathBuf>("file"));
    let serves =
        !["print-config", "check-config", "health"].iter().any(|flag| matches.get_flag(flag)) && backup.is_none();
    let executor = serves.then(Executor::start_replaceable);
    let config = match Config::read(&matches, |name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(error) => return fail(&format!("invalid configuration:\n{error}"), 2),
    };
    if matches.get_flag("check-config") {
        return match config.check() {
            Ok(()) => {
                let lines = config.warnings.iter().map(|warning| format!("warning: {warning}"));
                let lines: Vec<String> = lines.chain(["the configuration is valid".to_owned()]).collect();
                let printed = writeln!(std::io::stdout(), "{}", lines.join("\n"));
                if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => fail(&format!("invalid configuration:\n{error}"), 2),
        };
    }
    if matches.get_flag("print-config") {
        let printed = writeln!(std::io::stdout(), "{}", config.print());
        return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    }
    if matches.get_flag("health") {
        let asked = health_client::ask(config.listen).and_then(|report| {
            writeln!(std::io::stdout(), "{report}").map_err(|error| format!("cannot print: {error}"))
        });
        return asked.map_or_else(|why| fail(&why, 1), |()| ExitCode::SUCCESS);
    }
    if let Some(file) = backup {
        return backup::make(&config, file).map_or_else(|why| fail(&why, 1), |()| ExitCode::SUCCESS);
    }
    // The memory budget counts what requests take, not what those that have ended took.
    sandbox_sys::allocator::return_large_allocations();
    match executor.map_or(Ok(()), |executor| run(&matches, config, executor)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

fn fail(what: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "sandbox-server: {what}");
    ExitCode::from(code)
}

/// Renders a template that comes on standard input. This is what runs in a cell.
fn render() -> ExitCode {
    let mut job = vec![];
    let read = std::io::Read::read_to_end(&mut std::io::stdin(), &mut job);
    let written = read.and_then(|_| std::io::stdout().write_all(&sandbox_executor::render(&job)));
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn run(matches: &clap::ArgMatches, mut config: Config, executor: Result<Executor, Failure>) -> Result<(), String> {
    let executor = executor.map_err(|failure| failure.to_string())?;
    let host = sandbox_cell::probe::examine(config.settings.required()).map_err(|failure| failure.to_string())?;
    // Other backends check their own requirements, and an API server runs nothing.
    let runs = config.role != ServerRole::Api;
    if let (Some(failure), Backend::Native, true) = (&host.failure, &config.settings.backend, runs) {
        return Err(failure.to_string());
    }
    let isolation: Vec<&str> = if !runs {
        vec![]
    } else if config.settings.backend == Backend::Native {
        host.findings.iter().filter(|finding| finding.works).map(|finding| finding.layer.name()).collect()
    } else {
        // The layers of this host do not apply in containers; the required layers do.
        config.settings.required().iter().map(sandbox_cell::Layer::name).collect()
    };
    let data_dir = config.settings.data_dir.clone().ok_or("no data directory; set SANDBOX_DATA_DIR")?;
    let closed = keep_private(&data_dir, config.settings.passes_data_dir(config.zygotes > 0))
        .map_err(|error| format!("cannot make {} private: {error}", data_dir.display()))?;
    // The keeper, and so the cells, keep the limit that this process was started with.
    let open_files = descriptors::raise();
    executor.use_backend(&config.settings.backend).map_err(|failure| failure.to_string())?;
    let mut registry = Registry::shipped().map_err(|error| error.to_string())?;
    if let Some(dir) = &config.runtimes {
        registry.add_directory(dir).map_err(|error| error.to_string())?;
    }
    let renderer = std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let mut variables = HostVariables::of_this_process();
    variables.read_files(registry.all().flat_map(Definition::passed_variables))?;
    let mut service = RunService::new(executor, config.settings.clone(), registry, variables, renderer);
    service.find_toolchains();
    service.confine().map_err(|failure| failure.to_string())?;
    let user = privilege::give_up(&config.user, &data_dir)?;
    // Before the rules: the operator's certificates (SSL_CERT_FILE) may be where the server cannot read later.
    let webhooks = webhook::Webhooks::new(&config);
    if config.settings.backend == Backend::Native {
        service.confine_service(&data_dir, config.directories()).map_err(|failure| failure.to_string())?;
    }
    // Only now: a thread that was there before would still be root's, and not confined.
    if config.settings.backend == Backend::Native && runs {
        service
            .warm_up(config.ready_cells, config.zygotes)
            .map_err(|error| format!("cannot keep cells ready: {error}"))?;
    }
    let keys = auth::Keys::new(&config.api_keys)?;
    // What cannot be written is lost. By default the failure would be printed to the same place, which panics.
    let level = tracing_subscriber::fmt().with_max_level(config.log_level).with_writer(std::io::stderr);
    let level = level.log_internal_errors(false);
    let level = level.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if config.log_json {
        level.json().init();
    } else {
        level.init();
    }
    for note in closed {
        tracing::warn!("data directory: {note}");
    }
    if let Some(uid) = user {
        tracing::info!(uid, "dropped root privileges; the keeper and its launcher keep them");
    }
    descriptors::fit(&mut config, open_files);
    let config = &config;
    #[cfg(feature = "otlp")]
    let _export = config.otlp_endpoint.as_deref().map(otlp::Export::start).transpose()?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // They only pass on what runs do elsewhere, and every one more is one more to wake.
        .worker_threads(cpus.div_ceil(4))
        // One for each run and for each webhook, and some for what else blocks.
        .max_blocking_threads(config.capacity + webhook::AT_ONCE + 16)
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let served = runtime.block_on(async {
        let jobs = open_jobs(config, &data_dir).await?;
        let app = Arc::new(state::App::new(service, jobs, webhooks, isolation, config, keys)?);
        if matches!(app.jobs, sandbox_jobs::JobStore::Embedded(_)) {
            backup::start(&app, &data_dir);
        }
        serve::serve(&app, config, matches).await
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    served
}

/// How long a server that starts waits for Redis.
#[cfg(feature = "redis")]
const REDIS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// The store for jobs: Redis if there is one, else a file.
#[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "a file is opened without waiting"))]
async fn open_jobs(config: &Config, data_dir: &Path) -> Result<sandbox_jobs::JobStore, String> {
    #[cfg(feature = "redis")]
    if let Some(redis) = &config.redis {
        let address = config.redis_address();
        // It may be started at the same time.
        let began = std::time::Instant::now();
        let mut pause = std::time::Duration::from_millis(200);
        loop {
            match sandbox_jobs::JobStore::redis(redis.clone(), config.retention).await {
                Err(error) if error.is_unanswered() && began.elapsed() < REDIS_PATIENCE => {
                    let left = REDIS_PATIENCE.saturating_sub(began.elapsed()).as_secs();
                    tracing::warn!(%error, "cannot reach Redis at {address}; trying again for {left} s");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(REDIS_PATIENCE / 20);
                }
                opened => return opened.map_err(|error| format!("cannot use Redis at {address}: {error}")),
            }
        }
    }
    let file = data_dir.join(backup::JOBS);
    sandbox_jobs::JobStore::embedded(&file, config.retention).map_err(|error| {
        if matches!(error, StoreError::File(FileError::InUse)) {
            let file = file.display();
            return format!(
                "another server uses {file}; set SANDBOX_DATA_DIR to another directory, or let both share the jobs in Redis \
                 (REDIS_URL)"
            );
        }
        format!("{}: {error}", file.display())
    })
}
