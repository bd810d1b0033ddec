//! Executes a plan: artifacts are found in the store or made, then the program runs.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandbox_backends::Backend;
use sandbox_base::RelativePath;
use sandbox_base::wait::is_readable;
use sandbox_cell::archive::{FileCaps, Omission};
use sandbox_cell::{Failure, Keeper, Mount, RunStatus, Sources, signal_name};
use sandbox_pool::{Pool, PoolLimits, RefillGuard, WantedCell};
use sandbox_runtimes::{ArtifactStore, Definition, StageName};

use crate::event::Observer;
use crate::hint::{Advisor, Symptoms};
use crate::input_files::pack;
use crate::last_value::add_runner;
use crate::output_files::Collected;
use crate::plan::{ArtifactPlan, Plan};
use crate::preparation::{Preparation, Preparations};
use crate::request::{Request, Source};
use crate::result::{CompileResult, Metrics, OmittedFile, Phases, RunResult, Status, Verdict, seconds, text};
use crate::settings::Settings;
use crate::stage::{Input, Stage, StageEnd, StageError, Stream, failure, longest_creation};
use crate::template::{Rendered, guard};
use crate::verdict::{Evidence, judge};
use crate::volumes::NamedVolume;
use crate::warm_start::prestart_for_run;

/// Where cells come from: the keeper that makes them, and those that it has made ahead.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) pool: Pool,
    pub(crate) keeper: Keeper,
}

impl Cells {
    fn new(keeper: Keeper, limits: PoolLimits) -> io::Result<Self> {
        Ok(Self { pool: Pool::new(keeper.clone(), limits)?, keeper })
    }
}

/// Runs plans in cells.
#[derive(Debug)]
pub struct Executor {
    pub(crate) cells: Cells,
    /// Whether the next run is the last one.
    last: bool,
}

/// What a run needs of the host besides a keeper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostContext<'a> {
    /// Where things that are made once are kept; none for a plan that makes nothing.
    pub(crate) store: Option<&'a ArtifactStore>,
    /// The operator's settings, which say how much of that is kept.
    pub(crate) settings: &'a Settings,
    /// What is known of the toolchains that have to be prepared.
    pub(crate) preparations: &'a Preparations,
}

/// How long after the deadline the collection of files may take, and how many bytes of a named volume come in a second on a
/// slow host: volumes are as large as the request wants, and so is the time for them.
const COLLECT: Duration = Duration::from_secs(1);
const COLLECT_RATE: u64 = 32 << 20;

/// Why there is no program to run.
pub(crate) enum Stopped {
    /// The sandbox failed.
    Failed(Failure),
    /// A step has ended badly.
    Ended(Box<RunResult>),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Executor {
    /// An executor with a keeper of its own: see [`Keeper::start`].
    pub fn start() -> Result<Self, Failure> {
        Self::with_keeper(Keeper::start()?)
    }

    /// The same with a fork of this process as keeper, which must be among the first calls in `main`: see
    /// [`Keeper::start_first`].
    pub fn start_first() -> Result<Self, Failure> {
        Self::with_keeper(sandbox_backends::start_keeper_first()?)
    }

    /// The same with a keeper that can be replaced: see [`Keeper::start_replaceable`].
    pub fn start_replaceable() -> Result<Self, Failure> {
        Self::with_keeper(Keeper::start_replaceable()?)
    }

    fn with_keeper(keeper: Keeper) -> Result<Self, Failure> {
        let cells = Cells::new(keeper, PoolLimits { cells: 0, zygotes: 0 });
        Ok(Self { cells: cells.map_err(|error| failure("cannot start threads", &error))?, last: false })
    }

    /// Renders a request's code in its template, if it has one. That is done in a cell, by a program that calls
    /// [`crate::render`] when its first argument is [`crate::RENDER_COMMAND`].
    pub(crate) fn render(
        &self,
        request: &Request,
        language: &Definition,
        renderer: &Path,
        cancel: &[BorrowedFd<'_>],
    ) -> Result<Option<Rendered>, StageError> {
        let (Some(template), Source::Code(code)) = (&request.template, &request.source) else { return Ok(None) };
        template.render(&self.cells, renderer, language, code, request.required, cancel).map(Some)
    }

    /// Carries out a plan.
    ///
    /// The run has waited for its turn for `queued`. Output goes to the observer as it comes; the run is cancelled when one of `cancel` becomes readable. Fails if the
    /// sandbox does, or if the program cannot be started; a program that fails is a result.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        host: HostContext<'_>,
        input: Input,
        cancel: &[BorrowedFd<'_>],
        queued: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Arc<RunResult>, Failure> {
        let mut run = self.execution(plan, host, cancel);
        run.phases.queue = seconds(queued);
        let (result, refill) = run.run(input, observer)?;
        let result = Arc::new(result);
        observer.finish(&result);
        drop(refill);
        Ok(result)
    }

    /// Carries out only what a plan prepares for its toolchain.
    pub(crate) fn prepare(
        &self,
        plan: &Plan,
        host: HostContext<'_>,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<Preparation, Failure> {
        self.execution(plan, host, cancel).prepare_only(observer)
    }

    fn execution<'a>(&'a self, plan: &'a Plan, host: HostContext<'a>, cancel: &'a [BorrowedFd<'a>]) -> Execution<'a> {
        let (phases, compile) = (Phases::default(), None);
        Execution { cells: &self.cells, plan, host, cancel, last: self.last, phases, compile }
    }

    /// Ends a run that was cancelled before there was a plan. It has waited for its turn for `queued`.
    pub(crate) fn cancel_early(
        language: Option<(String, String)>,
        queued: Duration,
        observer: &mut dyn Observer,
    ) -> Arc<RunResult> {
        let (language, version) = language.unzip();
        observer.start(language.as_deref(), version.as_deref());
        let phases = Phases { queue: seconds(queued), ..Phases::default() };
        let metrics = Metrics { phases, ..Metrics::default() };
        let unfinished = RunResult { language, version, metrics, ..RunResult::internal_error(String::new()) };
        let result = Arc::new(cancelled(unfinished));
        observer.finish(&result);
        result
    }

    /// Has all cells from now on made by another backend. A confined executor stays with what it has.
    pub fn use_backend(&self, backend: &Backend) -> Result<(), Failure> {
        sandbox_backends::use_backend(&self.cells.keeper, backend)
    }

    /// Forbids all runs from now on to be shown anything else of the host than this; see [`Keeper::confine`].
    pub fn confine(&self, sources: &Sources) -> Result<(), Failure> {
        self.cells.keeper.confine(sources)
    }

    /// Keeps up to so many cells ready from now on, some with interpreters forked from up to so many zygotes. Starts
    /// threads.
    pub fn keep_ready(&mut self, cells: usize, zygotes: usize) -> io::Result<()> {
        if cells > 0 {
            self.cells = Cells::new(self.cells.keeper.clone(), PoolLimits { cells, zygotes })?;
        }
        Ok(())
    }

    /// Has a cell for such a plan made ready before there is one.
    pub(crate) fn expect(&self, plan: &Plan) {
        if plan.named_volumes.is_empty() {
            let shown = |artifact: &ArtifactPlan| Mount::read_only("/", &artifact.target);
            let artifact_mounts: Vec<Mount> = plan.install.iter().chain(&plan.compile).map(shown).collect();
            let prestart = prestart_for_run(plan, std::iter::empty());
            let expect = |spec, artifact_mounts, prestart| {
                self.cells.pool.expect(&WantedCell { spec, artifact_mounts, prestart });
            };
            expect(&plan.cell, &artifact_mounts, prestart.as_ref());
            if let Some(compile) = &plan.compile {
                let prepared = plan.prepare.iter().filter(|prepare| prepare.stages.contains(&StageName::Compile));
                let artifact_mounts: Vec<Mount> = plan.install.iter().chain(prepared).map(shown).collect();
                // A compiler takes long to warm up and much memory: it has to be needed once before.
                expect(&compile.cell, &artifact_mounts, None);
            }
        }
    }

    /// Gives up everything that is kept ready.
    pub fn keep_nothing(&self) {
        self.cells.pool.close();
    }

    /// How many cells do not respond and cannot be killed; the keeper keeps trying to remove them.
    #[must_use]
    pub fn lost_cells(&self) -> usize {
        self.cells.keeper.lost_cells()
    }

    /// How many cells are ready; none if none are kept.
    #[must_use]
    pub fn ready_cells(&self) -> Option<usize> {
        self.cells.pool.ready_cells()
    }

    /// Says that the next plan is the last one: the keeper ends with its run, and dropping the executor waits for that.
    #[must_use]
    pub fn for_one_run(self) -> Self {
        Self { last: true, ..self }
    }
}

/// A plan that is being carried out.
pub(crate) struct Execution<'a> {
    pub(crate) cells: &'a Cells,
    pub(crate) plan: &'a Plan,
    pub(crate) host: HostContext<'a>,
    pub(crate) cancel: &'a [BorrowedFd<'a>],
    pub(crate) last: bool,
    pub(crate) phases: Phases,
    pub(crate) compile: Option<CompileResult>,
}

impl Execution<'_> {
    fn run(mut self, input: Input, observer: &mut dyn Observer) -> Result<(RunResult, Option<RefillGuard>), Failure> {
        let (language, version) = self.plan.language();
        observer.start(language, version);
        // The entries are locked as long as they are held.
        let entries = match self.make_artifacts(observer) {
            Ok(entries) => entries,
            Err(Stopped::Failed(failure)) => return Err(failure),
            Err(Stopped::Ended(result)) => return Ok((*result, None)),
        };
        let plan = self.plan;
        let artifact_mounts: Vec<Mount> =
            entries.iter().map(|(entry, target)| Mount::read_only(&entry.content, *target)).collect();
        let prestart = prestart_for_run(plan, entries.iter().map(|(entry, _)| entry));
        let Some(volumes) = self.open_volumes()? else { return Ok((self.cancelled(), None)) };
        let no_files = |error: io::Error| failure("cannot prepare the files", &error);
        let mut files = pack(&plan.files).map_err(no_files)?;
        let first = u8::from(plan.has_runner);
        if let Some(runner) = &plan.runner_file {
            add_runner(&mut files, runner).map_err(no_files)?;
        }
        let mut collected = Collected { report_volume: plan.has_runner.then_some(0), ..Collected::default() };
        for (number, volume) in (first..).zip(&volumes) {
            if let Some(mut content) = volume.content().map_err(no_files)? {
                files.add_volume(number, &mut content).map_err(no_files)?;
            }
            collected.volumes.insert(number, volume.next().map_err(no_files)?);
        }
        if let Ok(inside) = plan.command.cwd.strip_prefix(sandbox_cell::WORK_DIR)
            && let Some(Ok(dir)) = inside.to_str().filter(|dir| !dir.is_empty()).map(RelativePath::new)
        {
            files.add_directory(dir).map_err(no_files)?;
        }
        let named_bytes: u64 = plan.cell.volumes.iter().skip(usize::from(first)).map(|volume| volume.size).sum();
        let collects = plan.collect.is_some() || !plan.cell.volumes.is_empty();
        let stdin_is_empty = matches!(input, Input::Empty);
        let stage = Stage {
            cell: &plan.cell,
            artifact_mounts: &artifact_mounts,
            prestart,
            command: &plan.command,
            files: &files,
            input,
            collect: collects.then(|| plan.collect.unwrap_or(FileCaps { count: 0, bytes: 0 })),
            patience: COLLECT + Duration::from_secs(named_bytes / COLLECT_RATE),
            creation: longest_creation(&self.host.settings.backend),
            address_policy: &plan.address_policy,
            last: self.last,
        };
        observer.program();
        let mut watch = Watch { plan, observer, held: Default::default() };
        let ended =
            stage.run(self.cells, self.cancel, &mut |stream, bytes| watch.output(stream, bytes), &mut collected);
        let mut ended = match ended {
            Ok(ended) => ended,
            Err(StageError::Cancelled) => return Ok((self.cancelled(), None)),
            Err(StageError::Failed(failure)) => return Err(failure),
        };
        watch.end();
        let named = plan.cell.volumes.iter().skip(usize::from(first));
        for (volume, (target, (number, next))) in volumes.iter().zip(named.zip(&collected.volumes)) {
            // Of a volume that did not come out whole, the last state that did is kept.
            let whole = ended.cut.is_none() && !collected.failed.contains_key(number);
            if !whole || volume.replace(next).is_err() {
                let path = target.target.display().to_string();
                collected.omitted.push(OmittedFile { path, why: Omission::NotCollected });
                ended.omitted += 1;
            }
        }
        if ended.cut.is_some() && plan.collect.is_some() {
            collected.omitted.push(OmittedFile { path: ".".to_owned(), why: Omission::NotCollected });
            ended.omitted += 1;
        }
        let refill = ended.refill.take();
        Ok((self.result(ended, collected, stdin_is_empty), refill))
    }

    /// Who gives hints for results.
    pub(crate) fn advisor(&self) -> Advisor<'_> {
        Advisor { plan: self.plan, settings: self.host.settings }
    }

    pub(crate) fn cancelled(&self) -> RunResult {
        cancelled(self.unfinished())
    }

    /// What becomes of a run whose stage did not run.
    pub(crate) fn stopped(&self, error: StageError) -> Stopped {
        match error {
            StageError::Cancelled => Stopped::Ended(Box::new(self.cancelled())),
            StageError::Failed(failure) => Stopped::Failed(failure),
        }
    }

    /// The result of a run that ended before its program started.
    pub(crate) fn unfinished(&self) -> RunResult {
        let (language, version) = self.plan.language.clone().unzip();
        let metrics = Metrics { phases: self.phases, ..Metrics::default() };
        let compile = self.compile.clone();
        RunResult { language, version, compile, metrics, ..RunResult::internal_error(String::new()) }
    }

    /// Opens the named volumes; `None` if the caller does not want to wait for others.
    fn open_volumes(&self) -> Result<Option<Vec<NamedVolume>>, Failure> {
        let names = &self.plan.named_volumes;
        if names.is_empty() {
            return Ok(Some(vec![]));
        }
        let dir = self.host.settings.data_dir.as_deref().ok_or_else(|| {
            Failure::of_request("cannot keep a volume", "no data directory").with_fix("set SANDBOX_DATA_DIR")
        })?;
        // In the order of their names, so that no two runs wait for each other.
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        let mut opened = vec![];
        for name in sorted {
            let volume = NamedVolume::open(dir, name, || !is_readable(self.cancel, Duration::ZERO))
                .map_err(|error| failure(&format!("cannot open the volume '{name}'"), &error))?;
            let Some(volume) = volume else { return Ok(None) };
            opened.push((name, volume));
        }
        opened.sort_by_key(|(name, _)| names.iter().position(|given| given == *name));
        Ok(Some(opened.into_iter().map(|(_, volume)| volume).collect()))
    }

    fn result(self, mut ended: StageEnd, mut collected: Collected, stdin_is_empty: bool) -> RunResult {
        if let Some(translator) = &self.plan.translator {
            let text = String::from_utf8_lossy(&ended.stderr.kept);
            ended.stderr.kept = translator.messages(&text).into_bytes();
        }
        let (plan, outcome, ready) = (self.plan, &ended.outcome, ended.ready);
        let (stdout_truncated, stderr_truncated) = (ended.stdout.is_over(), ended.stderr.is_over());
        let evidence = Evidence {
            limits: &plan.cell.limits,
            isolation: ready.isolation,
            stderr: &ended.stderr.kept,
            output: ended.output(),
            reported: collected.report.error.as_deref(),
            error_patterns: &plan.error_patterns,
        };
        let mut judgement = judge(outcome, evidence);
        let hint = self.advisor().after_run(&Symptoms {
            judgement: &judgement,
            status: outcome.status,
            isolation: ready.isolation,
            stderr: &ended.stderr.kept,
            stdin_is_empty,
            network: ended.network.as_ref(),
        });
        let (mut stdout, stdout_base64) = text(ended.stdout.kept);
        let unfinished = plan.token.as_ref().is_some_and(|token| !guard(&mut stdout, token));
        if unfinished && judgement.verdict == Verdict::Ok {
            judgement.verdict = Verdict::RuntimeError;
            judgement.error = Some("the program ended before its template did".to_owned());
        }
        let success = judgement.verdict == Verdict::Ok;
        let (exit_code, signal) = ending(outcome.status);
        let phases = Phases {
            prepare: seconds(ready.prepare),
            run: seconds(outcome.usage.wall),
            collect: seconds(ended.collect_time),
            ..self.phases
        };
        let metrics = Metrics { start: ended.start, network: ended.network, ..Metrics::new(&outcome.usage, phases) };
        let (stderr, stderr_base64) = text(ended.stderr.kept);
        let (language, version) = plan.language.clone().unzip();
        let printed = || stdout.strip_suffix('\n').unwrap_or(&stdout).to_owned();
        // Without collection of files, what was left out was left out on purpose.
        if plan.collect.is_none() {
            collected.omitted.retain(|omitted| omitted.why == Omission::NotCollected);
            ended.omitted = collected.omitted.len() as u64;
        }
        let hint = hint.or_else(|| Advisor { plan, settings: self.host.settings }.after_collection(&collected.omitted));
        RunResult {
            status: if success { Status::Success } else { Status::Error },
            verdict: judgement.verdict,
            success,
            language,
            version,
            result: success.then(|| collected.report.value.unwrap_or_else(printed)),
            stdout,
            stderr,
            stdout_base64,
            stderr_base64,
            stdout_truncated,
            stderr_truncated,
            exit_code,
            signal,
            error: judgement.error,
            hint,
            execution_time: metrics.wall_time,
            memory_used: metrics.memory_peak,
            limit: judgement.limit,
            compile: self.compile,
            metrics,
            isolation: ready.isolation,
            files: collected.files,
            files_omitted: collected.omitted,
            files_omitted_count: ended.omitted,
        }
    }
}

/// The result of a run whose caller went away before its program began.
fn cancelled(unfinished: RunResult) -> RunResult {
    let RunResult { verdict, error, .. } = RunResult::cancelled();
    RunResult { verdict, error, ..unfinished }
}

/// Stands between a program's output and the observer while a template is in use: lines of standard error are
/// translated, and the last line of standard output may be the token, which is not shown.
struct Watch<'a> {
    plan: &'a Plan,
    observer: &'a mut dyn Observer,
    /// What waits for the rest of its line.
    held: [Vec<u8>; 2],
}

impl Watch<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let (translator, token) = (&self.plan.translator, &self.plan.token);
        let passes = match stream {
            Stream::Stdout => token.is_none(),
            Stream::Stderr => translator.is_none(),
        };
        if passes {
            return self.observer.output(stream, bytes);
        }
        let held = &mut self.held[stream as usize];
        held.extend_from_slice(bytes);
        // Of standard output the last line waits even when it is whole.
        let whole = held.strip_suffix(b"\n").filter(|_| stream == Stream::Stdout).unwrap_or(held);
        if let Some(end) = whole.iter().rposition(|byte| *byte == b'\n') {
            let rest = held.split_off(end + 1);
            let lines = std::mem::replace(held, rest);
            self.pass(stream, &lines);
        }
    }

    fn pass(&mut self, stream: Stream, bytes: &[u8]) {
        match (&self.plan.translator, stream) {
            (Some(translator), Stream::Stderr) => {
                let text = translator.messages(&String::from_utf8_lossy(bytes));
                self.observer.output(stream, text.as_bytes());
            }
            _ => self.observer.output(stream, bytes),
        }
    }

    /// Nothing more will come.
    fn end(mut self) {
        let [stdout, stderr] = std::mem::take(&mut self.held);
        let is_token = self.plan.token.as_ref().is_some_and(|token| stdout.trim_ascii() == token.as_bytes());
        if !is_token && !stdout.is_empty() {
            self.pass(Stream::Stdout, &stdout);
        }
        if !stderr.is_empty() {
            self.pass(Stream::Stderr, &stderr);
        }
    }
}

/// The exit code, or the signal's name.
pub(crate) fn ending(status: RunStatus) -> (Option<i32>, Option<String>) {
    match status {
        RunStatus::Exited(code) => (Some(code), None),
        RunStatus::Signaled(signal) => (None, Some(signal_name(signal))),
    }
}
