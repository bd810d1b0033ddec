//! Listening, and ending well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use crate::app::{self, App};
use crate::config::Config;
use crate::{web, webhook, worker};

/// Serves until a signal comes; then takes no more, lets runs end, and ends those that do not.
pub(crate) async fn serve(app: &Arc<App>, config: &Config) -> Result<(), String> {
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    greet(address, app);
    let router = app::router(app, config);
    tokio::spawn(worker::work(Arc::clone(app)));
    tokio::spawn(worker::report(Arc::clone(app)));
    tokio::spawn(webhook::deliver(Arc::clone(app)));
    tokio::spawn(forget_old_jobs(Arc::clone(app), config.retention));
    let graceful = GracefulShutdown::new();
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let connections = Arc::new(Semaphore::new(config.max_connections));
    let accept = async || {
        let permit = Arc::clone(&connections).acquire_owned().await.map_err(std::io::Error::other)?;
        listener.accept().await.map(|(stream, peer)| (stream, peer, permit))
    };
    loop {
        tokio::select! {
            accepted = accept() => match accepted {
                Ok((stream, peer, permit)) => {
                    let arrived = stream.local_addr().map_or(peer.ip(), |address| address.ip());
                    let router = router.clone().layer(Extension(app::Peer(peer.ip())));
                    let router = router.layer(Extension(web::Arrived(arrived)));
                    attend(stream, router, &graceful, config, permit);
                }
                // Too many open files, or the like: it passes.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
        }
    }
    drop(listener);
    app.closing.store(true, Ordering::Relaxed);
    tracing::info!(load = app.load(), "shutting down");
    let mut ended = Box::pin(async {
        graceful.shutdown().await;
        idle(app).await;
    });
    if tokio::time::timeout(config.shutdown_timeout, &mut ended).await.is_err() {
        tracing::warn!(load = app.load(), "ending what is left");
        app.kill_runs();
        let _ = tokio::time::timeout(Duration::from_secs(3), idle(app)).await;
    }
    Ok(())
}

/// Waits until nothing runs.
async fn idle(app: &App) {
    while app.load() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn forget_old_jobs(app: Arc<App>, retention: Duration) {
    loop {
        tokio::time::sleep(retention.clamp(Duration::from_millis(100), Duration::from_secs(60))).await;
        if let Err(error) = app.jobs.expire().await {
            tracing::error!(%error, "cannot forget old jobs");
        }
    }
}

/// What the operator should know about a server that listens here.
fn warnings(address: SocketAddr, app: &App) -> Vec<String> {
    let mut warnings = vec![];
    if !app.isolation.contains(&sandbox_cell::Layer::Pid.name()) {
        let why =
            "runs have no namespaces of their own here; `sandbox-run doctor` says why, docs/INSTALL.md what to do";
        warnings.push(why.to_owned());
    }
    if app.keys.is_open() && !address.ip().is_loopback() {
        warnings.push(format!(
            "everyone who can reach {address} can run code, as no API key is needed; set SANDBOX_API_KEYS or listen on \
             127.0.0.1"
        ));
    }
    if app.keys.is_open() && app.guard.takes_any_host() {
        let why = "SANDBOX_ALLOWED_HOSTS=* accepts every Host, so that web pages can run code by DNS rebinding; name the hosts";
        warnings.push(why.to_owned());
    }
    warnings
}

fn greet(address: SocketAddr, app: &App) {
    tracing::info!(%address, capacity = app.slots.capacity(), isolation = app.isolation.join(","), "listening");
    for warning in app.warnings.get_or_init(|| warnings(address, app)) {
        tracing::warn!("{warning}");
    }
    let host =
        if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() };
    tracing::info!("try: curl -s http://{host}/execute --json '{{\"code\": \"print(2+2)\"}}'");
}

/// Serves a connection.
fn attend(
    stream: TcpStream,
    router: Router,
    graceful: &GracefulShutdown,
    config: &Config,
    permit: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    // A client that does not read holds nobody up for longer than this.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(config.write_timeout));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.read_timeout)
        .max_headers(64)
        .max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(16)
        .keep_alive_interval(Some(Duration::from_secs(20)));
    let connection =
        builder.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router)).into_owned();
    let watched = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = watched.await {
            tracing::debug!(%error, "a connection ended badly");
        }
        drop(permit);
    });
}
