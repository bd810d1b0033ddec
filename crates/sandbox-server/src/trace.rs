//! One run as operators see it: a line in the log with how long each part took and, if the server was built for it, a span
//! for a collector.

use std::time::{Instant, SystemTime};

use sandbox_executor::RunResult;

/// A run that has not ended yet.
#[derive(Debug)]
pub(crate) struct Trace {
    id: String,
    began: Instant,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only spans for a collector have a start time"))]
    at: SystemTime,
}

impl Trace {
    /// A run begins, for a request or a job with this id.
    pub(crate) fn begin(id: &str) -> Self {
        Self { id: id.to_owned(), began: Instant::now(), at: SystemTime::now() }
    }

    /// It has ended.
    pub(crate) fn end(self, result: &RunResult) {
        let ms = |seconds: f64| (seconds * 1e5).round() / 1e2;
        let phases = &result.metrics.phases;
        tracing::info!(
            id = self.id,
            language = result.language.as_deref().unwrap_or_default(),
            verdict = result.verdict.name(),
            total_ms = ms(self.began.elapsed().as_secs_f64()),
            toolchain_ms = ms(phases.toolchain),
            packages_ms = ms(phases.packages),
            prepare_ms = ms(phases.prepare),
            compile_ms = ms(phases.compile),
            run_ms = ms(phases.run),
            collect_ms = ms(phases.collect),
            cpu_ms = ms(result.metrics.cpu_time),
            memory = result.metrics.memory_peak,
            "run"
        );
        for host in result.metrics.network.iter().flat_map(|network| &network.hosts) {
            let (connections, sent, received) = (host.connections, host.sent, host.received);
            tracing::info!(id = self.id, host = host.host, port = host.port, connections, sent, received, "connection");
        }
        for refusal in result.metrics.network.iter().flat_map(|network| &network.refusals) {
            tracing::info!(
                id = self.id,
                host = refusal.host,
                port = refusal.port,
                why = refusal.why,
                "refused connection"
            );
        }
        #[cfg(feature = "otlp")]
        crate::otlp::record(&self.id, self.at, result);
    }
}
