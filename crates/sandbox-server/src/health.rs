//! `GET /health` and `GET /readyz`: the state of the server, and whether it takes work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Serialize;

use crate::auth::Scope;
use crate::middleware::peer;
use crate::ready;
use crate::state::App;

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
