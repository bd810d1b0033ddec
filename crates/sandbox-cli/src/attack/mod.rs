//! `sandbox-run attack`: hostile programs against the sandbox of this very host, judged from outside.
//!
//! Each program ([`catalogue`]) runs like any request ([`perform`]), beside an innocent neighbour ([`mod@neighbour`]), in a world
//! that was planted for it ([`world`]). Whether it was stopped is decided by what became of that world and by the result
//! ([`judge`], [`traces`]). The canary ([`canary`]) leaves layers out and checks that this is noticed.

mod canary;
mod catalogue;
mod judge;
mod neighbour;
mod perform;
mod report;
mod traces;
mod world;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandbox_cell::{LayerSet, reason};
use sandbox_executor::{Executor, HostVariables, Input, Request, RunService, Settings, Source};
use sandbox_runtimes::{Registry, Store};
use sandbox_sys::signal::{SignalFd, SignalSet};

use crate::args::AttackOptions;
use crate::exit;
use crate::output::complain;
use crate::run::{Started, close_data_dir};
use catalogue::Attack;
use perform::{Performance, Theatre, is_cancelled};

pub(crate) use neighbour::{COMMAND as NEIGHBOUR, live as neighbour};

/// How many attacks go on at one time.
const AT_ONCE: usize = 3;

/// How many cells and zygotes are kept ready, if any are.
const READY: (usize, usize) = (16, 4);

/// What has to be done before the keeper starts: a secret is put where cells could inherit it. Returns only if this process
/// has it.
pub(crate) fn begin() {
    if std::env::var_os(traces::SECRET_VARIABLE).is_some() {
        // The user's own keys stay out of reach, whatever happens.
        let _ = sandbox_sys::keyring::join_new_session();
        return;
    }
    let Ok(secret) = world::token() else { return };
    let mut words = std::env::args_os();
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_default()).args(words).env(traces::SECRET_VARIABLE, secret);
    // It only returns if it fails; the attack that looks for the secret then has nothing to find.
    complain(&format!("cannot start again with a secret: {}", reason(&command.exec())));
}

/// Attacks the sandbox. 1 if something was breached, or nothing attempted.
pub(crate) fn attack(options: &AttackOptions, executor: Started) -> u8 {
    let attacks = match catalogue::all() {
        Ok(attacks) => attacks,
        Err(error) => return fail(&error),
    };
    let wanted = |attack: &Attack| options.only.as_ref().is_none_or(|text| attack.id().contains(text.as_str()));
    let attacks: Vec<Attack> = attacks.into_iter().filter(wanted).collect();
    if options.list {
        return print(&report::list(&attacks, options.json));
    }
    let executor = match executor {
        Ok(executor) => executor,
        Err(failure) => return fail(&failure.to_string()),
    };
    // Blocked before any thread starts: an interruption arrives at the descriptor and nowhere else.
    let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let interruption = match signals.block().and_then(|()| SignalFd::new(&signals)) {
        Ok(interruption) => interruption,
        Err(errno) => return fail(&format!("cannot watch for signals: {errno}")),
    };
    let mut service = match start_service(executor) {
        Ok(service) => service,
        Err(error) => return fail(&error),
    };
    if options.warm
        && let Err(error) = service.keep_ready(READY.0, READY.1)
    {
        return fail(&format!("cannot keep cells ready: {}", reason(&error)));
    }
    let theatre = match open(&service, interruption.as_fd()) {
        Ok(theatre) => theatre,
        Err(error) => return fail(&error),
    };
    let attacks: Vec<Attack> = attacks.into_iter().map(|attack| attack.on_host(theatre.layers)).collect();
    prepare(&theatre, &attacks);
    let (text, good) = if options.canary {
        canary::canary(&theatre, &attacks, options.only.is_some(), options.json)
    } else {
        let jobs: Vec<_> = attacks.iter().map(|attack| (attack, LayerSet::default())).collect();
        let performances = perform_all(&theatre, &jobs);
        // What was ready and not needed is no trace of an attack.
        service.keep_nothing();
        report::attacks(&attacks, &performances, theatre.layers, &theatre.suite.remains(), options.json)
    };
    let printed = print(&text);
    if let Some(signal) = interruption.next() {
        return 128 + u8::try_from(signal).unwrap_or(2);
    }
    if good { printed } else { 1 }
}

fn fail(error: &str) -> u8 {
    complain(error);
    exit::INTERNAL
}

fn print(text: &str) -> u8 {
    u8::from(anstream::stdout().lock().write_all(text.as_bytes()).is_err())
}

/// The service that is attacked.
fn start_service(executor: Executor) -> Result<RunService, String> {
    let read = Settings::read(|name| std::env::var(name).ok()).map_err(|error| error.to_string())?;
    // What is attacked is the sandbox as it is shipped, not as somebody has set it up, or else as it is where less can be
    // had.
    let mut settings = Settings { data_dir: read.data_dir, isolation: read.isolation, ..Settings::default() };
    // What is planted there is shown to some programs.
    settings.volume_paths.push(std::env::temp_dir());
    close_data_dir(&settings);
    let registry = Registry::shipped().map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| reason(&error))?;
    Ok(RunService::new(executor, settings, registry, HostVariables::default(), own))
}

/// Looks for everything that attacks need.
fn open<'a>(service: &'a RunService, cancel: std::os::fd::BorrowedFd<'a>) -> Result<Theatre<'a>, String> {
    let settings = service.settings();
    let scratch = Store::temporary(settings.passes_data_dir(false)).map_err(|error| reason(&error))?;
    let suite = traces::Suite::new().map_err(|error| reason(&error))?;
    let nothing = Source::Program { argv: vec!["true".into()], mount: None };
    let request = Request::new(nothing, settings.defaults.clone(), settings.required());
    let first = service.check(request, None, Input::Empty);
    let first = first.and_then(|checked| service.run(checked, Duration::ZERO, &[], &mut ()));
    let layers = first.map_err(|refused| refused.to_string())?.isolation;
    Ok(Theatre { service, scratch: Arc::new(scratch), suite, layers, cancel })
}

/// Has toolchains make what they make once, before anybody looks at the clock. What fails here fails again, and is said then.
fn prepare(theatre: &Theatre<'_>, attacks: &[Attack]) {
    const INNOCENT: [(&str, &str); 1] = [("go", "package main\n\nfunc main() {}\n")];
    for (language, code) in INNOCENT {
        let is_used = attacks.iter().any(|attack| attack.file.rsplit_once('.').is_some_and(|(_, end)| end == language));
        let Some(definition) = theatre.service.language(language).ok().filter(|_| is_used) else { continue };
        let settings = theatre.service.settings();
        let request = Request::new(Source::Code(code.to_owned()), settings.defaults.clone(), settings.required());
        if let Ok(checked) = theatre.service.check(request, Some(definition), Input::Empty) {
            let _ = theatre.service.run(checked, Duration::ZERO, &[theatre.cancel], &mut ());
        }
    }
}

/// Carries out attacks, a few at a time, those that measure time one by one. The results are in the order of the attacks.
fn perform_all(theatre: &Theatre<'_>, jobs: &[(&Attack, LayerSet)]) -> Vec<Performance> {
    let style =
        ProgressStyle::with_template("{spinner} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress = ProgressBar::new(jobs.len() as u64).with_style(style);
    let performances: Vec<Mutex<Option<Performance>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let perform = |index: usize| {
        let (attack, omit) = jobs[index];
        if is_cancelled(theatre.cancel) {
            return;
        }
        progress.set_message(attack.id());
        let performance = theatre.perform(attack, omit);
        progress.inc(1);
        if let Ok(mut place) = performances[index].lock() {
            *place = Some(performance);
        }
    };
    let (alone, together): (Vec<usize>, Vec<usize>) = (0..jobs.len()).partition(|index| jobs[*index].0.alone);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(index) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                    perform(*index);
                }
            });
        }
    });
    alone.into_iter().for_each(perform);
    progress.finish_and_clear();
    let interrupted = || Performance {
        ending: judge::Ending::NotAttempted("interrupted".to_owned()),
        verdict: None,
        start: None,
        seconds: 0.0,
    };
    performances.into_iter().map(|place| place.into_inner().ok().flatten().unwrap_or_else(interrupted)).collect()
}
