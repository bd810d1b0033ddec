//! The state that all requests share: the run service, budgets, limits, the job store and the shutdown flags.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sandbox_executor::RunService;
use sandbox_jobs::{JobId, Labels};
use tokio::sync::{Semaphore, watch};

use crate::auth::Keys;
use crate::capacity::Slots;
use crate::config::{Config, ServerRole};
use crate::follow::Followed;
use crate::keeper_watch::KeeperWatch;
use crate::memory_budget::SharedBudget;
use crate::metrics::ServerMetrics;
use crate::problem::{Code, Problem};
use crate::rate_limit::RateLimits;
use crate::ready::Readiness;
use crate::web::Guard;
use crate::webhook::Webhooks;
use crate::worker::{RunningJob, Workload};

/// The maximum concurrency of work that takes memory and a thread.
const AT_ONCE: usize = 4;

/// The shared state.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) service: RunService,
    pub(crate) slots: Arc<Slots>,
    keys: RwLock<Arc<Keys>>,
    /// Checks requests of browsers where no key is required.
    pub(crate) guard: Guard,
    pub(crate) started: Instant,
    pub(crate) jobs: sandbox_jobs::JobStore,
    /// Limits of the job store.
    pub(crate) bounds: sandbox_jobs::StoreLimits,
    /// The jobs that this server is running.
    pub(crate) running: Mutex<HashMap<JobId, Arc<RunningJob>>>,
    /// What the worker is busy with.
    pub(crate) workload: Arc<Workload>,
    pub(crate) metrics: ServerMetrics,
    pub(crate) rate: RateLimits,
    /// The maximum size of a request body.
    pub(crate) max_body: usize,
    /// The memory budget of requests.
    pub(crate) bodies: SharedBudget,
    /// The memory budget of responses.
    pub(crate) answers: SharedBudget,
    /// The budget of event streams and of requests that wait for a job.
    pub(crate) streams: SharedBudget,
    /// Bounds how many large bodies are parsed concurrently.
    pub(crate) parsers: Arc<Semaphore>,
    /// Bounds how many followers of jobs read events from the store concurrently.
    pub(crate) readers: Semaphore,
    /// The jobs that clients follow.
    pub(crate) followed: Arc<Followed>,
    /// How long a client may be silent while it sends a body.
    pub(crate) read_timeout: Duration,
    pub(crate) readiness: Readiness,
    /// The directory of jobs and shared artifacts.
    pub(crate) data_dir: Arc<Path>,
    /// The labels of jobs that the worker takes, besides jobs without any.
    pub(crate) labels: Labels,
    /// What the server does.
    pub(crate) role: ServerRole,
    pub(crate) webhooks: Webhooks,
    /// Warnings for the operator about the settings.
    pub(crate) setting_warnings: Vec<String>,
    /// All warnings for the operator, once the server listens.
    pub(crate) warnings: OnceLock<Vec<String>>,
    /// The isolation layers of this host.
    pub(crate) isolation: Vec<&'static str>,
    /// The number of runs since the start.
    pub(crate) runs: AtomicU64,
    /// The languages whose toolchains are prepared ahead.
    pub(crate) prepare: Vec<String>,
    /// Whether there is a keeper.
    pub(crate) keeper: KeeperWatch,
    /// Whether the server takes no more work.
    draining: AtomicBool,
    /// Whether the server is shutting down. It is draining then, too.
    pub(crate) closing: AtomicBool,
    /// Becomes true at the same time, for tasks that wait.
    pub(crate) shutdown: watch::Sender<bool>,
    /// The reason why the server cannot continue, if it cannot.
    pub(crate) failed: watch::Sender<Option<&'static str>>,
    /// Becomes readable when all runs must end.
    pub(crate) kill: OwnedFd,
    /// Becomes true at the same time, for tasks that wait.
    killed: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(
        service: RunService,
        jobs: sandbox_jobs::JobStore,
        webhooks: Webhooks,
        isolation: Vec<&'static str>,
        config: &Config,
        keys: Keys,
    ) -> Result<Self, String> {
        let prepare = config.prepare.languages(&service).map_err(|error| format!("prepare: {error}"))?;
        let kill = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        Ok(Self {
            prepare,
            service,
            slots: Slots::new(config.capacity, config.reserved_share, keys.caps()),
            keys: RwLock::new(Arc::new(keys)),
            guard: Guard::new(config.allowed_hosts.clone(), config.cors.clone()),
            jobs,
            bounds: config.bounds,
            running: Mutex::default(),
            workload: Arc::default(),
            metrics: ServerMetrics::new(),
            rate: RateLimits::new(config.rate_limit),
            max_body: config.max_body,
            bodies: SharedBudget::memory(config.max_held / 2),
            answers: SharedBudget::memory(config.max_held / 2),
            streams: SharedBudget::streams(config.max_streams),
            parsers: Arc::new(Semaphore::new(AT_ONCE)),
            readers: Semaphore::new(AT_ONCE),
            followed: Arc::default(),
            read_timeout: config.read_timeout,
            readiness: Readiness::default(),
            data_dir: config.settings.data_dir.clone().unwrap_or_default().into(),
            role: config.role,
            labels: config.labels.clone(),
            webhooks,
            setting_warnings: config.warnings.clone(),
            warnings: OnceLock::new(),
            isolation,
            started: Instant::now(),
            runs: AtomicU64::new(0),
            keeper: KeeperWatch::default(),
            draining: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            failed: watch::Sender::new(None),
            shutdown: watch::Sender::new(false),
            kill: kill.map_err(|errno| errno.to_string())?,
            killed: watch::Sender::new(false),
        })
    }

    /// The accepted API keys.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Accepts other API keys from now on, with their limits.
    pub(crate) fn set_keys(&self, keys: Keys) {
        self.slots.set_caps(keys.caps());
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// The number of current runs, and of jobs whose end is still to be recorded.
    pub(crate) fn load(&self) -> usize {
        self.slots.held() + self.workload.unrecorded()
    }

    /// The maximum number of concurrent runs. An API server runs nothing.
    pub(crate) fn capacity(&self) -> usize {
        if self.needs_keeper() { self.slots.capacity() } else { 0 }
    }

    /// Whether the server runs programs itself.
    pub(crate) fn needs_keeper(&self) -> bool {
        self.role != ServerRole::Api
    }

    /// Takes no more work from now on. Returns whether it took work until now.
    pub(crate) fn drain(&self) -> bool {
        !self.draining.swap(true, Ordering::Relaxed)
    }

    /// Whether the server takes no more work.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Begins to shut down.
    pub(crate) fn close(&self) {
        self.drain();
        self.closing.store(true, Ordering::Relaxed);
        self.shutdown.send_replace(true);
    }

    /// Shuts down because the server cannot continue.
    pub(crate) fn fail(&self, why: &'static str) {
        self.failed.send_replace(Some(why));
    }

    /// Ends all runs.
    pub(crate) fn kill_runs(&self) {
        let _ = rustix::io::write(&self.kill, &1_u64.to_ne_bytes());
        self.killed.send_replace(true);
    }

    /// Waits until all runs must end.
    pub(crate) async fn runs_must_end(&self) {
        // The sender is right here.
        let _ = self.killed.subscribe().wait_for(|killed| *killed).await;
    }
}

/// Refuses work while the server drains or shuts down.
pub(crate) fn refuse_if_closing(app: &App) -> Result<(), Problem> {
    if app.closing.load(Ordering::Relaxed) {
        return Err(shutting_down());
    }
    if app.is_draining() {
        return Err(draining());
    }
    Ok(())
}

pub(crate) fn shutting_down() -> Problem {
    Problem::new(Code::ShuttingDown, "the server is shutting down; try again").retry_after(5)
}

pub(crate) fn draining() -> Problem {
    Problem::new(Code::Draining, "the server is draining; use another one").retry_after(5)
}
