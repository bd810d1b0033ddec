//! Watches the keeper process, and replaces it if it ends.
//!
//! The kernel reports the end of the process, so that it is noticed at once and costs nothing until then. While there is no
//! keeper, the server is not ready, takes no jobs, and lets new runs wait for a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox_base::wait::is_readable;
use sandbox_executor::RunService;
use tokio::sync::{oneshot, watch};

use crate::problem::{Code, Problem};
use crate::state::App;

/// How long a run waits for the next keeper.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait after a failed attempt to start a keeper: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether there is a keeper.
#[derive(Debug)]
pub(crate) struct KeeperWatch {
    is_up: watch::Sender<bool>,
}

impl Default for KeeperWatch {
    fn default() -> Self {
        Self { is_up: watch::Sender::new(true) }
    }
}

impl KeeperWatch {
    /// Waits until there is a keeper, however long that takes.
    pub(crate) async fn wait(&self) {
        // The sender is right here.
        let _ = self.is_up.subscribe().wait_for(|up| *up).await;
    }

    /// Waits until there is a keeper, but not for long.
    pub(crate) async fn wait_briefly(&self) -> Result<(), Problem> {
        self.wait_at_most(PATIENCE).await
    }

    async fn wait_at_most(&self, patience: Duration) -> Result<(), Problem> {
        tokio::time::timeout(patience, self.wait()).await.map_err(|_| {
            Problem::new(Code::Unavailable, "the keeper has ended and is being replaced; try again").retry_after(2)
        })
    }
}

/// Replaces every keeper that ends, as long as the server runs. Returns if none can be started any more.
pub(crate) async fn watch(app: Arc<App>) {
    loop {
        if let Err(error) = wait_for_end(&app.service).await {
            tracing::error!(%error, "cannot watch the keeper");
            tokio::time::sleep(LONGEST_PAUSE).await;
            continue;
        }
        let noticed = Instant::now();
        app.keeper.is_up.send_replace(false);
        tracing::error!(load = app.load(), "the keeper ended; its runs have failed, starting another keeper");
        if !replace(&app).await {
            tracing::error!("the keeper's launcher ended too; shutting down");
            app.fail("the keeper and its launcher ended; restart the server");
            return;
        }
        app.metrics.keeper_restart();
        app.keeper.is_up.send_replace(true);
        let ms = u64::try_from(noticed.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(ms, "started another keeper");
    }
}

/// Waits until the keeper process of this moment has ended. A thread does, because the runtime waits for its own threads
/// when the server ends.
async fn wait_for_end(service: &RunService) -> std::io::Result<()> {
    const HOUR: Duration = Duration::from_secs(3600);
    let notice = service.keeper_end_notice()?;
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new().name("keeper-watch".to_owned()).spawn(move || {
        while !is_readable(&[&notice], HOUR) {}
        let _ = sender.send(());
    })?;
    ended.await.map_err(std::io::Error::other)
}

/// Starts a keeper, with exponential back-off. False if that is not possible any more.
async fn replace(app: &Arc<App>) -> bool {
    let mut pause = FIRST_PAUSE;
    loop {
        let own = Arc::clone(app);
        let replaced = tokio::task::spawn_blocking(move || own.service.replace_keeper()).await;
        match replaced {
            Ok(Ok(())) => return true,
            Ok(Err(failure)) => tracing::error!(%failure, "cannot replace the keeper"),
            Err(error) => tracing::error!(%error, "cannot replace the keeper"),
        }
        if !app.service.can_replace_keeper() {
            return false;
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_waits_for_the_next_keeper_but_not_for_ever() {
        let keeper = KeeperWatch::default();
        assert!(keeper.wait_briefly().await.is_ok());
        keeper.is_up.send_replace(false);
        let refused = keeper.wait_at_most(Duration::from_millis(1)).await.expect_err("there is none");
        assert_eq!(refused.code(), Code::Unavailable);
        let sender = keeper.is_up.clone();
        tokio::spawn(async move { sender.send_replace(true) });
        assert!(keeper.wait_briefly().await.is_ok());
    }
}
