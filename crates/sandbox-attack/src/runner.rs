//! Carries out one attack: plants a world, starts a neighbour, runs the program like any request, and inspects the
//! world afterwards.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use sandbox_base::limits::Caps;
use sandbox_base::{LimitKind, RelativePath};
use sandbox_cell::{Layer, LayerSet, Mount};
use sandbox_executor::{
    CheckedRequest, Input, InputFile, NetworkMode, Observer, Request, RunResult, RunService, Source, Stream,
    TemplateRequest, TerminalInput, TerminalWindow, VolumeRequest, WindowSize,
};
use sandbox_runtimes::{ArtifactStore, Definition};

use crate::ResultDisplay;
use crate::baseline::{self, HostBaseline};
use crate::catalogue::Attack;
use crate::judge::{self, AttackOutcome};
use crate::neighbour;
use crate::world::{SHOWN, World, neighbour_environment};

/// The default time limit of an attack.
const PATIENCE: u64 = 10_000_000;

/// The factor for a second attempt, if the time was up before the program met its walls, as happens on slow hosts.
const MORE_PATIENCE: u64 = 6;

/// How often an attack that is merely late is repeated.
const AGAIN: usize = 2;

/// How many seconds of a run its result need not account for, on a busy host.
const UNACCOUNTED: f64 = 2.0;

/// The maximum lifetime of a neighbour, and how long it may take to start.
const NEIGHBOUR: u64 = 120_000_000;
const MOVING_IN: Duration = Duration::from_secs(20);

/// The path of the neighbour's program in its cell.
const NEIGHBOUR_PROGRAM: &str = "/opt/neighbour";

/// Carries out attacks with one run service.
pub(crate) struct AttackRunner<'a> {
    pub(crate) service: &'a RunService,
    /// Where artifacts are kept that are not reused.
    pub(crate) scratch: Arc<ArtifactStore>,
    pub(crate) baseline: HostBaseline,
    /// The layers of this host.
    pub(crate) layers: LayerSet,
    /// Becomes readable when the suite is to stop.
    pub(crate) cancel: BorrowedFd<'a>,
    /// How results are displayed.
    pub(crate) display: ResultDisplay,
}

/// The record of one attack.
#[derive(Debug, Clone)]
pub(crate) struct AttackRecord {
    pub(crate) outcome: AttackOutcome,
    pub(crate) verdict: Option<&'static str>,
    /// How its program got its cell.
    pub(crate) start: Option<&'static str>,
    pub(crate) seconds: f64,
}

impl AttackRunner<'_> {
    /// Carries out an attack, in cells without some layers.
    pub(crate) fn perform(&self, attack: &Attack, disabled: LayerSet) -> AttackRecord {
        let began = Instant::now();
        let (mut verdict, mut start) = (None, None);
        let mut attempt = |attack: &Attack| {
            self.attempt(attack, disabled, &mut verdict, &mut start).unwrap_or_else(AttackOutcome::NotAttempted)
        };
        let mut outcome = attempt(attack);
        for _ in 0..AGAIN {
            // The host may be busy. A run that is late because nothing ends it will be late again.
            if matches!(&outcome, AttackOutcome::Breached(evidence) if evidence.iter().all(|one| judge::is_about_time(one)))
            {
                outcome = attempt(attack);
            }
        }
        let may_need_longer = disabled == LayerSet::default() && attack.known.is_none();
        if may_need_longer && judge::is_cut_short(attack, &outcome) {
            // If only the deadline stops an attack, a longer time does not change that.
            outcome = attempt(&attack.with_wall_time(deadline(attack) * MORE_PATIENCE));
        }
        AttackRecord { outcome, verdict, start, seconds: began.elapsed().as_secs_f64() }
    }

    fn attempt(
        &self,
        attack: &Attack,
        disabled: LayerSet,
        verdict: &mut Option<&'static str>,
        start: &mut Option<&'static str>,
    ) -> Result<AttackOutcome, String> {
        let definition = self.service.language_of_file(attack.file.as_ref());
        let definition = definition.ok_or_else(|| format!("there is no language for '{}'", attack.file))?;
        self.service.toolchain(definition).map_err(|missing| format!("needs {}", missing.what))?;
        let mut world = World::plant(&self.baseline).map_err(|error| format!("cannot plant its targets: {error}"))?;
        if let Some(need) = attack.needs.iter().find(|need| !self.has(need, &world)) {
            return Err(format!("needs {need}"));
        }
        let (results, mut evidence) = std::thread::scope(|scope| {
            let (stay, leave) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string())?;
            let (sender, ready) = channel();
            let values = world.neighbour.clone();
            let shown = looks_at_shown(attack).then(|| world.shown());
            let neighbour = scope.spawn(move || self.neighbour(&values, shown.as_deref(), Input::Stream(stay), sender));
            if ready.recv_timeout(MOVING_IN).is_err() {
                drop(leave);
                let why = neighbour.join().ok().and_then(Result::err).unwrap_or_default();
                return Err(format!("the neighbour did not start: {why}"));
            }
            let mut evidence = vec![];
            let results = self.runs(attack, definition, disabled, &world, &mut evidence);
            drop(leave);
            match neighbour.join() {
                Ok(Ok(report)) if report == format!("{}{}", neighbour::READY, neighbour::UNHARMED) => {}
                Ok(Ok(report)) => {
                    evidence.push(format!(
                        "the neighbour reports: {}",
                        judge::shown(report.trim_start_matches(neighbour::READY))
                    ));
                }
                Ok(Err(why)) => evidence.push(format!("the neighbour was disturbed: {why}")),
                Err(_) => evidence.push("the neighbour was disturbed".to_owned()),
            }
            Ok((results?, evidence))
        })?;
        let deadline = Duration::from_micros(deadline(attack)).as_secs_f64();
        for result in &results {
            *verdict = Some(result.verdict.name());
            *start = Some(result.metrics.start.name());
            evidence.extend(judge::result(attack, result, deadline, &world, &self.baseline, self.display));
        }
        if let ([first, second], true) = (results.as_slice(), attack.differs) {
            evidence.extend(judge::same_lines(&first.stdout, &second.stdout));
        }
        evidence.extend(world.inspect(&self.baseline));
        if attack.alone {
            evidence.extend(baseline::of_gateways());
        }
        evidence.dedup();
        if evidence.is_empty() {
            match results.iter().find_map(|result| judge::not_attempted(attack, result)) {
                Some(why) => Err(why),
                None => Ok(AttackOutcome::Stopped),
            }
        } else {
            Ok(AttackOutcome::Breached(evidence))
        }
    }

    fn has(&self, need: &str, world: &World) -> bool {
        match need {
            "root" => self.baseline.root,
            "key" => world.key.is_some(),
            "sysv" => world.has_sysv(),
            "x86_64" => cfg!(target_arch = "x86_64"),
            "terminal" => self.service.has_terminals(),
            layer => layer.parse::<Layer>().is_ok_and(|layer| self.layers.contains(layer)),
        }
    }

    /// Runs the program once or twice.
    fn runs(
        &self,
        attack: &Attack,
        definition: &Definition,
        disabled: LayerSet,
        world: &World,
        evidence: &mut Vec<String>,
    ) -> Result<Vec<RunResult>, String> {
        let mut results = vec![];
        for _ in 0..=u8::from(attack.twice) {
            let over = AtomicBool::new(false);
            let run = || {
                let result = self.run(attack, definition, disabled, world);
                over.store(true, Ordering::Release);
                result
            };
            let result = if attack.listens {
                std::thread::scope(|scope| {
                    let caller = scope.spawn(|| is_reached(world, &over));
                    let result = run();
                    if caller.join().unwrap_or(false) {
                        evidence.push("its port was reachable from outside".to_owned());
                    }
                    result
                })
            } else {
                run()
            };
            match result {
                Ok(Some(result)) => results.push(result),
                Ok(None) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(results)
    }

    /// Runs the program. Returns nothing for a request that is refused, where that is expected.
    fn run(
        &self,
        attack: &Attack,
        definition: &Definition,
        disabled: LayerSet,
        world: &World,
    ) -> Result<Option<RunResult>, String> {
        let settings = self.service.settings();
        let mut request = request(attack, definition, world, settings.required())?;
        if !self.layers.contains(Layer::Net) {
            // Such hosts have no network. The program runs without it, and may still try.
            request.network.mode = NetworkMode::None;
        }
        let failed = |failure: &dyn std::fmt::Display| {
            let refused = attack.expect.contains(&"refused");
            if refused { Ok(None) } else { Err(format!("the sandbox failed: {failure}")) }
        };
        let input = input(attack).map_err(|error| format!("cannot make its input: {error}"))?;
        let mut checked = match self.service.check(request, Some(definition), input, &[]) {
            Ok(checked) => disable(checked, disabled, attack.compiler)?,
            Err(refused) => return failed(&refused),
        };
        if attack.compiler {
            checked = checked.keep_in(&self.scratch);
        }
        let began = Instant::now();
        match self.service.run(checked, Duration::ZERO, &[self.cancel], &mut ()) {
            Ok(result) => {
                let mut result = Arc::unwrap_or_clone(result);
                // The result alone is not trusted: time that it does not account for counts as time of the program, and
                // so does the time of a compiler beyond its limit.
                let phases = &result.metrics.phases;
                let compile = phases.compile.min(settings.compile.wall_time().as_secs_f64());
                let before = phases.toolchain + phases.packages + phases.prepare;
                let accounted = before + compile + phases.run + phases.collect;
                let hidden = began.elapsed().as_secs_f64() - accounted - UNACCOUNTED;
                result.metrics.wall_time += hidden.max(0.0);
                Ok(Some(result))
            }
            Err(refused) => failed(&refused),
        }
    }

    /// Runs the neighbour to its end, and returns its report.
    fn neighbour(
        &self,
        values: &[String; 3],
        shown: Option<&std::path::Path>,
        stay: Input,
        ready: Sender<()>,
    ) -> Result<String, String> {
        let mount = Mount::read_only(&self.baseline.executable, NEIGHBOUR_PROGRAM);
        let argv = vec![NEIGHBOUR_PROGRAM.into(), neighbour::COMMAND.into()];
        let settings = self.service.settings();
        let source = Source::Program { argv, mount: Some(mount) };
        let mut request = Request::new(source, settings.defaults.clone(), settings.required());
        let _ = request.limits.set(LimitKind::WallTime, NEIGHBOUR, &Caps::default());
        let mut env: Vec<(&str, String)> = neighbour_environment(values).collect();
        if self.layers.contains(Layer::Net) {
            request.network.mode = NetworkMode::Localhost;
        } else {
            env.truncate(1);
        }
        let mut files = neighbour::FILES.to_vec();
        if self.layers.contains(Layer::Mount) {
            files.extend(neighbour::FILES_OF_ROOT);
        }
        env.push((neighbour::FILES_VARIABLE, files.join(":")));
        if shown.is_some() {
            env.push((neighbour::SHARED_VARIABLE, format!("{SHOWN}/shared")));
        }
        request.env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        request.volumes = shown.map(volume).into_iter().collect();
        let checked = self.service.check(request, None, stay, &[]).map_err(|refused| refused.to_string())?;
        let result = self.service.run(checked, Duration::ZERO, &[self.cancel], &mut Doorbell(ready));
        let result = Arc::unwrap_or_clone(result.map_err(|refused| refused.to_string())?);
        if result.success { Ok(result.stdout) } else { Err(result.error.unwrap_or(result.stderr)) }
    }
}

/// Signals when the neighbour writes something.
struct Doorbell(Sender<()>);

impl Observer for Doorbell {
    fn output(&mut self, _: Stream, _: &[u8]) {
        let _ = self.0.send(());
    }
}

/// Tries to reach the program's port until the run is over.
fn is_reached(world: &World, over: &AtomicBool) -> bool {
    while !over.load(Ordering::Acquire) {
        if world.is_port_open() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn volume(shown: &std::path::Path) -> VolumeRequest {
    VolumeRequest::Host { source: shown.to_owned(), target: SHOWN.into(), writable: false }
}

/// Whether a program uses the planted directory. Others do not get it: where a cell mounts a host directory, its
/// programs may have fewer sockets.
fn looks_at_shown(attack: &Attack) -> bool {
    attack.text.contains("SHOWN")
}

/// When the program's time is up, in microseconds.
fn deadline(attack: &Attack) -> u64 {
    attack.limits.iter().rfind(|(kind, _)| *kind == LimitKind::WallTime).map_or(PATIENCE, |(_, value)| *value)
}

fn request(attack: &Attack, language: &Definition, world: &World, required: LayerSet) -> Result<Request, String> {
    let mut limits = sandbox_base::Limits::default();
    let mut set = |kind: LimitKind, value| limits.set(kind, value, &Caps::default()).map_err(|error| error.to_string());
    set(LimitKind::WallTime, PATIENCE)?;
    for (kind, value) in &attack.limits {
        set(*kind, *value)?;
    }
    let text = world.fill_in(attack.text);
    let files = parts(&text)?;
    let source = if files.is_empty() { Source::Code(text.into()) } else { Source::Files };
    let mut request = Request::new(source, limits, required);
    request.files = files;
    request.env = world.variables().iter().map(|(name, value)| ((*name).into(), value.into())).collect();
    request.network.mode = attack.network;
    request.collect = attack.collect;
    request.restricted = attack.restricted;
    request.workdir = attack.workdir.map(Into::into);
    // Restricted programs have no volumes.
    if looks_at_shown(attack) && !attack.restricted {
        request.volumes = vec![volume(&world.shown())];
    }
    if attack.template {
        let text = language.templates.get("harness").ok_or("no harness for this language")?.as_str().into();
        let cases = serde_json::json!([{ "args": [1], "expected": 2 }]);
        let variables = BTreeMap::from([("function".to_owned(), "f".into()), ("cases".to_owned(), cases)]);
        request.template = Some(TemplateRequest { name: "harness".to_owned(), text, variables: variables.into() });
    }
    Ok(request)
}

/// The input of an attack: nothing, or a terminal without keyboard input.
fn input(attack: &Attack) -> std::io::Result<Input> {
    if !attack.needs.contains(&"terminal") {
        return Ok(Input::Empty);
    }
    let window = Arc::new(TerminalWindow::new(WindowSize::default())?);
    Ok(Input::Terminal(TerminalInput { keys: None, window }))
}

/// The files of a project, which begin at lines such as `// --- src/main.rs`; none if it is a single file.
fn parts(text: &str) -> Result<Vec<InputFile>, String> {
    let mut files: Vec<(RelativePath, Vec<u8>)> = vec![];
    for line in text.lines() {
        let comment = line.strip_prefix("// --- ").or_else(|| line.strip_prefix("# --- "));
        if let Some(path) = comment {
            let path = RelativePath::new(path).map_err(|error| error.to_string())?;
            files.push((path, vec![]));
        } else if let Some((_, content)) = files.last_mut() {
            content.extend_from_slice(line.as_bytes());
            content.push(b'\n');
        }
    }
    Ok(files.into_iter().map(|(path, content)| InputFile::new(path, content)).collect())
}

/// Whether the suite is to stop.
pub(crate) fn is_cancelled(cancel: BorrowedFd<'_>) -> bool {
    sandbox_base::wait::is_readable(&[cancel], Duration::ZERO)
}

/// A request whose cells are created without some layers.
#[cfg(feature = "canary")]
#[expect(clippy::unnecessary_wraps, reason = "other builds cannot do this")]
fn disable(checked: CheckedRequest, layers: LayerSet, compiler: bool) -> Result<CheckedRequest, String> {
    Ok(checked.with_disabled_layers(layers, compiler))
}

#[cfg(not(feature = "canary"))]
fn disable(checked: CheckedRequest, layers: LayerSet, _compiler: bool) -> Result<CheckedRequest, String> {
    if layers.is_empty() { Ok(checked) } else { Err("this build cannot disable layers".to_owned()) }
}
