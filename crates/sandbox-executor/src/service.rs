//! The run service: one way from a request to its result, for the command line, HTTP, batches, jobs and the attack
//! suite.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use sandbox_backends::Backend;
use sandbox_base::limits::{Caps, Limits};
use sandbox_cell::{CellSpec, Failure, ServiceFiles, Sources, WindowSize};
use sandbox_images::{Image, ImageStore};
use sandbox_pool::{PoolStatistics, WarmStart};
use sandbox_runtimes::{ArtifactStore, Definition, Missing, Registry, Runtime};

use crate::event::Observer;
use crate::execute::{Executor, HostContext};
use crate::images::NotFound;
use crate::json::{FieldError, JsonRequest};
use crate::json_input::JsonInput;
use crate::plan::Plan;
use crate::preparation::{Preparation, PreparationState, Preparations, PreparePriority};
use crate::request::{Request, RequestError, Source};
use crate::resolve::{HostVariables, Resolved, Unresolved};
use crate::result::RunResult;
use crate::settings::{Isolation, Settings};
use crate::stage::{Input, StageError, failure};
use crate::toolchains::Toolchains;

/// Carries out requests, from many threads at once.
#[derive(Debug)]
pub struct RunService {
    executor: Executor,
    settings: Settings,
    /// The settings for new requests: the same but for limits, which the operator may change.
    for_requests: RwLock<Arc<Settings>>,
    registry: Registry,
    /// Made when it is first needed.
    store: OnceLock<ArtifactStore>,
    toolchains: Toolchains,
    preparations: Preparations,
    images: Option<ImageStore>,
    variables: HostVariables,
    /// A program that renders templates when it is called with [`crate::RENDER_COMMAND`].
    renderer: PathBuf,
}

/// A request that was checked completely, and what was found out for it. Nothing was created yet.
#[derive(Debug)]
pub struct CheckedRequest {
    input: Input,
    work: PendingWork,
    /// Where what is made is kept, if not in the service's store.
    store: Option<Arc<ArtifactStore>>,
    /// Layers that the program's cell lacks, and whether the compiler's lacks them too.
    #[cfg(feature = "canary")]
    disabled_layers: (sandbox_cell::LayerSet, bool),
}

/// What is to be done for a request.
#[derive(Debug)]
enum PendingWork {
    /// This. The request itself is no longer needed.
    Plan(Box<Plan>),
    /// A template has to be rendered before there is a plan.
    Template(Box<(Request, Option<Arc<Runtime>>, Resolved)>),
}

/// Why a request was refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The language is unknown.
    #[error(transparent)]
    Language(#[from] sandbox_runtimes::UnknownLanguage),
    /// The language's toolchain, or a tool, is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The request is invalid for another reason.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The sandbox refused or failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The caller went away while it was checked.
    #[error("cancelled by the caller")]
    Cancelled,
}

impl CheckedRequest {
    /// Disables layers of the program's cell, and of the compiler's if `compiler` is set. For tests that have to fail then: no
    /// request can ask for it, and a confined keeper refuses it.
    #[cfg(feature = "canary")]
    #[must_use]
    pub fn with_disabled_layers(mut self, layers: sandbox_cell::LayerSet, compiler: bool) -> Self {
        self.disabled_layers = (layers, compiler);
        self
    }

    /// Keeps what is made for the run in another store than the service's.
    #[must_use]
    pub fn keep_in(mut self, store: &Arc<ArtifactStore>) -> Self {
        self.store = Some(Arc::clone(store));
        self
    }
}

impl Refused {
    /// Whether the sandbox or the host failed, and not the request.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Failure(failure) if !failure.request)
    }

    /// The reason, and separately what to do about it if that is known.
    #[must_use]
    pub fn reason_and_hint(&self) -> (String, Option<String>) {
        match self {
            Self::Missing(missing) | Self::Request(RequestError::Missing(missing)) => {
                (missing.reason(), Some(missing.missing.clone()))
            }
            _ => (self.to_string(), None),
        }
    }

    /// Whether the keeper ended during the run. The same request may succeed with the next keeper.
    #[must_use]
    pub fn is_keeper_end(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.keeper_ended)
    }
}

impl From<Unresolved> for Refused {
    fn from(unresolved: Unresolved) -> Self {
        match unresolved {
            Unresolved::Request(error) => Self::Request(error),
            Unresolved::Failure(failure) => Self::Failure(failure),
        }
    }
}

impl From<NotFound> for Refused {
    fn from(error: NotFound) -> Self {
        match error {
            NotFound::Missing(missing) => Self::Missing(missing),
            NotFound::Failure(failure) => Self::Failure(failure),
            NotFound::Cancelled => Self::Cancelled,
        }
    }
}

impl RunService {
    /// A service with an executor and these settings, for requests in these languages. `renderer` is a program that renders
    /// templates when it is called with [`crate::RENDER_COMMAND`]: this one.
    #[must_use]
    pub fn new(
        executor: Executor,
        settings: Settings,
        registry: Registry,
        variables: HostVariables,
        renderer: PathBuf,
    ) -> Self {
        let (store, toolchains) = (OnceLock::new(), Toolchains::new(&settings));
        let images = settings.data_dir.as_deref().map(ImageStore::new);
        let preparations = Preparations::default();
        let for_requests = RwLock::new(Arc::new(settings.clone()));
        Self {
            executor,
            settings,
            for_requests,
            registry,
            store,
            toolchains,
            preparations,
            images,
            variables,
            renderer,
        }
    }

    /// Where what is made once is kept: in the data directory, or as long as this process runs.
    fn store(&self) -> Result<&ArtifactStore, Failure> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let store = match &self.settings.data_dir {
            Some(dir) => ArtifactStore::new(dir),
            None => ArtifactStore::temporary(self.settings.passes_data_dir(true))
                .map_err(|error| failure("cannot create a temporary directory", &error))?,
        };
        Ok(self.store.get_or_init(|| store))
    }

    /// Looks for every toolchain, which may take a moment.
    pub fn find_toolchains(&self) {
        for definition in self.registry.all() {
            let _ = self.toolchains.on_host(definition);
        }
    }

    /// Confines the keeper to what requests can rightly need: toolchains, what is made once, and the paths that the
    /// operator allows.
    pub fn confine(&self) -> Result<(), Failure> {
        let toolchains = self.toolchain_files();
        let own = [self.renderer.clone(), self.store()?.root()];
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let readable = toolchains.into_iter().chain(own).map(real).collect();
        let writable = self.settings.volume_paths.iter().cloned().map(real).collect();
        self.executor.confine(&Sources { readable, writable })
    }

    /// Confines this process, which must have a single thread: it opens what its toolchains consist of, what it makes once,
    /// and `data_dir`, and the keeper does the rest.
    pub fn confine_service(&self, data_dir: &Path, configuration: Vec<PathBuf>) -> Result<(), Failure> {
        let toolchains = self.toolchain_files();
        let certificates = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let own = [self.renderer.clone()].into_iter().chain(certificates).chain(configuration);
        let readable = toolchains.into_iter().chain(own).chain(self.settings.volume_paths.iter().cloned());
        let writable = vec![self.store()?.root(), data_dir.to_owned()];
        sandbox_cell::confine_service(&ServiceFiles { readable: readable.collect(), writable })
    }

    /// What the toolchains consist of that were found.
    fn toolchain_files(&self) -> Vec<PathBuf> {
        let found = self.toolchains.found();
        found.iter().flat_map(|runtime| runtime.sources().map(PathBuf::from).collect::<Vec<_>>()).collect()
    }

    /// Keeps up to so many cells ready from now on, and up to so many interpreters warm. Starts threads.
    pub fn keep_ready(&mut self, cells: usize, zygotes: usize) -> std::io::Result<()> {
        self.executor.keep_ready(cells, zygotes)
    }

    /// The same, at first one for every toolchain that was found.
    pub fn warm_up(&mut self, cells: usize, zygotes: usize) -> std::io::Result<()> {
        self.keep_ready(cells, zygotes)?;
        for runtime in self.toolchains.found() {
            if let Ok(plan) = self.usual_plan(&runtime) {
                self.executor.expect(&plan);
            }
        }
        Ok(())
    }

    /// The plan of a program without anything special.
    fn usual_plan(&self, runtime: &Runtime) -> Result<Plan, RequestError> {
        let defaults = self.settings.defaults.clone();
        let request = Request::new(Source::Code("0".into()), defaults, self.settings.required());
        let resolved = Resolved { variables: self.variables.clone(), ..Resolved::default() };
        request.plan(Some(runtime), &self.settings, &resolved)
    }

    /// Prepares the host's toolchain of a language as its first run would, or finds that this was done. Blocks.
    pub fn prepare(
        &self,
        language: &Definition,
        priority: PreparePriority,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<Preparation, Refused> {
        let prepared = self.try_prepare(language, priority, cancel, observer);
        if let Err(refused) = &prepared {
            self.preparations.note(&language.name, PreparationState::Failed(refused.to_string()));
        }
        prepared
    }

    fn try_prepare(
        &self,
        language: &Definition,
        priority: PreparePriority,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<Preparation, Refused> {
        let runtime = self.toolchain(language)?;
        if language.prepare.is_none() {
            return Ok(Preparation::Nothing);
        }
        let mut plan = self.usual_plan(&runtime)?;
        if let Some(prepare) = &mut plan.prepare {
            priority.limit(&mut prepare.cell.limits);
        }
        let host = self.host_context(Some(self.store()?));
        Ok(self.executor.prepare(&plan, host, cancel, observer)?)
    }

    /// For each toolchain of the host that has to be prepared, how far that is.
    #[must_use]
    pub fn preparations(&self) -> BTreeMap<String, PreparationState> {
        let needed = self.toolchains.found().into_iter().filter(|runtime| runtime.definition.prepare.is_some());
        needed.map(|runtime| self.preparations.get(&runtime.definition.name)).collect()
    }

    fn host_context<'a>(&'a self, store: Option<&'a ArtifactStore>) -> HostContext<'a> {
        HostContext { store, settings: &self.settings, preparations: &self.preparations }
    }

    /// Gives up everything that is kept ready.
    pub fn keep_nothing(&self) {
        self.executor.keep_nothing();
    }

    /// How many cells neither answer nor die; see [`Executor::lost_cells`].
    #[must_use]
    pub fn lost_cells(&self) -> usize {
        self.executor.lost_cells()
    }

    /// How many cells are ready, if some are kept.
    #[must_use]
    pub fn ready_cells(&self) -> Option<usize> {
        self.executor.ready_cells()
    }

    /// Whether programs start warm, for each language that can and whose toolchain was found.
    #[must_use]
    pub fn warm_starts(&self) -> BTreeMap<String, WarmStart> {
        let able = self.toolchains.found().into_iter().filter(|runtime| runtime.can_start_warm());
        able.map(|runtime| {
            let language = runtime.definition.name.clone();
            let known = || self.executor.cells.pool.warm_start(&language);
            let start = runtime.starts_cold().map_or_else(known, WarmStart::Off);
            (language, start)
        })
        .collect()
    }

    /// Whether the keeper process has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.executor.cells.keeper.is_alive()
    }

    /// A descriptor that becomes readable when the keeper process of this moment ends.
    pub fn keeper_end_notice(&self) -> std::io::Result<OwnedFd> {
        self.executor.cells.keeper.end_notice()
    }

    /// Starts another keeper in place of one that has ended, and makes ready again what was ready. Blocks.
    pub fn replace_keeper(&self) -> Result<(), Failure> {
        self.executor.cells.keeper.replace()?;
        self.executor.cells.pool.begin_anew();
        Ok(())
    }

    /// Whether a keeper that ends can be replaced.
    #[must_use]
    pub fn can_replace_keeper(&self) -> bool {
        self.executor.cells.keeper.is_replaceable()
    }

    /// What the pool of ready cells has counted.
    #[must_use]
    pub fn pool_statistics(&self) -> PoolStatistics {
        self.executor.cells.pool.statistics()
    }

    /// Makes a cell and deletes it, to see whether that works. Blocks.
    pub fn try_cell(&self) -> Result<(), Failure> {
        let spec = CellSpec { required: self.settings.required(), ..CellSpec::new() };
        self.executor.cells.keeper.create(&spec)?.ready().map(drop)
    }

    /// The operator's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the default limits and the caps for requests from now on. Requests that were checked before keep theirs.
    pub fn set_limits(&self, defaults: Limits, caps: Caps) {
        let changed = Arc::new(Settings { defaults, caps, ..self.settings.clone() });
        *self.for_requests.write().unwrap_or_else(PoisonError::into_inner) = changed;
    }

    fn for_requests(&self) -> Arc<Settings> {
        Arc::clone(&self.for_requests.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Languages and their toolchains or what is missing.
    pub fn languages(&self) -> impl Iterator<Item = (&Definition, Result<Arc<Runtime>, Missing>)> {
        self.registry.all().map(|definition| (definition, self.toolchains.on_host(definition)))
    }

    /// Checks a JSON request of an owner completely, before anything is created.
    pub fn check_json(
        &self,
        mut json: JsonRequest,
        owner: Option<&str>,
        cancel: &[BorrowedFd<'_>],
    ) -> Result<CheckedRequest, Refused> {
        let definition = self.language(json.language())?;
        let (image, stdin) = (json.image.take(), json.stdin.take().map(JsonInput::into_bytes).transpose());
        let stdin = stdin.map_err(|why| FieldError { field: "stdin".to_owned(), why })?;
        let mut request = json.into_request(definition, &self.for_requests())?;
        request.owner = owner.map(str::to_owned);
        request.image = image.map(|name| self.image(&name)).transpose()?;
        let input = stdin.filter(|bytes| !bytes.is_empty()).map_or(Input::Empty, Input::Bytes);
        self.check(request, Some(definition), input, cancel)
    }

    /// Checks a request completely, before anything is created. A program of the system has no language. An image may have
    /// to be asked for its toolchain, which ends when one of `cancel` becomes readable.
    pub fn check(
        &self,
        mut request: Request,
        language: Option<&Definition>,
        input: Input,
        cancel: &[BorrowedFd<'_>],
    ) -> Result<CheckedRequest, Refused> {
        request.check()?;
        request.terminal = input.terminal().map(|terminal| terminal.window.size());
        self.check_terminal(request.terminal)?;
        let runtime = match (language, &request.image) {
            (None, _) => None,
            (Some(definition), None) => Some(self.toolchain(definition)?),
            (Some(definition), Some(image)) => {
                Some(self.toolchains.in_image(definition, image, &self.executor, &self.settings, cancel)?)
            }
        };
        let resolved = Resolved::new(&request, &self.settings, &self.variables)?;
        // Only a plan shows that packages, entry, network and volumes are valid. A template changes none of them, so that the
        // plan of the code without it is refused for the same reasons.
        let plan = request.plan(runtime.as_deref(), &self.for_requests(), &resolved)?;
        let work = match request.template {
            Some(_) => PendingWork::Template(Box::new((request, runtime, resolved))),
            None => PendingWork::Plan(Box::new(plan)),
        };
        Ok(CheckedRequest {
            input,
            work,
            store: None,
            #[cfg(feature = "canary")]
            disabled_layers: Default::default(),
        })
    }

    /// Whether programs can have terminals.
    #[must_use]
    pub fn has_terminals(&self) -> bool {
        self.check_terminal(Some(WindowSize::default())).is_ok()
    }

    /// Refuses a terminal where cells cannot have one, before anything runs.
    fn check_terminal(&self, terminal: Option<WindowSize>) -> Result<(), Refused> {
        match (&self.settings.backend, self.settings.isolation) {
            _ if terminal.is_none() => Ok(()),
            (Backend::Oci(_) | Backend::Docker(_), _) => Err(RequestError::Terminal.into()),
            (Backend::Native, Isolation::Full) => Ok(()),
            // Only the keeper finds out whether cells have what a terminal needs.
            (Backend::Native, Isolation::Reduced) => {
                let spec = CellSpec { required: self.settings.required(), terminal, ..CellSpec::new() };
                Ok(self.executor.cells.keeper.create(&spec)?.ready().map(drop)?)
            }
        }
    }

    /// The definition of a language by its name or one of its aliases.
    pub fn language(&self, name: &str) -> Result<&Definition, sandbox_runtimes::UnknownLanguage> {
        self.registry.by_name(name)
    }

    /// The definition of the language of a file, by its extension.
    #[must_use]
    pub fn language_of_file(&self, file: &Path) -> Option<&Definition> {
        self.registry.by_file(file)
    }

    /// The toolchain of a language on the host.
    pub fn toolchain(&self, definition: &Definition) -> Result<Arc<Runtime>, Missing> {
        self.toolchains.on_host(definition)
    }

    fn image(&self, name: &str) -> Result<Image, FieldError> {
        let refuse = |why: String| FieldError { field: "image".to_owned(), why };
        let images = self.images.as_ref().ok_or_else(|| refuse("there is no directory for images".to_owned()))?;
        images.open(name).map_err(|error| refuse(error.to_string()))
    }

    /// Carries out a request that has waited for this long. It is cancelled when one of `cancel` becomes readable. Blocks
    /// until it is over.
    pub fn run(
        &self,
        checked: CheckedRequest,
        queued: Duration,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<Arc<RunResult>, Refused> {
        #[cfg(feature = "canary")]
        let (layers, compiler) = checked.disabled_layers;
        let CheckedRequest { input, work, store, .. } = checked;
        let plan = match work {
            PendingWork::Plan(plan) => *plan,
            PendingWork::Template(parts) => {
                let (mut request, runtime, resolved) = *parts;
                let rendered = runtime.as_ref().map_or(Ok(None), |runtime| {
                    self.executor.render(&request, &runtime.definition, &self.renderer, cancel)
                });
                match rendered {
                    Ok(Some(rendered)) => request.set_rendered(rendered)?,
                    Ok(None) => {}
                    Err(StageError::Failed(failure)) => return Err(failure.into()),
                    Err(StageError::Cancelled) => {
                        let named = |runtime: &Arc<Runtime>| (runtime.definition.name.clone(), runtime.version.clone());
                        return Ok(Executor::cancel_early(runtime.as_ref().map(named), queued, observer));
                    }
                }
                request.plan(runtime.as_deref(), &self.for_requests(), &resolved)?
            }
        };
        #[cfg(feature = "canary")]
        let plan = plan.with_disabled_layers(layers, compiler);
        let kept = if plan.makes_artifacts() && store.is_none() { Some(self.store()?) } else { store.as_deref() };
        Ok(self.executor.run(&plan, self.host_context(kept), input, cancel, queued, observer)?)
    }
}
