//! `GET /metrics`: counters, gauges and histograms for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use sandbox_executor::RunResult;

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
    queue: Gauge,
    ready: Gauge,
    starts: Family<StartLabels, Counter>,
    late_output: Counter,
}

impl ServerMetrics {
    pub(crate) fn new(capacity: usize) -> Self {
        let mut registry = Registry::with_prefix("sandbox");
        let runs = Family::<RunLabels, Counter>::default();
        // From a tenth of a millisecond to about three minutes.
        let phases = Family::<PhaseLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(1e-4, 2.0, 21))
        });
        let answers = Family::<ResponseLabels, Counter>::default();
        let starts = Family::<StartLabels, Counter>::default();
        let cached_builds = Counter::default();
        let (load, queue, ready, room) =
            (Gauge::default(), Gauge::default(), Gauge::default(), Gauge::<i64>::default());
        room.set(i64::try_from(capacity).unwrap_or(i64::MAX));
        registry.register("runs", "Completed runs", runs.clone());
        registry.register("phase_seconds", "Duration of each phase of a run", phases.clone());
        registry.register("http_answers", "HTTP responses", answers.clone());
        registry.register("cached_builds", "Runs that found their program in the compile cache", cached_builds.clone());
        registry.register("load", "Current runs", load.clone());
        registry.register("queue", "Queued jobs", queue.clone());
        registry.register("cells_ready", "Ready cells", ready.clone());
        registry.register("starts", "Runs by kind of start", starts.clone());
        registry.register("capacity", "Maximum number of concurrent runs", room);
        let late_output = Counter::default();
        registry.register("job_output_late", "Times that output of a job was recorded late", late_output.clone());
        Self { registry, runs, phases, answers, cached_builds, load, queue, ready, starts, late_output }
    }

    /// Counts a run.
    pub(crate) fn run(&self, result: &RunResult) {
        let language = result.language.clone().unwrap_or_default();
        self.runs.get_or_create(&RunLabels { language, verdict: result.verdict.name().to_owned() }).inc();
        self.starts.get_or_create(&StartLabels { start: result.metrics.start.name() }).inc();
        for (phase, seconds) in result.metrics.phases.named() {
            self.phases.get_or_create(&PhaseLabels { phase }).observe(seconds);
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
    pub(crate) fn text(&self, load: usize, queue: u64, ready: usize) -> String {
        self.ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
        self.load.set(i64::try_from(load).unwrap_or(i64::MAX));
        self.queue.set(i64::try_from(queue).unwrap_or(i64::MAX));
        let mut out = String::new();
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, description = "Metrics for Prometheus", body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.text(
        app.load(),
        app.jobs.waiting().await.unwrap_or_default(),
        app.service.ready_cells().unwrap_or_default(),
    );
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
