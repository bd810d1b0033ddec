//! Hostile programs against the sandbox of this host, judged from outside.
//!
//! Each program (`catalogue`) runs like any request (`runner`), beside an innocent neighbour (`neighbour`), in a world
//! that was planted for it (`world`). Whether it was stopped is decided by the state of that world and of the host
//! afterwards, and by the result (`judge`, `baseline`). In builds with the feature `canary`, the module of that name
//! disables layers and checks that this is noticed.

mod baseline;
#[cfg(feature = "canary")]
mod canary;
mod catalogue;
mod judge;
mod neighbour;
mod report;
mod runner;
mod world;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandbox_base::reason;
use sandbox_cell::LayerSet;
use sandbox_executor::{Executor, HostVariables, Input, Request, RunResult, RunService, Settings, Source};
use sandbox_runtimes::{ArtifactStore, Definition, Registry};
use sandbox_sys::start_block::StartBlock;

use catalogue::Attack;
use runner::{AttackRecord, AttackRunner, is_cancelled};

pub use neighbour::{COMMAND as NEIGHBOUR_COMMAND, live as run_neighbour};

/// How many attacks run concurrently.
const CONCURRENCY: usize = 3;

/// How many cells and zygotes are kept ready, if any.
const READY: (usize, usize) = (16, 4);

/// Which attacks to carry out, and how.
#[derive(Debug, Clone, Default)]
pub struct SuiteOptions {
    /// Select the attacks whose name contains this text.
    pub only: Option<String>,
    /// Run in pre-started cells and in forks of warm interpreters, as a server does.
    pub warm: bool,
    /// Disable layers, and check that the attacks which they stop succeed.
    #[cfg(feature = "canary")]
    pub canary: bool,
    /// Report as JSON.
    pub json: bool,
}

/// How the program under attack displays a result on a terminal: the suite checks that no control sequence gets through.
#[derive(Debug, Clone, Copy)]
pub struct ResultDisplay {
    /// Text of standard output or standard error as it is written to a terminal.
    pub output: fn(&str) -> String,
    /// The summary of a run.
    pub summary: fn(&RunResult) -> String,
}

/// The report of a suite.
#[derive(Debug)]
pub struct SuiteReport {
    /// The report, as text with colours or as JSON.
    pub text: String,
    /// Whether something was attempted, nothing was breached and nothing was left behind.
    pub success: bool,
}

/// Starts this program again with a secret in its environment, which cells could inherit; call it before the keeper
/// starts. Returns only in the process that has the secret, or if it cannot be started.
pub fn restart_with_secret() -> Result<(), String> {
    if StartBlock::get().is_ok_and(|block| block.has_variable(baseline::SECRET_VARIABLE)) {
        // The user's own keys must stay out of reach.
        let _ = sandbox_sys::keyring::join_new_session();
        return Ok(());
    }
    let Ok(secret) = world::token() else { return Ok(()) };
    let mut words = std::env::args_os();
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_default()).args(words).env(baseline::SECRET_VARIABLE, secret);
    // exec only returns on failure; then the attack that looks for the secret would have nothing to find.
    Err(format!("cannot start again with a secret: {}", reason(&command.exec())))
}

/// Lists the attacks whose name contains a text.
pub fn list(only: Option<&str>, json: bool) -> Result<String, String> {
    Ok(report::list(&select(only)?, json))
}

/// Attacks the sandbox. The suite stops when `cancel` becomes readable.
pub fn run(
    options: &SuiteOptions,
    executor: Executor,
    settings: Settings,
    cancel: BorrowedFd<'_>,
    display: ResultDisplay,
) -> Result<SuiteReport, String> {
    let attacks = select(options.only.as_deref())?;
    let mut service = start_service(executor, settings)?;
    if options.warm {
        let kept = service.keep_ready(READY.0, READY.1);
        kept.map_err(|error| format!("cannot keep cells ready: {}", reason(&error)))?;
    }
    let runner = open(&service, cancel, display)?;
    let attacks: Vec<Attack> = attacks.into_iter().map(|attack| attack.on_host(runner.layers)).collect();
    prepare(&runner, &attacks);
    let (text, success) = carry_out(options, &runner, &attacks);
    Ok(SuiteReport { text, success })
}

/// The report, and whether it is good.
fn carry_out(options: &SuiteOptions, runner: &AttackRunner<'_>, attacks: &[Attack]) -> (String, bool) {
    #[cfg(feature = "canary")]
    if options.canary {
        return canary::canary(runner, attacks, options.only.is_some(), options.json);
    }
    let jobs: Vec<_> = attacks.iter().map(|attack| (attack, LayerSet::default())).collect();
    let records = run_all(runner, &jobs);
    // Ready cells that were not used are not a trace of an attack.
    runner.service.keep_nothing();
    report::attacks(attacks, &records, runner.layers, &runner.baseline.remains(), options.json)
}

fn select(only: Option<&str>) -> Result<Vec<Attack>, String> {
    let mut attacks = catalogue::all()?;
    attacks.retain(|attack| only.is_none_or(|text| attack.id().contains(text)));
    Ok(attacks)
}

/// The service under attack.
fn start_service(executor: Executor, settings: Settings) -> Result<RunService, String> {
    // The target is the sandbox with its default settings, or with reduced isolation where the host supports no more.
    let mut settings = Settings { data_dir: settings.data_dir, isolation: settings.isolation, ..Settings::default() };
    // Some programs mount the planted directory.
    settings.volume_paths.push(std::env::temp_dir());
    let registry = Registry::shipped().map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| reason(&error))?;
    Ok(RunService::new(executor, settings, registry, HostVariables::default(), own))
}

/// Prepares everything that attacks need.
fn open<'a>(
    service: &'a RunService,
    cancel: BorrowedFd<'a>,
    display: ResultDisplay,
) -> Result<AttackRunner<'a>, String> {
    let settings = service.settings();
    let scratch = ArtifactStore::temporary(settings.passes_data_dir(false)).map_err(|error| reason(&error))?;
    let baseline = baseline::HostBaseline::new().map_err(|error| reason(&error))?;
    let nothing = Source::Program { argv: vec!["true".into()], mount: None };
    let request = Request::new(nothing, settings.defaults.clone(), settings.required());
    let first = service.check(request, None, Input::Empty, &[]);
    let first = first.and_then(|checked| service.run(checked, Duration::ZERO, &[], &mut ()));
    let layers = first.map_err(|refused| refused.to_string())?.isolation;
    Ok(AttackRunner { service, scratch: Arc::new(scratch), baseline, layers, cancel, display })
}

/// Fills the caches of the toolchains before any time is measured. A failure here repeats later, and is reported then.
fn prepare(runner: &AttackRunner<'_>, attacks: &[Attack]) {
    let used = attacks.iter().filter_map(|attack| runner.service.language_of_file(attack.file.as_ref()));
    let prepared: BTreeMap<&str, &Definition> =
        used.filter(|definition| definition.prepare.is_some()).map(|used| (used.name.as_str(), used)).collect();
    for definition in prepared.into_values() {
        // The toolchain is prepared before the compiler refuses this.
        let code = "0";
        let settings = runner.service.settings();
        let request = Request::new(Source::Code(code.into()), settings.defaults.clone(), settings.required());
        if let Ok(checked) = runner.service.check(request, Some(definition), Input::Empty, &[]) {
            let _ = runner.service.run(checked, Duration::ZERO, &[runner.cancel], &mut ());
        }
    }
}

/// Carries out attacks, a few at a time, and those that measure time one by one. The results are in the order of the
/// attacks.
fn run_all(runner: &AttackRunner<'_>, jobs: &[(&Attack, LayerSet)]) -> Vec<AttackRecord> {
    let style =
        ProgressStyle::with_template("{spinner} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress = ProgressBar::new(jobs.len() as u64).with_style(style);
    let records: Vec<Mutex<Option<AttackRecord>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let perform = |index: usize| {
        let (attack, disabled) = jobs[index];
        if is_cancelled(runner.cancel) {
            return;
        }
        progress.set_message(attack.id());
        let record = runner.perform(attack, disabled);
        progress.inc(1);
        if let Ok(mut place) = records[index].lock() {
            *place = Some(record);
        }
    };
    let (alone, together): (Vec<usize>, Vec<usize>) = (0..jobs.len()).partition(|index| jobs[*index].0.alone);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                while let Some(index) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                    perform(*index);
                }
            });
        }
    });
    alone.into_iter().for_each(perform);
    progress.finish_and_clear();
    let interrupted = || AttackRecord {
        outcome: judge::AttackOutcome::NotAttempted("interrupted".to_owned()),
        verdict: None,
        start: None,
        seconds: 0.0,
    };
    records.into_iter().map(|place| place.into_inner().ok().flatten().unwrap_or_else(interrupted)).collect()
}
