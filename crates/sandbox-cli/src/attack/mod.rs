//! `sandbox-run attack`: hostile programs against the sandbox of this very host, judged from outside.
//!
//! Each program ([`catalogue`]) runs like any request ([`perform`]), beside an innocent neighbour ([`mod@neighbour`]), in a world
//! that was planted for it ([`world`]). Whether it was stopped is decided by what became of that world and by the result
//! ([`judge`], [`traces`]). In builds with the feature `canary`, the module of that
//! name disables layers and checks that this is noticed.

#[cfg(feature = "canary")]
mod canary;
mod catalogue;
mod judge;
mod neighbour;
mod perform;
mod report;
mod traces;
mod world;

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use sandbox_cell::{LayerSet, reason};
use sandbox_executor::{Executor, Host, Input, Request, Settings, Source};
use sandbox_runtimes::{Memory, Places, Registry, Store};
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
    let mut executor = match executor {
        Ok(executor) => executor,
        Err(failure) => return fail(&failure.to_string()),
    };
    // Blocked before any thread starts: an interruption arrives at the descriptor and nowhere else.
    let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let interruption = match signals.block().and_then(|()| SignalFd::new(&signals)) {
        Ok(interruption) => interruption,
        Err(errno) => return fail(&format!("cannot watch for signals: {errno}")),
    };
    if options.warm
        && let Err(error) = executor.keep_ready(READY.0, READY.1)
    {
        return fail(&format!("cannot keep cells ready: {}", reason(&error)));
    }
    let theatre = match open(&executor, interruption.as_fd()) {
        Ok(theatre) => theatre,
        Err(error) => return fail(&error),
    };
    let attacks: Vec<Attack> = attacks.into_iter().map(|attack| attack.on_host(theatre.layers)).collect();
    prepare(&theatre, &attacks);
    let (text, good) = carry_out(options, &theatre, &attacks);
    let printed = print(&text);
    if let Some(signal) = interruption.next() {
        return 128 + u8::try_from(signal).unwrap_or(2);
    }
    if good { printed } else { 1 }
}

/// Carries out what was asked for; the report, and whether it is good.
fn carry_out(options: &AttackOptions, theatre: &Theatre<'_>, attacks: &[Attack]) -> (String, bool) {
    #[cfg(feature = "canary")]
    if options.canary {
        return canary::canary(theatre, attacks, options.only.is_some(), options.json);
    }
    let jobs: Vec<_> = attacks.iter().map(|attack| (attack, LayerSet::default())).collect();
    let performances = perform_all(theatre, &jobs);
    // What was ready and not needed is no trace of an attack.
    theatre.executor.keep_nothing();
    report::attacks(attacks, &performances, theatre.layers, &theatre.suite.remains(), options.json)
}

fn fail(error: &str) -> u8 {
    complain(error);
    exit::INTERNAL
}

fn print(text: &str) -> u8 {
    u8::from(anstream::stdout().lock().write_all(text.as_bytes()).is_err())
}

/// Looks for everything that attacks need.
fn open<'a>(executor: &'a Executor, cancel: std::os::fd::BorrowedFd<'a>) -> Result<Theatre<'a>, String> {
    let read = Settings::read(|name| std::env::var(name).ok()).map_err(|error| error.to_string())?;
    // What is attacked is the sandbox as it is shipped, not as somebody has set it up, or else as it is where less can be
    // had.
    let settings = Settings { data_dir: read.data_dir, isolation: read.isolation, ..Settings::default() };
    close_data_dir(&settings);
    let store = match &settings.data_dir {
        Some(dir) => Store::new(dir),
        None => Store::temporary(settings.passes_data_dir(false)).map_err(|error| reason(&error))?,
    };
    let scratch = Store::temporary(settings.passes_data_dir(false)).map_err(|error| reason(&error))?;
    let registry = Registry::shipped().map_err(|error| error.to_string())?;
    let mut memory = Memory::open(settings.data_dir.as_deref());
    let places = Places::of_this_process();
    let runtimes: HashMap<_, _> =
        registry.all().map(|found| (found.name.clone(), found.discover(&places, &mut memory))).collect();
    let suite = traces::Suite::new().map_err(|error| reason(&error))?;
    let nothing = Source::Program { argv: vec!["true".into()], mount: None };
    let request = Request::new(nothing, settings.defaults.clone(), settings.required());
    let plan = request.plan(None, &settings, |_| None).map_err(|error| error.to_string())?;
    let host = Host { store: &store, settings: &settings };
    let first = executor.run(&plan, host, Input::Empty, &[], &mut ()).map_err(|failure| failure.to_string())?;
    Ok(Theatre { executor, settings, store, scratch, runtimes, suite, layers: first.isolation, cancel })
}

/// Has toolchains make what they make once, before anybody looks at the clock. What fails here fails again, and is said then.
fn prepare(theatre: &Theatre<'_>, attacks: &[Attack]) {
    const INNOCENT: [(&str, &str); 1] = [("go", "package main\n\nfunc main() {}\n")];
    for (language, code) in INNOCENT {
        let is_used = attacks.iter().any(|attack| attack.file.rsplit_once('.').is_some_and(|(_, end)| end == language));
        let Some(Ok(runtime)) = theatre.runtimes.get(language).filter(|_| is_used) else { continue };
        let settings = &theatre.settings;
        let request = Request::new(Source::Code(code.to_owned()), settings.defaults.clone(), settings.required());
        if let Ok(plan) = request.plan(Some(runtime), settings, |_| None) {
            let host = Host { store: &theatre.store, settings };
            let _ = theatre.executor.run(&plan, host, Input::Empty, &[theatre.cancel], &mut ());
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
        let (attack, disabled) = jobs[index];
        if is_cancelled(theatre.cancel) {
            return;
        }
        progress.set_message(attack.id());
        let performance = theatre.perform(attack, disabled);
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
