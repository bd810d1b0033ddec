//! Listening for connections, and graceful shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use clap::ArgMatches;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_io_timeout::TimeoutStream;

use crate::config::{Config, ServerRole};
use crate::connections::{Close, Connection, ConnectionLimits, Connections, ResponseBody};
use crate::middleware::Peer;
use crate::routes::router;
use crate::state::App;
use crate::tasks::keep_running;
use crate::{health, keeper_watch, prepare, reload, web, webhook, worker};

/// How long a client that is told of the end of its connection has to acknowledge it.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long runs that were stopped may take to end and to be answered.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// How long an idle connection and the listener stay open after the shutdown has begun. A request that its client is just sending is
/// answered, and the answer asks the client to use another connection; closing at once would lose it.
const LINGER: Duration = Duration::from_millis(500);

/// The response to a connection beyond the limit.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Serves until a signal comes; then takes no more, lets runs end, and ends those that do not.
pub(crate) async fn serve(app: &Arc<App>, config: &Config, matches: &ArgMatches) -> Result<(), String> {
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    // From the moment at which a log names the address, signals are handled.
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut hung_up = reload::on_signals(app, matches, config)?;
    greet(address, app);
    let router = router(app, config);
    let retention = config.retention;
    keep_running(app, "keeper watch", keeper_watch::watch);
    if app.needs_keeper() {
        keep_running(app, "worker", worker::work);
        keep_running(app, "leases", worker::report);
        keep_running(app, "warm starts", health::log_cold_starts);
        keep_running(app, "toolchains", prepare::prepare);
    }
    keep_running(app, "job sweep", worker::sweep);
    keep_running(app, "webhooks", webhook::deliver);
    keep_running(app, "expiry", move |app| forget_old_jobs(app, retention));
    let connections = Connections::new(ConnectionLimits {
        total: config.max_connections,
        per_origin: config.max_connections_per_address,
        first_request: config.read_timeout,
        idle: config.idle_timeout,
        write: config.write_timeout,
    });
    let sweeper = Arc::clone(&connections);
    keep_running(app, "connections", move |_| {
        let sweeper = Arc::clone(&sweeper);
        async move { sweeper.sweep().await }
    });
    let mut failed = app.failed.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match connections.admit(peer.ip(), Instant::now()) {
                    Some(connection) => attend(stream, peer, connection, &router, app, config),
                    None => drop(stream.try_write(NO_ROOM)),
                },
                // Too many open files, or the like: it passes.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    connections.make_room();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
            _ = hung_up.wait_for(|over| *over) => break,
            _ = failed.wait_for(Option::is_some) => break,
        }
    }
    app.close();
    // Load balancers that look just now see that the server ends, instead of a refused connection.
    let lingers = tokio::time::Instant::now() + LINGER;
    while let Ok(Ok((stream, peer))) = tokio::time::timeout_at(lingers, listener.accept()).await {
        if let Some(connection) = connections.admit(peer.ip(), Instant::now()) {
            attend(stream, peer, connection, &router, app, config);
        }
    }
    // Connections that the kernel has accepted are answered, too.
    while let Some((stream, peer)) = accepted_before(&listener).await {
        if let Some(connection) = connections.admit(peer.ip(), Instant::now()) {
            attend(stream, peer, connection, &router, app, config);
        }
    }
    drop(listener);
    tracing::info!(load = app.load(), "shutting down");
    let mut ended = Box::pin(async {
        while !connections.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        idle(app).await;
    });
    let in_time = tokio::select! {
        () = &mut ended => true,
        () = tokio::time::sleep(config.shutdown_timeout) => false,
        _ = interrupted.recv() => false,
        _ = terminated.recv() => false,
    };
    if !in_time {
        tracing::warn!(load = app.load(), "stopping the remaining runs");
        app.kill_runs();
        // Their clients get the results.
        let _ = tokio::time::timeout(AFTER_KILL, ended).await;
    }
    let failed = *app.failed.borrow();
    failed.map_or(Ok(()), |why| Err(why.to_owned()))
}

/// The next connection that has arrived already.
async fn accepted_before(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    tokio::select! {
        biased;
        accepted = listener.accept() => accepted.ok(),
        () = std::future::ready(()) => None,
    }
}

/// Waits until nothing runs, and the store knows of the end of every job.
async fn idle(app: &App) {
    while app.load() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn forget_old_jobs(app: Arc<App>, retention: Duration) {
    loop {
        tokio::time::sleep(retention.clamp(Duration::from_millis(100), Duration::from_secs(60))).await;
        if let Err(error) = app.jobs.expire().await {
            tracing::error!(%error, "cannot delete expired jobs");
        }
    }
}

/// A warning to the operator about the address that a server listens on.
fn warnings(address: SocketAddr, app: &App) -> Vec<String> {
    let mut warnings = app.setting_warnings.clone();
    if app.needs_keeper() && !app.isolation.contains(&sandbox_cell::Layer::Pid.name()) {
        let why =
            "runs have no namespaces of their own here; `sandbox-run doctor` says why, docs/INSTALL.md what to do";
        warnings.push(why.to_owned());
    }
    if app.keys().is_open() && !address.ip().is_loopback() {
        warnings.push(format!(
            "no API key is required: everyone who can reach {address} can run code; set SANDBOX_API_KEYS or listen on \
             127.0.0.1"
        ));
    }
    if app.keys().is_open() && app.guard.takes_any_host() {
        let why = "SANDBOX_ALLOWED_HOSTS=* accepts every Host, so that web pages can run code by DNS rebinding; name the hosts";
        warnings.push(why.to_owned());
    }
    warnings
}

fn greet(address: SocketAddr, app: &App) {
    let role = app.role.name();
    if app.needs_keeper() {
        tracing::info!(%address, role, capacity = app.capacity(), isolation = app.isolation.join(","), "listening");
    } else {
        tracing::info!(%address, role, "listening");
    }
    for warning in app.warnings.get_or_init(|| warnings(address, app)) {
        tracing::warn!("{warning}");
    }
    let host =
        if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() };
    let request = r#"--json '{"code": "print(2+2)"}'"#;
    match app.role {
        ServerRole::All => tracing::info!("try: curl -s http://{host}/execute {request}"),
        ServerRole::Api => tracing::info!("jobs wait for a worker; try: curl -s http://{host}/v1/execute {request}"),
        ServerRole::Worker => {
            let labels = app.labels.iter().collect::<Vec<_>>().join(",");
            tracing::info!(labels, "taking jobs from the queue; GET http://{host}/health shows the state");
        }
    }
}

/// Serves a connection.
fn attend(
    stream: TcpStream,
    peer: SocketAddr,
    connection: Connection,
    router: &Router,
    app: &Arc<App>,
    config: &Config,
) {
    let local_address = web::LocalAddress(stream.local_addr().map_or(peer.ip(), |address| address.ip()));
    let _ = stream.set_nodelay(true);
    // A client that does not read delays others no longer than this.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(config.write_timeout));
    let mut builder = Builder::new(TokioExecutor::new());
    // The table of connections knows how long a head may take, also before it is clear which version of HTTP it is.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_headers(64).max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(16)
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(config.read_timeout.max(Duration::from_secs(1)));
    let connection = Arc::new(connection);
    let (peer, router, requests, state) = (Peer(peer.ip()), router.clone(), Arc::clone(&connection), Arc::clone(app));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (flight, version) = (requests.begin(), request.version());
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(local_address);
        let (answer, app) = (TowerToHyperService::new(router.clone()).call(request), Arc::clone(&state));
        async move {
            let mut response = answer.await?;
            // HTTP/2 has another way to say that.
            if app.is_draining() && version < Version::HTTP_2 {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, flight)))
        }
    });
    let served = builder.serve_connection(TokioIo::new(Box::pin(stream)), service).into_owned();
    let mut shutdown = app.shutdown.subscribe();
    tokio::spawn(async move {
        let mut served = std::pin::pin!(served);
        tokio::select! {
            ended = &mut served => return log_end(ended),
            how = connection.closed() => if how == Close::Now { return },
            () = async {
                let _ = shutdown.wait_for(|over| *over).await;
                tokio::time::sleep(LINGER).await;
            } => {}
        }
        served.as_mut().graceful_shutdown();
        // A client that speaks HTTP/2 may never acknowledge that.
        let unanswered = async {
            loop {
                tokio::time::sleep(FAREWELL).await;
                if !connection.is_busy() {
                    return;
                }
            }
        };
        tokio::select! {
            ended = &mut served => log_end(ended),
            _ = connection.closed() => {}
            () = unanswered => {}
        }
    });
}

fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}
