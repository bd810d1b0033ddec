//! The routes: which handler answers which path, and the key's scope that each needs.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::auth::Scope;
use crate::config::{Config, ServerRole};
use crate::middleware::{annotate, authorize, options};
use crate::problem::{Code, Problem};
use crate::state::App;
use crate::{batch, docs_page, drain, execute, health, job_events, jobs, languages, metrics, openapi, web};

/// The routes.
pub(crate) fn router(app: &Arc<App>, config: &Config) -> Router {
    let guarded = |routes: Router<Arc<App>>, scope: Option<Scope>| {
        routes.route_layer(from_fn_with_state((Arc::clone(app), scope), authorize))
    };
    let runs = match app.role {
        ServerRole::All => {
            Router::new().route("/execute", post(execute::execute)).route("/v1/batch", post(batch::batch))
        }
        ServerRole::Api => Router::new().route("/execute", post(no_runs)).route("/v1/batch", post(no_runs)),
        ServerRole::Worker => Router::new(),
    };
    let jobs = Router::new()
        .route("/v1/execute", post(jobs::create).get(jobs::list))
        .route("/v1/execute/{id}", get(jobs::get).delete(jobs::cancel))
        .route("/v1/execute/{id}/events", get(job_events::events));
    let languages = Router::new().route("/v1/languages", get(languages::languages));
    let documents = Router::new()
        .route("/", get(docs_page::redirect))
        .route("/openapi.json", get(openapi::json))
        .route("/docs", get(docs_page::page));
    // A worker serves operators only.
    let for_clients = match app.role {
        ServerRole::Worker => Router::new(),
        ServerRole::All | ServerRole::Api => Router::new()
            .merge(guarded(runs, Some(Scope::Execute)))
            .merge(guarded(jobs, Some(Scope::Jobs)))
            .merge(guarded(languages, None))
            .merge(documents),
    };
    let no_such_path = match app.role {
        ServerRole::Worker => "no such path; this server has the role worker, and serves no clients",
        ServerRole::All | ServerRole::Api => "no such path; see GET /docs for all routes",
    };
    let routes = for_clients
        .merge(guarded(Router::new().route("/metrics", get(metrics::metrics)), Some(Scope::Metrics)))
        .merge(guarded(Router::new().route("/admin/drain", post(drain::drain)), Some(Scope::Admin)))
        .route("/health", get(health::health))
        .route("/livez", get(health::live))
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .fallback(move || async move { Problem::new(Code::NotFound, no_such_path) })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this path exists, but not for this method")
        });
    let routes = match config.cors.layer() {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(from_fn(options))
        .layer(from_fn_with_state(Arc::clone(app), web::guard))
        .layer(from_fn_with_state(Arc::clone(app), annotate))
        .layer(CatchPanicLayer::custom(|_| Problem::new(Code::Internal, "internal server error").into_response()))
        .with_state(Arc::clone(app))
}

/// Answers synchronous runs on a server that runs nothing.
async fn no_runs() -> Problem {
    let detail = "this server has the role api and runs no programs; create a job with POST /v1/execute";
    Problem::new(Code::NotFound, detail)
}
