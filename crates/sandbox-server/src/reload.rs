//! SIGHUP: reads API keys, the rate limit and the limits of runs again, without dropping a connection or a job.
//!
//! By now the server has dropped its privileges, so the files must be readable by the user that it switched to. If anything
//! is wrong, everything stays as it was.

use std::io::IsTerminal;
use std::sync::Arc;

use clap::ArgMatches;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::auth::Keys;
use crate::config::{Config, Reloaded};
use crate::state::App;

/// Reloads at each signal. On a terminal, which sends the same signal when it is closed, the server has to end instead:
/// then the returned value becomes true.
pub(crate) fn on_signals(
    app: &Arc<App>,
    matches: &ArgMatches,
    config: &Config,
) -> Result<watch::Receiver<bool>, String> {
    let mut signals = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
    let has_terminal = std::io::stderr().is_terminal();
    let (closed, is_closed) = watch::channel(false);
    let (app, matches, mut config) = (Arc::clone(app), matches.clone(), config.clone());
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            if has_terminal {
                closed.send_replace(true);
            } else {
                reload(&app, &matches, &mut config).await;
            }
        }
    });
    Ok(is_closed)
}

/// Reads the settings again and applies them.
async fn reload(app: &Arc<App>, matches: &ArgMatches, config: &mut Config) {
    let matches = matches.clone();
    let read = tokio::task::spawn_blocking(move || Reloaded::read(&matches, |name| std::env::var_os(name))).await;
    let applied = match read {
        Ok(Ok(new)) => apply(app, config, new),
        Ok(Err(error)) => {
            let user = rustix::process::geteuid().as_raw();
            Err(format!("{error} (the server reads the files as user id {user})"))
        }
        Err(_) => Err("the settings could not be read".to_owned()),
    };
    if let Err(why) = applied {
        tracing::error!("reload failed, every setting stays as it was: {why}");
    }
}

fn apply(app: &App, config: &mut Config, new: Reloaded) -> Result<(), String> {
    if new.api_keys.is_empty() && !config.api_keys.is_empty() {
        return Err(
            "there are no API keys any more, so that everyone could run code; restart the server if you mean it".into(),
        );
    }
    let keys = Keys::new(&new.api_keys)?;
    let changes = config.take(new);
    app.set_keys(keys);
    app.rate.set(config.rate_limit);
    app.service.set_limits(config.settings.defaults.clone(), config.settings.caps.clone());
    for change in &changes.applied {
        tracing::info!("reloaded: {change}");
    }
    if changes.applied.is_empty() {
        tracing::info!("reloaded: nothing has changed");
    }
    if !changes.pending.is_empty() {
        tracing::warn!("these settings have changed too, and need a restart: {}", changes.pending.join(", "));
    }
    Ok(())
}
