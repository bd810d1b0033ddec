//! What the server says about itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use sandbox_executor::WarmStart;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::{App, peer};
use crate::auth::Scope;
use crate::ready;

/// How the server is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`, `not_ready` or `shutting_down`.
    status: &'static str,
    /// Why no work can be done.
    reasons: Vec<&'static str>,
    /// How many runs there may be at one time.
    capacity: usize,
    /// How many runs there are now.
    load: usize,
    /// Seconds since the start.
    uptime: f64,
    /// What only those learn who may see the metrics.
    #[serde(flatten)]
    details: Option<Details>,
}

/// What is not for everyone.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Details {
    version: &'static str,
    /// How many jobs wait.
    queue: Option<u64>,
    /// Where jobs are kept.
    store: &'static str,
    /// The layers of isolation that work.
    isolation: Vec<&'static str>,
    /// Cells that neither answer nor die.
    lost_cells: usize,
    /// For each language that can start warm: `on`, or why it starts cold.
    warm_starts: BTreeMap<String, String>,
    /// How many runs there were.
    runs: u64,
    /// What the operator should know.
    warnings: Vec<String>,
}

/// `GET /health`. Where there are keys, a key with the scope `metrics` is needed to see all of it.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, description = "What the server has to do", body = Health)))]
pub(crate) async fn health(State(app): State<Arc<App>>, request: Request) -> Json<Health> {
    let client = app.keys.check(request.headers(), peer(&request));
    drop(request);
    let details = if client.is_ok_and(|client| client.may(Scope::Metrics).is_ok()) {
        Some(Details {
            version: env!("CARGO_PKG_VERSION"),
            queue: app.readiness.queue(&app).await,
            store: app.jobs.name(),
            isolation: app.isolation.clone(),
            lost_cells: app.service.lost_cells(),
            warm_starts: warm_starts(&app),
            runs: app.runs.load(Ordering::Relaxed),
            warnings: app.warnings.get().cloned().unwrap_or_default(),
        })
    } else {
        None
    };
    let reasons = app.readiness.reasons(&app).await;
    let status = match reasons.as_slice() {
        [] => "ok",
        [ready::CLOSING, ..] => "shutting_down",
        _ => "not_ready",
    };
    Json(Health {
        status,
        reasons,
        capacity: app.slots.capacity(),
        load: app.load(),
        uptime: app.started.elapsed().as_secs_f64(),
        details,
    })
}

fn warm_starts(app: &App) -> BTreeMap<String, String> {
    app.service.warm_starts().into_iter().map(|(language, start)| (language, start.to_string())).collect()
}

/// Logs which languages start cold although they could start warm, once that is known.
pub(crate) async fn log_cold_starts(app: Arc<App>) {
    /// How often and how long results of the self-tests are waited for.
    const LOOK: Duration = Duration::from_millis(500);
    const LOOKS: usize = 240;
    let mut known = BTreeMap::new();
    for _ in 0..LOOKS {
        for (language, start) in app.service.warm_starts() {
            let is_new = known.insert(language.clone(), start.clone()).as_ref() != Some(&start);
            if let (true, WarmStart::Off(reason)) = (is_new, start) {
                tracing::warn!(language, reason, "programs start cold");
            }
        }
        if !known.values().any(|start| *start == WarmStart::Pending) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// `GET /readyz`: whether work is taken.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses((status = 200, description = "Work is taken"), (status = 503, description = "No work can be done; the body gives the reasons"))
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> impl IntoResponse {
    match app.readiness.reasons(&app).await.as_slice() {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
}

/// `GET /v1/languages`.
#[utoipa::path(get, path = "/v1/languages", tag = "server", responses((status = 200, description = "The languages, with their toolchains", body = Vec<Object>)))]
pub(crate) async fn languages(State(app): State<Arc<App>>) -> Json<Value> {
    let list: Vec<Value> = app
        .service
        .languages()
        .map(|(definition, runtime)| {
            json!({
                "name": definition.name,
                "aliases": definition.aliases,
                "extensions": definition.extensions,
                "version": runtime.as_ref().ok().map(|runtime| &runtime.version),
                "available": runtime.is_ok(),
                "missing": runtime.as_ref().err().map(ToString::to_string),
                "packages": definition.packages.as_ref().map(|packages| &packages.example),
            })
        })
        .collect();
    Json(Value::Array(list))
}

/// `GET /metrics`.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, description = "Numbers for Prometheus", body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.text(
        app.load(),
        app.jobs.waiting().await.unwrap_or_default(),
        app.service.ready_cells().unwrap_or_default(),
    );
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
