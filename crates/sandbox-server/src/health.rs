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
    /// `ok`, `not_ready` or `shutting_down`.
    status: &'static str,
    /// Why the server is not ready.
    reasons: Vec<&'static str>,
    /// The maximum number of concurrent runs.
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
    version: &'static str,
    /// The number of queued jobs.
    queue: Option<u64>,
    /// The kind of job store.
    store: &'static str,
    /// The isolation layers that work on this host.
    isolation: Vec<&'static str>,
    /// For each language that can start warm: `on`, or why it starts cold.
    warm_starts: BTreeMap<String, String>,
    /// Cells that do not respond and cannot be killed.
    lost_cells: usize,
    /// The number of runs since the start.
    runs: u64,
    /// Warnings for the operator.
    warnings: Vec<String>,
}

/// The state of the server. If API keys are set, details need the scope `metrics`.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, description = "The state of the server", body = Health)))]
pub(crate) async fn health(State(app): State<Arc<App>>, request: Request) -> Json<Health> {
    let client = app.keys.check(request.headers(), peer(&request));
    drop(request);
    let details = if client.is_ok_and(|client| client.may(Scope::Metrics).is_ok()) {
        Some(Details {
            version: env!("CARGO_PKG_VERSION"),
            queue: app.readiness.queue(&app).await,
            store: app.jobs.name(),
            isolation: app.isolation.clone(),
            warm_starts: warm_starts(&app),
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

/// Whether the server is ready.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses((status = 200, description = "The server is ready"), (status = 503, description = "The server is not ready; the body lists the reasons"))
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> impl IntoResponse {
    match app.readiness.reasons(&app).await.as_slice() {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
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
