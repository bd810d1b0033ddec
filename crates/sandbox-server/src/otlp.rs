//! A span for every run, with one for each of its parts, sent to an OpenTelemetry collector over HTTP.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use sandbox_executor::{RunResult, Verdict};

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Sends spans until it is dropped, and then the remaining ones.
#[derive(Debug)]
pub(crate) struct Export(SdkTracerProvider);

impl Export {
    /// Begins to send spans to a collector at an address such as `http://collector:4318`.
    pub(crate) fn start(endpoint: &str) -> Result<Self, String> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(ExporterClient(
                ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build().new_agent(),
            ))
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .map_err(|error| format!("cannot send spans to {endpoint}: {error}"))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(Resource::builder().with_service_name("sandbox-server").build())
            .build();
        let _ = TRACER.set(provider.tracer("sandbox-server"));
        Ok(Self(provider))
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "spans were lost");
        }
    }
}

/// Sends the spans of the exporter, from the exporter's own thread.
#[derive(Debug)]
struct ExporterClient(ureq::Agent);

#[async_trait::async_trait]
impl HttpClient for ExporterClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut response = self.0.run(request.map(|body| body.to_vec()))?;
        let body = response.body_mut().read_to_vec()?;
        Ok(Response::builder().status(response.status()).body(body.into())?)
    }
}

/// Exports a run that got its slot at this time and has just ended.
pub(crate) fn record(id: &str, admitted: SystemTime, result: &RunResult) {
    let Some(tracer) = TRACER.get() else { return };
    let queued = Duration::try_from_secs_f64(result.metrics.phases.queue).unwrap_or_default();
    let began = admitted.checked_sub(queued).unwrap_or(admitted);
    let attributes = vec![
        KeyValue::new("sandbox.id", id.to_owned()),
        KeyValue::new("sandbox.language", result.language.clone().unwrap_or_default()),
        KeyValue::new("sandbox.verdict", result.verdict.name()),
        KeyValue::new("sandbox.cpu_time", result.metrics.cpu_time),
        KeyValue::new("sandbox.memory_peak", i64::try_from(result.metrics.memory_peak).unwrap_or(i64::MAX)),
    ];
    let builder =
        SpanBuilder::from_name("run").with_kind(SpanKind::Internal).with_start_time(began).with_attributes(attributes);
    let mut span = tracer.build_with_context(builder, &Context::new());
    // A program that fails is no failure of the service.
    if result.verdict == Verdict::InternalError {
        span.set_status(Status::error(result.error.clone().unwrap_or_default()));
    }
    let context = Context::new().with_span(span);
    // They follow each other in this order; gaps between them belong to none.
    let mut at = began;
    for (name, seconds) in result.metrics.phases.named() {
        let builder = SpanBuilder::from_name(name).with_start_time(at);
        at += Duration::try_from_secs_f64(seconds).unwrap_or_default();
        tracer.build_with_context(builder, &context).end_with_timestamp(at);
    }
    context.span().end();
}
