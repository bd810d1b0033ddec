//! The steps before a run: what they make is found in the store, or made in a cell and kept.

use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox_base::wait::is_readable;
use sandbox_base::{LimitKind, RelativePath};
use sandbox_cell::archive::{FileCaps, Omission, Sink};
use sandbox_cell::{Failure, Mount, RunStatus, StopReason};
use sandbox_pool::Prestart;
use sandbox_runtimes::{Claim, Entry, Kind, StageName, Staging, Store};

use crate::event::Observer;
use crate::execute::{Run, Stopped, ending};
use crate::files::pack;
use crate::plan::{Making, Step};
use crate::prestart::prestart_for_compiler;
use crate::result::{CompileResult, RunResult, Verdict, seconds, text};
use crate::stage::{Ended, Input, Stage, failure};
use crate::verdict::{Evidence, judge};

/// How often a run looks for what another is making before it says that it waits.
const MUTE_WAITS: u32 = 25;

impl<'a> Run<'a> {
    /// Makes or finds everything that the program needs, with where it appears.
    pub(crate) fn make_all(&mut self, observer: &mut dyn Observer) -> Result<Vec<(Entry, &'a Path)>, Stopped> {
        let plan = self.plan;
        let mut entries = vec![];
        if let Some(install) = &plan.install {
            let began = Instant::now();
            let made = self.make(install, StageName::Install, &[], observer);
            self.phases.packages = seconds(began.elapsed());
            entries.push((self.timed(made)?, install.target.as_path()));
        }
        if let Some(compile) = &plan.compile {
            let began = Instant::now();
            let made = self.make(compile, StageName::Compile, &entries, observer);
            self.phases.compile = seconds(began.elapsed());
            entries.push((self.timed(made)?, compile.target.as_path()));
        }
        Ok(entries)
    }

    /// A run that comes no further than a step has taken that step's time all the same.
    fn timed(&self, mut made: Result<Entry, Stopped>) -> Result<Entry, Stopped> {
        if let Err(Stopped::Ended(result)) = &mut made {
            result.metrics.phases = self.phases;
        }
        made
    }

    /// Finds what a step makes, or makes it with what was made `before`.
    fn make(
        &mut self,
        making: &Making,
        stage: StageName,
        before: &[(Entry, &Path)],
        observer: &mut dyn Observer,
    ) -> Result<Entry, Stopped> {
        let staging = match self.claim(making, observer)? {
            Claim::Ready(entry) => {
                if making.step == Step::Compile {
                    self.compile = Some(CompileResult::cached());
                }
                return Ok(entry);
            }
            Claim::Vacant(staging) => staging,
        };
        let prepared = match &self.plan.prepare {
            Some(prepare) if prepare.stages.contains(&stage) => {
                let entry = match self.claim(prepare, observer)? {
                    Claim::Ready(entry) => entry,
                    Claim::Vacant(staging) => self.fill(prepare, staging, &[], None, observer)?,
                };
                Some((entry, prepare.target.as_path()))
            }
            _ => None,
        };
        let entries = || before.iter().chain(&prepared);
        let shown: Vec<Mount> = entries().map(|(entry, target)| Mount::read_only(&entry.content, *target)).collect();
        let companion = making.companion.as_ref();
        let seen = entries().map(|(entry, _)| entry);
        let prestart = prestart_for_compiler(self.plan, companion, !before.is_empty(), seen);
        let entry = self.fill(making, staging, &shown, prestart, observer)?;
        let most = match making.kind {
            Kind::Build => self.host.settings.build_cache,
            Kind::Environment => self.host.settings.package_cache,
        };
        // What is in use stays, whatever its size.
        let _ = self.store()?.shrink(making.kind, most);
        Ok(entry)
    }

    fn store(&self) -> Result<&'a Store, Failure> {
        let none = || failure("cannot use the cache", &io::Error::other("this run has none"));
        self.host.store.ok_or_else(none)
    }

    fn claim(&self, making: &Making, observer: &mut dyn Observer) -> Result<Claim, Stopped> {
        let mut waits = 0;
        let patient = || {
            waits += 1;
            if waits == MUTE_WAITS {
                observer.step(making.step, &format!("waiting for another run that is {}", making.what));
            }
            !is_readable(self.cancel, Duration::ZERO)
        };
        let claim = self.store()?.claim(making.kind, &making.key, patient).map_err(|error| Failure {
            fix: Some("name a directory that can be written with SANDBOX_DATA_DIR".to_owned()),
            ..failure("cannot use the cache", &error)
        })?;
        if waits >= MUTE_WAITS {
            observer.step_over(making.step);
        }
        claim.ok_or_else(|| Stopped::Ended(Box::new(self.cancelled())))
    }

    /// Runs a step in a cell of its own and keeps what it makes.
    fn fill(
        &mut self,
        making: &Making,
        mut staging: Staging,
        shown: &[Mount],
        prestart: Option<Prestart>,
        observer: &mut dyn Observer,
    ) -> Result<Entry, Stopped> {
        observer.step(making.step, &making.what);
        let files = pack(&making.files).map_err(|error| failure("cannot prepare the files", &error))?;
        let mut sink = StagingSink(&mut staging);
        let stage = Stage {
            cell: &making.cell,
            made: shown,
            lent: &[],
            prestart,
            command: &making.command,
            files: &files,
            input: Input::Empty,
            collect: Some(FileCaps { count: 0, bytes: 0 }),
            // What is made may be large, and its size and the time for it are the operator's.
            patience: making.cell.limits.wall_time(),
            reach: &making.reach,
            last: false,
        };
        let ended = stage.run(self.cells, self.cancel, &mut |_, _| {}, &mut sink);
        observer.step_over(making.step);
        let ended = ended.map_err(|error| self.stopped(error))?;
        let is_whole = ended.cut.is_none();
        let worked = ended.outcome.status == RunStatus::Exited(0) && ended.outcome.stopped.is_none() && is_whole;
        if making.step == Step::Compile {
            let mut compile = CompileResult::new(&ended, worked);
            if let Some(translator) = &self.plan.translator {
                compile.stderr = translator.compiler_messages(&compile.stderr);
            }
            self.compile = Some(compile);
        }
        if !worked {
            return Err(Stopped::Ended(Box::new(self.step_failed(making, ended))));
        }
        let owner = making.owner.as_deref();
        let entry =
            staging.publish(&making.label, owner).map_err(|error| failure("cannot keep what was made", &error))?;
        Ok(entry)
    }

    /// The result of a run that came no further than a step.
    fn step_failed(&self, making: &Making, mut ended: Ended) -> RunResult {
        if let (Step::Compile, Some(translator)) = (making.step, &self.plan.translator) {
            let text = String::from_utf8_lossy(&ended.stderr.kept);
            ended.stderr.kept = translator.compiler_messages(&text).into_bytes();
        }
        let evidence = Evidence {
            limits: &making.cell.limits,
            isolation: ended.ready.isolation,
            stderr: &ended.stderr.kept,
            output: ended.output(),
            reported: None,
            complaints: &making.complaints,
        };
        let judgement = judge(&ended.outcome, evidence);
        let (verdict, doing, prefix) = match making.step {
            Step::Compile => (Verdict::CompileError, "compiling", "SANDBOX_COMPILE"),
            Step::Prepare | Step::Install => (Verdict::PackageError, "installing", "SANDBOX_INSTALL"),
        };
        let mut result = self.unfinished();
        result.verdict = match judgement.verdict {
            Verdict::Cancelled | Verdict::InternalError => judgement.verdict,
            _ => verdict,
        };
        result.error = match (ended.outcome.stopped, judgement.limit) {
            (Some(StopReason::Limit(_)) | None, Some(limit)) => {
                let raise = match limit.kind {
                    LimitKind::WallTime => format!("; {prefix}_TIMEOUT raises it"),
                    LimitKind::Memory => format!("; {prefix}_MEMORY raises it"),
                    LimitKind::Disk => format!("; {prefix}_DISK raises it"),
                    _ => String::new(),
                };
                Some(format!("{doing}: {}{raise}", judgement.error.unwrap_or_default()))
            }
            (None, None) if judgement.verdict == Verdict::Ok => {
                let why = ended.cut.as_deref().unwrap_or("the cell ended early");
                Some(format!("{doing}: cannot collect what was made: {why}"))
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
    fn new(ended: &Ended, success: bool) -> Self {
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            success,
            cached: false,
            start: Some(ended.start),
            exit_code: ending(ended.outcome.status).0,
            stdout: said(&ended.stdout.kept),
            stderr: said(&ended.stderr.kept),
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
