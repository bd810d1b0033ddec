//! The routes: which handler answers which path, and the key's scope that each needs.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::auth::Scope;
use crate::config::Config;
use crate::middleware::{annotate, authorize};
use crate::problem::{Code, Problem};
use crate::state::App;
use crate::{batch, execute, health, jobs, languages, metrics, openapi, web};

/// The routes.
pub(crate) fn router(app: &Arc<App>, config: &Config) -> Router {
    let guarded = |routes: Router<Arc<App>>, scope: Option<Scope>| {
        routes.route_layer(from_fn_with_state((Arc::clone(app), scope), authorize))
    };
    let runs = Router::new().route("/execute", post(execute::execute)).route("/v1/batch", post(batch::batch));
    let jobs = Router::new()
        .route("/v1/execute", post(jobs::create).get(jobs::list))
        .route("/v1/execute/{id}", get(jobs::get).delete(jobs::cancel))
        .route("/v1/execute/{id}/events", get(jobs::events));
    let routes = Router::new()
        .merge(guarded(runs, Some(Scope::Execute)))
        .merge(guarded(jobs, Some(Scope::Jobs)))
        .merge(guarded(Router::new().route("/metrics", get(metrics::metrics)), Some(Scope::Metrics)))
        .merge(guarded(Router::new().route("/v1/languages", get(languages::languages)), None))
        .route("/openapi.json", get(openapi::json))
        .route("/docs", get(openapi::page))
        .route("/health", get(health::health))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(health::ready))
        .fallback(|| async { Problem::new(Code::NotFound, "no such path; see GET /docs for all routes") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this path exists, but not for this method")
        });
    let routes = match config.cors.layer() {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(from_fn_with_state(Arc::clone(app), web::guard))
        .layer(from_fn_with_state(Arc::clone(app), annotate))
        .layer(CatchPanicLayer::custom(|_| Problem::new(Code::Internal, "internal server error").into_response()))
        .with_state(Arc::clone(app))
}
