//! `POST /admin/drain`: takes the server out of service without ending it.
//!
//! A server that drains refuses new runs and takes no more jobs from the queue; what runs is carried to its end, and queued
//! jobs stay for other servers. A shutdown begins in the same way. There is no way back but a restart.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::Serialize;

use crate::middleware::peer;
use crate::problem::{Code, Problem};
use crate::state::App;

/// How far a server has drained.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DrainState {
    /// Always true.
    draining: bool,
    /// The number of runs that have not ended yet. The server can be stopped when it is 0.
    load: usize,
}

/// Stop accepting work.
///
/// Current runs continue to their end. Queued jobs stay in the store for other servers.
#[utoipa::path(
    post, path = "/admin/drain", operation_id = "drain_server", tag = "server",
    responses((status = 202, description = "The server accepts no more work; repeat the request to see how many runs are left", body = DrainState))
)]
pub(crate) async fn drain(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<(StatusCode, Json<DrainState>), Problem> {
    // Without keys every client has every scope, and one of them must not take the server away from the others.
    if app.keys().is_open() && !peer(&request).is_some_and(|address| address.to_canonical().is_loopback()) {
        return Err(Problem::new(Code::Forbidden, "a server without API keys can be drained only from its own host"));
    }
    if app.drain() {
        tracing::warn!(load = app.load(), "draining: taking no more work");
    }
    Ok((StatusCode::ACCEPTED, Json(DrainState { draining: true, load: app.load() })))
}
