//! `GET /metrics`: counters, gauges and histograms for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use sandbox_executor::{PoolStatistics, PreparationState, RunResult, StartKind};
use sandbox_jobs::Backlog;

use crate::state::App;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    language: String,
    verdict: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    start: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolchainLabels {
    language: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    status: u16,
}

/// The server's metrics.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    registry: Registry,
    runs: Family<RunLabels, Counter>,
    phases: Family<PhaseLabels, Histogram>,
    answers: Family<ResponseLabels, Counter>,
    cached_builds: Counter,
    load: Gauge,
    capacity: Gauge,
    queue: Gauge,
    queue_age: Gauge<f64, AtomicU64>,
    ready: Gauge,
    starts: Family<StartLabels, Counter>,
    keeper_restarts: Counter,
    keeper_up: Gauge,
    cells: Histogram,
    pool_misses: Counter,
    zygote_restarts: Counter,
    panics: Counter,
    store: Histogram,
    retries: Counter,
    waits: Histogram,
    is_ready: Gauge,
    draining: Gauge,
    late_output: Counter,
    lost_leases: Counter,
    toolchains: Family<ToolchainLabels, Gauge>,
}

/// The values that are looked up when Prometheus scrapes.
#[derive(Debug)]
pub(crate) struct Snapshot {
    load: usize,
    capacity: usize,
    backlog: Backlog,
    ready_cells: usize,
    pool: PoolStatistics,
    keeper_up: bool,
    is_ready: bool,
    draining: bool,
    preparations: BTreeMap<String, PreparationState>,
}

impl ServerMetrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("sandbox");
        let runs = Family::<RunLabels, Counter>::default();
        // From a tenth of a millisecond to about three minutes.
        let phases = Family::<PhaseLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(1e-4, 2.0, 21))
        });
        let answers = Family::<ResponseLabels, Counter>::default();
        let starts = Family::<StartLabels, Counter>::default();
        let cached_builds = Counter::default();
        let (load, queue, ready, capacity) = (Gauge::default(), Gauge::default(), Gauge::default(), Gauge::default());
        registry.register("runs", "Completed runs", runs.clone());
        registry.register("phase_seconds", "Duration of each phase of a run", phases.clone());
        registry.register("http_answers", "HTTP responses", answers.clone());
        registry.register("cached_builds", "Runs that found their program in the compile cache", cached_builds.clone());
        registry.register("load", "Current runs", load.clone());
        registry.register("queue", "Queued jobs", queue.clone());
        let queue_age = Gauge::<f64, AtomicU64>::default();
        registry.register(
            "queue_age_seconds",
            "How long the oldest job that can start has been waiting; 0 if there is none",
            queue_age.clone(),
        );
        registry.register("cells_ready", "Ready cells", ready.clone());
        registry.register("starts", "Runs by kind of start", starts.clone());
        registry.register("capacity", "Maximum number of concurrent runs", capacity.clone());
        let (keeper_restarts, pool_misses, zygote_restarts) =
            (Counter::default(), Counter::default(), Counter::default());
        let (panics, retries) = (Counter::default(), Counter::default());
        let (late_output, lost_leases) = (Counter::default(), Counter::default());
        let (keeper_up, is_ready, draining) = (Gauge::default(), Gauge::default(), Gauge::default());
        // From a tenth of a millisecond to about three seconds.
        let latency = || Histogram::new(exponential_buckets(1e-4, 2.0, 16));
        let (cells, store) = (latency(), latency());
        // From ten milliseconds to about three hours.
        let waits = Histogram::new(exponential_buckets(1e-2, 2.0, 21));
        registry.register("ready", "Whether the server is ready (1) or not (0)", is_ready.clone());
        registry.register("draining", "Whether the server takes no more work", draining.clone());
        registry.register("keeper_up", "Whether the keeper process is running", keeper_up.clone());
        registry.register("keeper_restarts", "Keepers that ended and were replaced", keeper_restarts.clone());
        registry.register("cell_creation_seconds", "Time to create a cell for a cold start", cells.clone());
        registry.register("pool_misses", "Runs that found no ready cell", pool_misses.clone());
        registry.register("zygote_restarts", "Zygotes that ended and were replaced", zygote_restarts.clone());
        registry.register("panics", "Runs and background tasks that panicked", panics.clone());
        registry.register("store_probe_seconds", "Response time of the job store to health checks", store.clone());
        registry.register("job_output_late", "Times that output of a job was recorded late", late_output.clone());
        registry.register(
            "job_lost_leases",
            "Running jobs whose lease was lost to another server",
            lost_leases.clone(),
        );
        let toolchains = Family::<ToolchainLabels, Gauge>::default();
        registry.register(
            "toolchains",
            "Whether a toolchain that has to be prepared once is in this state (1) or not (0)",
            toolchains.clone(),
        );
        registry.register("job_wait_seconds", "Time in the queue of jobs that were started", waits.clone());
        registry.register("job_retries", "Attempts to run a job after the first", retries.clone());
        Self {
            registry,
            runs,
            phases,
            answers,
            cached_builds,
            load,
            capacity,
            queue,
            queue_age,
            ready,
            starts,
            keeper_restarts,
            keeper_up,
            cells,
            pool_misses,
            zygote_restarts,
            panics,
            store,
            retries,
            waits,
            is_ready,
            draining,
            late_output,
            lost_leases,
            toolchains,
        }
    }

    /// Counts a keeper that ended and was replaced.
    pub(crate) fn keeper_restart(&self) {
        self.keeper_restarts.inc();
    }

    /// How many keepers ended and were replaced.
    pub(crate) fn keeper_restarts(&self) -> u64 {
        self.keeper_restarts.get()
    }

    /// Counts a run or a task that panicked.
    pub(crate) fn panic(&self) {
        self.panics.inc();
    }

    /// How many runs and tasks panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Counts a job that is started after it waited, and whether it was started before.
    pub(crate) fn job(&self, waited: Duration, is_retry: bool) {
        self.waits.observe(waited.as_secs_f64());
        if is_retry {
            self.retries.inc();
        }
    }

    /// Counts a running job whose lease was lost.
    pub(crate) fn lost_lease(&self) {
        self.lost_leases.inc();
    }

    /// Notes how long the job store took to answer.
    pub(crate) fn store_probe(&self, took: Duration) {
        self.store.observe(took.as_secs_f64());
    }

    /// Counts a run.
    pub(crate) fn run(&self, result: &RunResult) {
        let language = result.language.clone().unwrap_or_default();
        self.runs.get_or_create(&RunLabels { language, verdict: result.verdict.name().to_owned() }).inc();
        self.starts.get_or_create(&StartLabels { start: result.metrics.start.name() }).inc();
        for (phase, seconds) in result.metrics.phases.named() {
            self.phases.get_or_create(&PhaseLabels { phase }).observe(seconds);
        }
        if result.metrics.start == StartKind::Cold && result.metrics.phases.prepare > 0.0 {
            self.cells.observe(result.metrics.phases.prepare);
        }
        if result.compile.as_ref().is_some_and(|compile| compile.cached) {
            self.cached_builds.inc();
        }
    }

    /// The counter of output that was recorded late.
    pub(crate) fn late_output(&self) -> Counter {
        self.late_output.clone()
    }

    /// Counts an answer.
    pub(crate) fn answer(&self, status: u16) {
        self.answers.get_or_create(&ResponseLabels { status }).inc();
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self, now: &Snapshot) -> String {
        self.ready.set(i64::try_from(now.ready_cells).unwrap_or(i64::MAX));
        self.load.set(i64::try_from(now.load).unwrap_or(i64::MAX));
        self.capacity.set(i64::try_from(now.capacity).unwrap_or(i64::MAX));
        self.queue.set(i64::try_from(now.backlog.waiting).unwrap_or(i64::MAX));
        self.queue_age.set(now.backlog.age.as_secs_f64());
        self.keeper_up.set(now.keeper_up.into());
        self.is_ready.set(now.is_ready.into());
        self.draining.set(now.draining.into());
        self.pool_misses.inner().store(now.pool.misses, Ordering::Relaxed);
        self.zygote_restarts.inner().store(now.pool.lost_zygotes, Ordering::Relaxed);
        for (language, current) in &now.preparations {
            for state in PreparationState::NAMES {
                let labels = ToolchainLabels { language: language.clone(), state };
                self.toolchains.get_or_create(&labels).set((state == current.name()).into());
            }
        }
        let mut out = String::new();
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// Get metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "server", responses((status = 200, description = "Metrics for Prometheus", body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.text(&Snapshot {
        load: app.load(),
        capacity: app.capacity(),
        backlog: app.readiness.backlog(&app).await,
        ready_cells: app.service.ready_cells().unwrap_or_default(),
        pool: app.service.pool_statistics(),
        keeper_up: app.service.is_alive(),
        is_ready: app.readiness.reasons(&app).await.is_empty(),
        draining: app.is_draining(),
        preparations: if app.needs_keeper() { app.service.preparations() } else { BTreeMap::new() },
    });
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
