//! `GET /health` and `GET /readyz`: the state of the server, and whether it takes work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use sandbox_executor::WarmStart;
use serde::Serialize;

use crate::auth::Scope;
use crate::middleware::peer;
use crate::ready;
use crate::state::App;

/// The state of the server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`, `not_ready`, `draining` or `shutting_down`.
    status: &'static str,
    /// Whether the server is draining and accepts no more work.
    draining: bool,
    /// Why the server is not ready.
    reasons: Vec<&'static str>,
    /// The maximum number of concurrent runs; 0 for a server with the role `api`.
    capacity: usize,
    /// The number of current runs.
    load: usize,
    /// Seconds since the start.
    uptime: f64,
    /// Details for keys with the scope `metrics`.
    #[serde(flatten)]
    details: Option<Details>,
}

/// Details that are not public.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Details {
    /// The version of the server.
    version: &'static str,
    /// The number of queued jobs.
    queue: Option<u64>,
    /// The kind of job store.
    store: &'static str,
    /// The isolation layers of runs on this server; none for a server with the role `api`.
    isolation: Vec<&'static str>,
    /// For each language whose interpreter or compiler can start warm: `on`, or why it starts cold.
    warm_starts: BTreeMap<String, String>,
    /// For each toolchain that has to be prepared once: `pending`, `preparing`, `ready`, or `failed` with the reason.
    toolchains: BTreeMap<String, String>,
    /// How often the keeper has ended and was replaced.
    keeper_restarts: u64,
    /// How often a zygote has ended and was replaced.
    lost_zygotes: u64,
    /// Runs and background tasks that have panicked.
    panics: u64,
    /// `all`, `api` or `worker`.
    role: &'static str,
    /// Cells that do not respond and cannot be killed.
    lost_cells: usize,
    /// The number of runs since the start.
    runs: u64,
    /// Warnings for the operator.
    warnings: Vec<String>,
}

/// Get the state of the server.
///
/// If API keys are set, details need the scope `metrics`.
#[utoipa::path(get, path = "/health", operation_id = "get_health", tag = "server", responses((status = 200, description = "The state of the server", body = Health)))]
pub(crate) async fn health(State(app): State<Arc<App>>, request: Request) -> Json<Health> {
    let client = app.keys().check(request.headers(), peer(&request));
    drop(request);
    let pool = app.service.pool_statistics();
    let details = if client.is_ok_and(|client| client.may(Scope::Metrics).is_ok()) {
        Some(Details {
            version: env!("CARGO_PKG_VERSION"),
            queue: app.readiness.queue(&app).await,
            store: app.jobs.name(),
            isolation: app.isolation.clone(),
            warm_starts: warm_starts(&app),
            toolchains: toolchains(&app),
            keeper_restarts: app.metrics.keeper_restarts(),
            lost_zygotes: pool.lost_zygotes,
            panics: app.metrics.panics() + pool.panics,
            role: app.role.name(),
            lost_cells: app.service.lost_cells(),
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
        [ready::DRAINING, ..] => "draining",
        _ => "not_ready",
    };
    Json(Health {
        status,
        draining: app.is_draining(),
        reasons,
        capacity: app.capacity(),
        load: app.load(),
        uptime: app.started.elapsed().as_secs_f64(),
        details,
    })
}

/// Check whether the server responds.
#[utoipa::path(
    get, path = "/livez", operation_id = "get_liveness", tag = "server",
    responses((status = 200, description = "The process responds", body = String))
)]
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Check whether the server is ready.
#[utoipa::path(
    get, path = "/readyz", operation_id = "get_readiness", tag = "server",
    responses((status = 200, description = "The server is ready", body = String), (status = 503, description = "The server is not ready; the body lists the reasons", body = String))
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> impl IntoResponse {
    match app.readiness.reasons(&app).await.as_slice() {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
}

fn warm_starts(app: &App) -> BTreeMap<String, String> {
    if !app.needs_keeper() {
        return BTreeMap::new();
    }
    app.service.warm_starts().into_iter().map(|(language, start)| (language, start.to_string())).collect()
}

fn toolchains(app: &App) -> BTreeMap<String, String> {
    if !app.needs_keeper() {
        return BTreeMap::new();
    }
    app.service.preparations().into_iter().map(|(language, state)| (language, state.to_string())).collect()
}

/// Logs which languages start cold although they could start warm, and when that changes.
pub(crate) async fn log_cold_starts(app: Arc<App>) {
    /// How often that is checked.
    const LOOK: Duration = Duration::from_millis(500);
    let mut known = BTreeMap::new();
    loop {
        for (language, start) in app.service.warm_starts() {
            let before = known.insert(language.clone(), start.clone());
            match (before, start) {
                (before, start) if before.as_ref() == Some(&start) => {}
                (_, WarmStart::Off(reason)) => {
                    tracing::warn!(language, reason, "the language starts cold");
                }
                (Some(WarmStart::Off(_)), WarmStart::On) => {
                    tracing::info!(language, "the language starts warm again");
                }
                _ => {}
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
