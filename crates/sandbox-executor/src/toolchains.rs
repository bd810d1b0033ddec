//! The toolchains of the host and of images, each looked for once.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sandbox_images::Image;
use sandbox_runtimes::{Definition, Missing, Runtime, SearchPaths, ToolchainCache};

use crate::execute::Executor;
use crate::images::NotFound;
use crate::settings::Settings;

type Found = Result<Arc<Runtime>, Missing>;

/// The toolchains that were looked for so far.
#[derive(Debug)]
pub(crate) struct Toolchains {
    data_dir: Option<PathBuf>,
    /// On the host, by language.
    host: Mutex<HashMap<String, Found>>,
    /// In images, by the image's digest and the language.
    images: Mutex<HashMap<(String, String), Arc<Runtime>>>,
    /// The descriptions of toolchains, kept on disk.
    cache: OnceLock<Mutex<ToolchainCache>>,
}

impl Toolchains {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (data_dir, cache) = (settings.data_dir.clone(), OnceLock::new());
        Self { data_dir, host: Mutex::default(), images: Mutex::default(), cache }
    }

    /// The cache, read from disk when it is first needed.
    fn cache(&self) -> &Mutex<ToolchainCache> {
        self.cache.get_or_init(|| Mutex::new(ToolchainCache::open(self.data_dir.as_deref())))
    }

    /// The toolchain of a language on the host.
    pub(crate) fn on_host(&self, definition: &Definition) -> Found {
        if let Some(known) = lock(&self.host).get(&definition.name) {
            return known.clone();
        }
        let found = definition.discover(&SearchPaths::of_this_process(), &mut lock(self.cache())).map(Arc::new);
        lock(&self.host).insert(definition.name.clone(), found.clone());
        found
    }

    /// The toolchains of the host that were found so far.
    pub(crate) fn found(&self) -> Vec<Arc<Runtime>> {
        lock(&self.host).values().flatten().cloned().collect()
    }

    /// The toolchain of a language in an image, whose version is queried once.
    pub(crate) fn in_image(
        &self,
        definition: &Definition,
        image: &Image,
        executor: &Executor,
        settings: &Settings,
        cancel: &[BorrowedFd<'_>],
    ) -> Result<Arc<Runtime>, NotFound> {
        let key = (image.digest.clone(), definition.name.clone());
        if let Some(known) = lock(&self.images).get(&key) {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(executor.find_in_image(definition, image, settings, self.cache(), cancel)?);
        lock(&self.images).insert(key, Arc::clone(&found));
        Ok(found)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
