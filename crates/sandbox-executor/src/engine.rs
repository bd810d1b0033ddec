//! Everything between a JSON request and its result, for programs that serve many: languages found once, one executor,
//! one store.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandbox_cell::{CellSpec, Failure, ServiceFiles, Sources};
use sandbox_images::{Image, ImageStore};
use sandbox_runtimes::{Definition, Memory, Missing, Places, Registry, Runtime, Store};

use crate::event::Observer;
use crate::execute::{Executor, Host};
use crate::images::NotFound;
use crate::json::{FieldError, JsonRequest};
use crate::plan::Plan;
use crate::request::{Request, RequestError, Source};
use crate::result::RunResult;
use crate::settings::Settings;
use crate::stage::Input;

/// Carries out JSON requests, from many threads at once.
#[derive(Debug)]
pub struct Engine {
    executor: Executor,
    settings: Settings,
    registry: Registry,
    store: Store,
    runtimes: HashMap<String, Result<Runtime, Missing>>,
    images: Option<ImageStore>,
    /// Toolchains that were found in images, by the image's digest and the language.
    inside: Mutex<HashMap<(String, String), Runtime>>,
    memory: Mutex<Memory>,
    /// A program that renders templates when it is called with [`crate::RENDER_COMMAND`].
    renderer: PathBuf,
}

/// A request that was checked.
#[derive(Debug)]
pub struct Checked {
    request: Request,
    language: String,
    input: Vec<u8>,
    /// The image's toolchain, if it runs in one.
    inside: Option<Runtime>,
    /// What will be done, unless a template has to be filled first.
    plan: Option<Plan>,
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
    /// Something else is wrong with it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The sandbox refused or failed.
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl Engine {
    /// An engine with an executor and these settings. Looks for every toolchain, which may take a moment.
    pub fn new(executor: Executor, settings: Settings, registry: Registry, renderer: PathBuf) -> std::io::Result<Self> {
        let store = match &settings.data_dir {
            Some(dir) => Store::new(dir),
            None => Store::temporary(settings.passes_data_dir(true))?,
        };
        let memory = Mutex::new(Memory::open(settings.data_dir.as_deref()));
        let places = Places::of_this_process();
        let find = |definition: &Definition| {
            let found = match memory.lock() {
                Ok(mut memory) => definition.discover(&places, &mut memory),
                Err(poisoned) => definition.discover(&places, &mut poisoned.into_inner()),
            };
            (definition.name.clone(), found)
        };
        let runtimes = registry.all().map(find).collect();
        let images = settings.data_dir.as_deref().map(ImageStore::new);
        let inside = Mutex::default();
        Ok(Self { executor, settings, registry, store, runtimes, images, inside, memory, renderer })
    }

    /// Confines the keeper to what requests can rightly need: toolchains, what is made once, and the paths that the
    /// operator allows.
    pub fn confine(&self) -> Result<(), Failure> {
        let toolchains = self.runtimes.values().flatten().flat_map(Runtime::sources).map(PathBuf::from);
        let own = [self.renderer.clone(), self.store.root()];
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let readable = toolchains.chain(own).map(real).collect();
        let writable = self.settings.volume_paths.iter().cloned().map(real).collect();
        self.executor.confine(&Sources { readable, writable })
    }

    /// Confines this process, which must have a single thread: it opens what its toolchains consist of, what it makes once,
    /// and `data_dir`, and the keeper does the rest.
    pub fn confine_service(&self, data_dir: &Path) -> Result<(), Failure> {
        let toolchains = self.runtimes.values().flatten().flat_map(Runtime::sources).map(PathBuf::from);
        let certificates = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let own = [self.renderer.clone()].into_iter().chain(certificates);
        let readable = toolchains.chain(own).chain(self.settings.volume_paths.iter().cloned());
        let writable = vec![self.store.root(), data_dir.to_owned()];
        sandbox_cell::confine_service(&ServiceFiles { readable: readable.collect(), writable })
    }

    /// Keeps up to so many cells ready from now on, at first one for every language that is there, and up to so many
    /// interpreters warm. Starts threads.
    pub fn warm_up(&mut self, cells: usize, zygotes: usize) -> std::io::Result<()> {
        self.executor.keep_ready(cells, zygotes)?;
        for runtime in self.runtimes.values().flatten() {
            let defaults = self.settings.defaults.clone();
            let request = Request::new(Source::Code("0".to_owned()), defaults, self.settings.required());
            if let Ok(plan) = self.plan(&request, runtime) {
                self.executor.expect(&plan);
            }
        }
        Ok(())
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

    /// Whether the keeper process has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.executor.cells.keeper().is_alive()
    }

    /// Makes a cell and deletes it, to see whether that works. Blocks.
    pub fn try_cell(&self) -> Result<(), Failure> {
        let spec = CellSpec { required: self.settings.required(), ..CellSpec::new() };
        self.executor.cells.keeper().create(&spec)?.ready().map(drop)
    }

    /// The operator's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The languages, with their toolchains or what is missing.
    pub fn languages(&self) -> impl Iterator<Item = (&Definition, Result<&Runtime, &Missing>)> {
        self.registry.all().filter_map(|definition| Some((definition, self.runtimes.get(&definition.name)?.as_ref())))
    }

    /// Checks a request of an owner completely, before anything is created.
    pub fn check(&self, json: &JsonRequest, owner: Option<&str>) -> Result<Checked, Refused> {
        let definition = self.registry.by_name(json.language())?;
        let mut request = json.request(&definition.name, &self.settings)?;
        request.check()?;
        request.owner = owner.map(str::to_owned);
        request.image = json.image.as_deref().map(|name| self.image(name)).transpose()?;
        let inside = request.image.as_ref().map(|image| self.runtime_inside(definition, image)).transpose()?;
        let runtime = inside.as_ref().map_or_else(|| self.runtime(&definition.name), Ok)?;
        // Also finds what only a plan shows: packages, entry, volumes.
        let plan = request.template.is_none().then(|| self.plan(&request, runtime)).transpose()?;
        let input = json.stdin.clone().unwrap_or_default().into_bytes();
        Ok(Checked { request, language: definition.name.clone(), input, inside, plan })
    }

    fn image(&self, name: &str) -> Result<Image, FieldError> {
        let refuse = |why: String| FieldError { field: "image".to_owned(), why };
        let images = self.images.as_ref().ok_or_else(|| refuse("there is no directory for images".to_owned()))?;
        images.open(name).map_err(|error| refuse(error.to_string()))
    }

    /// A toolchain in an image, asked for its version once.
    fn runtime_inside(&self, definition: &Definition, image: &Image) -> Result<Runtime, Refused> {
        let key = (image.digest.clone(), definition.name.clone());
        let known = self.inside.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            self.executor.find_inside(definition, image, &self.settings, &mut memory)
        };
        let found = found.map_err(|error| match error {
            NotFound::Missing(missing) => Refused::Missing(missing),
            NotFound::Failure(failure) => Refused::Failure(failure),
        })?;
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
        Ok(found)
    }

    fn runtime(&self, language: &str) -> Result<&Runtime, Missing> {
        let unknown = || Missing::on_host(format!("a toolchain for {language}"), "install it".to_owned());
        self.runtimes.get(language).ok_or_else(unknown)?.as_ref().map_err(Clone::clone)
    }

    fn plan(&self, request: &Request, runtime: &Runtime) -> Result<Plan, RequestError> {
        request.plan(Some(runtime), &self.settings, |name| std::env::var_os(name))
    }

    /// Carries out a request that has waited for this long. It is cancelled when one of `cancel` becomes readable. Blocks
    /// until it is over.
    pub fn run(
        &self,
        mut checked: Checked,
        queued: Duration,
        cancel: &[BorrowedFd<'_>],
        observer: &mut dyn Observer,
    ) -> Result<Arc<RunResult>, Refused> {
        self.executor.render(&mut checked.request, &checked.language, &self.renderer)?;
        let runtime = checked.inside.as_ref().map_or_else(|| self.runtime(&checked.language), Ok)?;
        let plan = checked.plan.map_or_else(|| self.plan(&checked.request, runtime), Ok)?;
        let host = Host { store: &self.store, settings: &self.settings };
        let input = if checked.input.is_empty() { Input::Empty } else { Input::Bytes(checked.input) };
        Ok(self.executor.run_queued(&plan, host, input, cancel, queued, observer)?)
    }
}
