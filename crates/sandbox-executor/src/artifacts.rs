//! Artifacts of the steps before a run: prepared toolchains, package environments and compiled programs, found in the
//! store or made in a cell.

use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox_base::RelativePath;
use sandbox_base::wait::is_readable;
use sandbox_cell::archive::{FileCaps, Omission, Sink};
use sandbox_cell::{Failure, Mount, RunStatus, StopReason};
use sandbox_pool::Prestart;
use sandbox_runtimes::{ArtifactKind, ArtifactStore, Claim, Entry, StageName, Staging};

use crate::event::Observer;
use crate::execute::{Execution, Stopped, ending};
use crate::input_files::pack;
use crate::plan::{ArtifactPlan, Step};
use crate::preparation::{Preparation, PreparationState};
use crate::warm_start::prestart_for_compiler;

use crate::result::{CompileResult, RunResult, Verdict, seconds, text};
use crate::stage::{Input, Stage, StageEnd, failure, longest_creation};
use crate::status_line::StatusLine;
use crate::verdict::{Evidence, judge};

/// The number of times that a run looks for an artifact that another run is making before it reports that it waits.
const MUTE_WAITS: u32 = 25;

impl<'a> Execution<'a> {
    /// Makes or finds everything that the program needs, with where it appears.
    pub(crate) fn make_artifacts(&mut self, observer: &mut dyn Observer) -> Result<Vec<(Entry, &'a Path)>, Stopped> {
        let plan = self.plan;
        let mut entries = vec![];
        if let Some(install) = &plan.install {
            let (began, before) = (Instant::now(), self.phases.toolchain);
            let made = self.make(install, StageName::Install, &[], observer);
            self.phases.packages = self.own_time(began, before);
            entries.push((self.timed(made)?, install.target.as_path()));
        }
        if let Some(compile) = &plan.compile {
            let (began, before) = (Instant::now(), self.phases.toolchain);
            let made = self.make(compile, StageName::Compile, &entries, observer);
            self.phases.compile = self.own_time(began, before);
            entries.push((self.timed(made)?, compile.target.as_path()));
        }
        Ok(entries)
    }

    /// The time of a step without its preparations; `before` is the time of preparations before the step.
    fn own_time(&self, began: Instant, before: f64) -> f64 {
        seconds(began.elapsed().saturating_sub(Duration::from_secs_f64(self.phases.toolchain - before)))
    }

    /// Makes the artifact that the plan prepares for its toolchain, and nothing else.
    pub(crate) fn prepare_only(mut self, observer: &mut dyn Observer) -> Result<Preparation, Failure> {
        let Some(prepare) = &self.plan.prepare else { return Ok(Preparation::Nothing) };
        match self.prepare(prepare, observer) {
            Ok((_, preparation)) => Ok(preparation),
            Err(Stopped::Failed(failure)) => Err(failure),
            Err(Stopped::Ended(result)) => Ok(Preparation::Failed(result)),
        }
    }

    /// Finds the artifact that is prepared for the toolchain, or prepares it.
    fn prepare(
        &mut self,
        prepare: &ArtifactPlan,
        observer: &mut dyn Observer,
    ) -> Result<(Entry, Preparation), Stopped> {
        let began = Instant::now();
        let found = match self.claim(prepare, observer) {
            Ok((Claim::Ready(entry), waited)) => {
                self.note_preparation(prepare, PreparationState::Ready);
                Ok((entry, Preparation::Found { waited }))
            }
            Ok((Claim::Vacant(staging), _)) => {
                self.note_preparation(prepare, PreparationState::Preparing);
                let made = self.fill(prepare, staging, &[], None, observer);
                self.note_preparation(prepare, PreparationState::of(&made));
                made.map(|entry| (entry, Preparation::Made))
            }
            Err(stopped) => Err(stopped),
        };
        if !matches!(found, Ok((_, Preparation::Found { waited: false }))) {
            self.phases.toolchain += seconds(began.elapsed());
        }
        found
    }

    /// Records how far a toolchain of this host is prepared. Toolchains of images, and what is prepared for packages, are
    /// not tracked.
    fn note_preparation(&self, prepare: &ArtifactPlan, state: PreparationState) {
        let is_toolchain = self.plan.prepare.as_ref().is_some_and(|own| own.key == prepare.key);
        if let (true, Some((language, _)), None) = (is_toolchain, &self.plan.language, &self.plan.cell.image) {
            self.host.preparations.note(language, state);
        }
    }

    /// A run that comes no further than a step has taken that step's time all the same.
    fn timed(&self, mut made: Result<Entry, Stopped>) -> Result<Entry, Stopped> {
        if let Err(Stopped::Ended(result)) = &mut made {
            result.metrics.phases = self.phases;
        }
        made
    }

    /// Finds the artifact of a step, or makes it with the artifacts made `before`.
    fn make(
        &mut self,
        artifact: &ArtifactPlan,
        stage: StageName,
        before: &[(Entry, &Path)],
        observer: &mut dyn Observer,
    ) -> Result<Entry, Stopped> {
        let staging = match self.claim(artifact, observer)? {
            (Claim::Ready(entry), _) => {
                if artifact.step == Step::Compile {
                    self.compile = Some(CompileResult::cached());
                }
                return Ok(entry);
            }
            (Claim::Vacant(staging), _) => staging,
        };
        let plan = self.plan;
        let mut prepared = vec![];
        for prepare in plan.prepare.iter().chain(&plan.prepare_packages) {
            if prepare.stages.contains(&stage) {
                let (entry, _) = self.prepare(prepare, observer)?;
                prepared.push((entry, prepare.target.as_path()));
            }
        }
        let entries = || before.iter().chain(&prepared);
        let mounts: Vec<Mount> = entries().map(|(entry, target)| Mount::read_only(&entry.content, *target)).collect();
        let shown = entries().map(|(entry, _)| entry);
        let prestart = prestart_for_compiler(self.plan, artifact.zygote.as_ref(), !before.is_empty(), shown);
        let entry = self.fill(artifact, staging, &mounts, prestart, observer)?;
        let most = match artifact.kind {
            ArtifactKind::Build => self.host.settings.build_cache,
            ArtifactKind::Environment => self.host.settings.package_cache,
        };
        // What is in use stays, whatever its size.
        let _ = self.store()?.shrink(artifact.kind, most);
        Ok(entry)
    }

    fn store(&self) -> Result<&'a ArtifactStore, Failure> {
        let none = || failure("cannot use the cache", &io::Error::other("this run has no cache"));
        self.host.store.ok_or_else(none)
    }

    /// Asks for an artifact, and waits while another makes it. Tells whether it has waited.
    fn claim(&self, artifact: &ArtifactPlan, observer: &mut dyn Observer) -> Result<(Claim, bool), Stopped> {
        let mut waits = 0;
        let patient = || {
            waits += 1;
            if waits == MUTE_WAITS {
                observer.step(artifact.step, &format!("waiting for work in progress: {}", artifact.what), true);
            }
            !is_readable(self.cancel, Duration::ZERO)
        };
        let claim = self.store()?.claim(artifact.kind, &artifact.key, patient).map_err(|error| Failure {
            fix: Some("set SANDBOX_DATA_DIR to a writable directory".to_owned()),
            ..failure("cannot use the cache", &error)
        })?;
        if waits >= MUTE_WAITS {
            observer.step_over(artifact.step);
        }
        claim.map(|claim| (claim, waits > 0)).ok_or_else(|| Stopped::Ended(Box::new(self.cancelled())))
    }

    /// Runs a step in a separate cell and keeps the artifact that it makes.
    fn fill(
        &mut self,
        artifact: &ArtifactPlan,
        mut staging: Staging,
        mounts: &[Mount],
        prestart: Option<Prestart>,
        observer: &mut dyn Observer,
    ) -> Result<Entry, Stopped> {
        observer.step(artifact.step, &artifact.what, false);
        let files = pack(&artifact.files).map_err(|error| failure("cannot prepare the files", &error))?;
        let mut sink = StagingSink(&mut staging);
        let stage = Stage {
            cell: &artifact.cell,
            artifact_mounts: mounts,
            prestart,
            command: &artifact.command,
            files: &files,
            input: Input::Empty,
            collect: Some(FileCaps { count: 0, bytes: 0 }),
            // What is made may be large, and its size and the time for it are the operator's.
            patience: artifact.cell.limits.wall_time(),
            creation: longest_creation(&self.host.settings.backend),
            address_policy: &artifact.address_policy,
            last: false,
        };
        // A compiler prints no progress, but warnings, which are shown at its end.
        let mut status = (artifact.step != Step::Compile).then(StatusLine::default);
        let mut watch = |_, bytes: &[u8]| {
            if let Some(line) = status.as_mut().and_then(|status| status.read(bytes)) {
                observer.step_status(artifact.step, &line);
            }
        };
        let ended = stage.run(self.cells, self.cancel, &mut watch, &mut sink);
        observer.step_over(artifact.step);
        let ended = ended.map_err(|error| self.stopped(error))?;
        let is_whole = ended.cut.is_none();
        let worked = ended.outcome.status == RunStatus::Exited(0) && ended.outcome.stopped.is_none() && is_whole;
        if artifact.step == Step::Compile {
            let mut compile = CompileResult::new(&ended, worked);
            if let Some(translator) = &self.plan.translator {
                compile.stderr = translator.compiler_messages(&compile.stderr);
            }
            self.compile = Some(compile);
        }
        if !worked {
            return Err(Stopped::Ended(Box::new(self.step_failed(artifact, ended))));
        }
        let owner = artifact.owner.as_deref();
        let entry =
            staging.publish(&artifact.label, owner).map_err(|error| failure("cannot store the artifact", &error))?;
        Ok(entry)
    }

    /// The result of a run that came no further than a step.
    fn step_failed(&self, artifact: &ArtifactPlan, mut ended: StageEnd) -> RunResult {
        if let (Step::Compile, Some(translator)) = (artifact.step, &self.plan.translator) {
            let text = String::from_utf8_lossy(&ended.stderr.kept);
            ended.stderr.kept = translator.compiler_messages(&text).into_bytes();
        }
        let evidence = Evidence {
            limits: &artifact.cell.limits,
            isolation: ended.ready.isolation,
            stderr: &ended.stderr.kept,
            output: ended.output(),
            reported: None,
            error_patterns: &artifact.error_patterns,
        };
        let judgement = judge(&ended.outcome, evidence);
        let doing = artifact.step.doing();
        let verdict = match artifact.step {
            Step::Compile => Verdict::CompileError,
            Step::Prepare | Step::Install => Verdict::PackageError,
        };
        let mut result = self.unfinished();
        result.hint = self.advisor().after_step(artifact.step, &judgement, ended.ready.isolation, &ended.stderr.kept);
        result.verdict = match judgement.verdict {
            Verdict::Cancelled | Verdict::InternalError => judgement.verdict,
            _ => verdict,
        };
        result.error = match (ended.outcome.stopped, judgement.limit) {
            (Some(StopReason::Limit(_)) | None, Some(_)) => {
                Some(format!("{doing}: {}", judgement.error.unwrap_or_default()))
            }
            (None, None) if judgement.verdict == Verdict::Ok => {
                let why = ended.cut.as_deref().unwrap_or("the cell ended early");
                Some(format!("{doing}: cannot collect the artifact: {why}"))
            }
            _ => judgement.error,
        };
        result.limit = judgement.limit;
        (result.exit_code, result.signal) = ending(ended.outcome.status);
        result.isolation = ended.ready.isolation;
        (result.stdout, result.stdout_base64) = text(ended.stdout.kept);
        (result.stderr, result.stderr_base64) = text(ended.stderr.kept);
        result
    }
}

impl CompileResult {
    fn new(ended: &StageEnd, success: bool) -> Self {
        let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            success,
            cached: false,
            start: Some(ended.start),
            exit_code: ending(ended.outcome.status).0,
            stdout: text_of(&ended.stdout.kept),
            stderr: text_of(&ended.stderr.kept),
            time: seconds(ended.outcome.usage.wall),
            memory_peak: ended.outcome.usage.memory_peak,
        }
    }

    /// The program was compiled before.
    fn cached() -> Self {
        Self {
            success: true,
            cached: true,
            start: None,
            exit_code: Some(0),
            stdout: String::new(),
            stderr: String::new(),
            time: seconds(Duration::ZERO),
            memory_peak: 0,
        }
    }
}

/// Takes what a stage has made.
struct StagingSink<'a>(&'a mut Staging);

impl Sink for StagingSink<'_> {
    fn file(&mut self, _: &RelativePath, _: bool, _: u64, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }

    fn omitted(&mut self, _: &str, _: Omission) {}

    fn volume(&mut self, _: u8, mut part: &mut dyn Read) -> io::Result<()> {
        self.0.unpack(&mut part)
    }
}
