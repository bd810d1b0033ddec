//! What the server says about itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::app::App;

/// `GET /health`.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, description = "What the server has to do", body = Object)))]
pub(crate) async fn health(State(app): State<Arc<App>>) -> Json<Value> {
    let closing = app.closing.load(Ordering::Relaxed);
    Json(json!({
        "status": if closing { "shutting_down" } else { "ok" },
        "version": env!("CARGO_PKG_VERSION"),
        "capacity": app.slots.capacity(),
        "load": app.load(),
        "queue": app.jobs.waiting().await.ok(),
        "store": app.jobs.name(),
        "isolation": app.isolation,
        "lost_cells": app.engine.lost_cells(),
        "runs": app.runs.load(Ordering::Relaxed),
        "uptime": app.started.elapsed().as_secs_f64(),
    }))
}

/// `GET /readyz`: whether work is taken.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses((status = 200, description = "Work is taken"), (status = 503, description = "No more work is taken"))
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> impl IntoResponse {
    if app.closing.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

/// `GET /v1/languages`.
#[utoipa::path(get, path = "/v1/languages", tag = "server", responses((status = 200, description = "The languages, with their toolchains", body = Vec<Object>)))]
pub(crate) async fn languages(State(app): State<Arc<App>>) -> Json<Value> {
    let list: Vec<Value> = app
        .engine
        .languages()
        .map(|(definition, runtime)| {
            json!({
                "name": definition.name,
                "aliases": definition.aliases,
                "extensions": definition.extensions,
                "version": runtime.as_ref().ok().map(|runtime| &runtime.version),
                "available": runtime.is_ok(),
                "missing": runtime.err().map(ToString::to_string),
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
        app.engine.ready_cells().unwrap_or_default(),
    );
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
