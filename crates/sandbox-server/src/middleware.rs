//! Middleware of all routes: authorization with rate limits, request ids, the request log and security headers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

use crate::auth::{Client, Scope};
use crate::memory_budget::ClientId;
use crate::rate_limit::network;
use crate::state::App;

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The address from which a request came.
pub(crate) fn peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Peer>().map(|peer| peer.0)
}

/// Authenticates the client, applies its rate limit and checks the scope.
pub(crate) async fn authorize(
    State((app, scope)): State<(Arc<App>, Option<Scope>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = peer(&request);
    let allowed = app.keys().check(request.headers(), peer).and_then(|client: Arc<Client>| {
        let address = || peer.map(network).unwrap_or_default();
        let client_id = client.name.as_ref().map_or_else(address, |name| format!("key {name}"));
        app.rate.count(&client_id, client.rate)?;
        scope.map_or(Ok(()), |scope| client.may(scope))?;
        Ok((client, ClientId(client_id.into())))
    });
    match allowed {
        Ok((client, client_id)) => {
            request.extensions_mut().insert(client);
            request.extensions_mut().insert(client_id);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Answers `OPTIONS` on every route; the router adds `Allow`. Preflight requests do not come here if the server has allowed
/// origins.
pub(crate) async fn options(request: Request, next: Next) -> Response {
    let is_asked = request.method() == Method::OPTIONS;
    let response = next.run(request).await;
    let is_known = response.status() == StatusCode::METHOD_NOT_ALLOWED;
    if is_asked && is_known { StatusCode::NO_CONTENT.into_response() } else { response }
}

/// A request's id.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns a request id, logs the request and sets security headers.
pub(crate) async fn annotate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
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
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
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
