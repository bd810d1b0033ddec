//! What all routes share, and the routes themselves.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandbox_executor::RunService;
use sandbox_jobs::JobId;
use tokio::sync::{Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use uuid::Uuid;

use crate::auth::{Client, Keys, Scope};
use crate::config::Config;
use crate::follow::Followed;
use crate::held::{SharedBudget, Who};
use crate::metrics::ServerMetrics;
use crate::problem::{Code, Problem};
use crate::rate_limit::{RateLimits, network};
use crate::ready::Readiness;
use crate::slots::Slots;
use crate::web::{self, Guard};
use crate::webhook::Webhooks;
use crate::worker::RunningJob;
use crate::{batch, execute, info, jobs, openapi};

/// How much work of a kind that takes memory and a thread is done at once.
const AT_ONCE: usize = 4;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) service: RunService,
    pub(crate) slots: Arc<Slots>,
    pub(crate) keys: Keys,
    /// Which requests are let in where no key is needed.
    pub(crate) guard: Guard,
    pub(crate) started: Instant,
    pub(crate) jobs: sandbox_jobs::JobStore,
    /// How much of the store jobs may use.
    pub(crate) bounds: sandbox_jobs::StoreLimits,
    /// Jobs that run here.
    pub(crate) running: Mutex<HashMap<JobId, Arc<RunningJob>>>,
    pub(crate) metrics: ServerMetrics,
    pub(crate) rate: RateLimits,
    /// The largest body.
    pub(crate) max_body: usize,
    /// Memory for what clients send.
    pub(crate) bodies: SharedBudget,
    /// Memory for what clients have not read yet.
    pub(crate) answers: SharedBudget,
    /// Places for event streams, and for requests that wait for a job.
    pub(crate) streams: SharedBudget,
    /// How many large bodies are worked on at once.
    pub(crate) parsers: Arc<Semaphore>,
    /// How many followers of jobs read events from the store at once.
    pub(crate) readers: Semaphore,
    /// The jobs that clients follow.
    pub(crate) followed: Followed,
    /// How long a client may be silent while it sends a body.
    pub(crate) read_timeout: Duration,
    pub(crate) readiness: Readiness,
    pub(crate) webhooks: Webhooks,
    /// What the operator should know, once the server listens.
    pub(crate) warnings: OnceLock<Vec<String>>,
    /// The layers of isolation that this host has.
    pub(crate) isolation: Vec<&'static str>,
    /// How many runs there were.
    pub(crate) runs: AtomicU64,
    /// Whether no more work is taken.
    pub(crate) closing: AtomicBool,
    /// Becomes true with it, for those that wait.
    pub(crate) shutdown: watch::Sender<bool>,
    /// Becomes readable when all runs have to end.
    pub(crate) kill: OwnedFd,
}

impl App {
    pub(crate) fn new(
        service: RunService,
        jobs: sandbox_jobs::JobStore,
        webhooks: Webhooks,
        isolation: Vec<&'static str>,
        config: &Config,
        keys: Keys,
    ) -> std::io::Result<Self> {
        Ok(Self {
            service,
            slots: Slots::new(config.capacity, config.reserved_share, keys.caps()),
            keys,
            guard: Guard::new(config.allowed_hosts.clone(), config.cors.clone()),
            jobs,
            bounds: config.bounds,
            running: Mutex::default(),
            metrics: ServerMetrics::new(config.capacity),
            rate: RateLimits::new(config.rate_limit),
            max_body: config.max_body,
            bodies: SharedBudget::memory(config.max_held / 2),
            answers: SharedBudget::memory(config.max_held / 2),
            streams: SharedBudget::streams(config.max_streams),
            parsers: Arc::new(Semaphore::new(AT_ONCE)),
            readers: Semaphore::new(AT_ONCE),
            followed: Followed::default(),
            read_timeout: config.read_timeout,
            readiness: Readiness::default(),
            webhooks,
            warnings: OnceLock::new(),
            isolation,
            started: Instant::now(),
            runs: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            shutdown: watch::Sender::new(false),
            kill: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?,
        })
    }

    /// How many runs are going on.
    pub(crate) fn load(&self) -> usize {
        self.slots.held()
    }

    /// Ends all runs.
    pub(crate) fn kill_runs(&self) {
        let _ = rustix::io::write(&self.kill, &1_u64.to_ne_bytes());
    }
}

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
        .merge(guarded(Router::new().route("/metrics", get(info::metrics)), Some(Scope::Metrics)))
        .merge(guarded(Router::new().route("/v1/languages", get(info::languages)), None))
        .route("/openapi.json", get(openapi::json))
        .route("/docs", get(openapi::page))
        .route("/health", get(info::health))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(info::ready))
        .fallback(|| async {
            Problem::new(Code::NotFound, "no route has this path; GET /health and POST /execute exist")
        })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "the route exists, for another method")
        })
        .layer(RequestBodyTimeoutLayer::new(config.read_timeout));
    let routes = match config.cors.layer() {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(from_fn_with_state(Arc::clone(app), web::guard))
        .layer(from_fn_with_state(Arc::clone(app), annotate))
        .layer(CatchPanicLayer::custom(|_| Problem::new(Code::Internal, "the server made a mistake").into_response()))
        .with_state(Arc::clone(app))
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The address from which a request came.
pub(crate) fn peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Peer>().map(|peer| peer.0)
}

/// Finds out who asks, and whether they may.
async fn authorize(
    State((app, scope)): State<(Arc<App>, Option<Scope>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = peer(&request);
    let allowed = app.keys.check(request.headers(), peer).and_then(|client: Arc<Client>| {
        let address = || peer.map(network).unwrap_or_default();
        let who = client.name.as_ref().map_or_else(address, |name| format!("key {name}"));
        app.rate.count(&who, client.rate)?;
        scope.map_or(Ok(()), |scope| client.may(scope))?;
        Ok((client, Who(who.into())))
    });
    match allowed {
        Ok((client, who)) => {
            request.extensions_mut().insert(client);
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// A request's id.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Gives every request an id, logs it, and closes doors in browsers.
async fn annotate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let usable =
        |id: &&HeaderValue| id.len() <= 100 && id.to_str().is_ok_and(|id| id.chars().all(|c| c.is_ascii_graphic()));
    let id = request.headers().get(&REQUEST_ID).filter(usable).cloned();
    let id = id.or_else(|| HeaderValue::from_str(&Uuid::now_v7().to_string()).ok());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let began = Instant::now();
    let shown = id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    request.extensions_mut().insert(RequestId(shown.clone()));
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    app.metrics.answer(response.status().as_u16());
    tracing::info!(
        id = shown,
        %method,
        path,
        status = response.status().as_u16(),
        ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        load = app.load(),
        "request"
    );
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Whether the server still takes work.
pub(crate) fn refuse_if_closing(app: &App) -> Result<(), Problem> {
    if app.closing.load(Ordering::Relaxed) {
        return Err(Problem::new(Code::ShuttingDown, "try another server, or this one in a moment").retry_after(5));
    }
    Ok(())
}
