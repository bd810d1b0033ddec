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

/// The time for which a run waits for the next keeper.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait after a failed attempt to start a keeper: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether there is a keeper.
#[derive(Debug)]
pub(crate) struct KeeperWatch {
    current: watch::Sender<CurrentKeeper>,
}

#[derive(Debug, Clone, Copy)]
struct CurrentKeeper {
    is_up: bool,
    /// How many there were before.
    number: u64,
}

impl Default for KeeperWatch {
    fn default() -> Self {
        Self { current: watch::Sender::new(CurrentKeeper { is_up: true, number: 0 }) }
    }
}

impl KeeperWatch {
    /// Waits until there is a keeper, however long that takes.
    pub(crate) async fn wait(&self, service: &RunService) {
        self.wait_until_up(|| service.is_alive()).await;
    }

    /// Waits until there is a keeper. The kernel knows of the end of a keeper before the task that waits for it has run.
    async fn wait_until_up(&self, is_alive: impl FnOnce() -> bool) {
        let number = self.number();
        if !is_alive() {
            self.has_ended(number);
        }
        // The sender is right here.
        let _ = self.current.subscribe().wait_for(|keeper| keeper.is_up).await;
    }

    /// The number of the keeper of this moment.
    pub(crate) fn number(&self) -> u64 {
        self.current.borrow().number
    }

    /// Waits for a keeper after the one with this number, which was found to have ended, but not for long. The kernel may
    /// report the end of its connections before that of the process.
    pub(crate) async fn wait_for_next(&self, number: u64) {
        let mut keepers = self.current.subscribe();
        let _ = tokio::time::timeout(PATIENCE, keepers.wait_for(|keeper| keeper.is_up && keeper.number > number)).await;
    }

    /// Notes the end of the keeper with this number, unless there is another one by now.
    fn has_ended(&self, number: u64) {
        self.current.send_if_modified(|keeper| {
            let ended = keeper.is_up && keeper.number == number;
            keeper.is_up &= !ended;
            ended
        });
    }

    fn was_replaced(&self) {
        self.current.send_modify(|keeper| *keeper = CurrentKeeper { is_up: true, number: keeper.number + 1 });
    }

    /// Waits until there is a keeper, but not for long.
    pub(crate) async fn wait_briefly(&self, service: &RunService) -> Result<(), Problem> {
        self.wait_at_most(PATIENCE, || service.is_alive()).await
    }

    async fn wait_at_most(&self, patience: Duration, is_alive: impl FnOnce() -> bool) -> Result<(), Problem> {
        tokio::time::timeout(patience, self.wait_until_up(is_alive)).await.map_err(|_| {
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
        app.keeper.has_ended(app.keeper.number());
        tracing::error!(load = app.load(), "the keeper ended; its runs have failed, starting another keeper");
        if !replace(&app).await {
            tracing::error!("the keeper's launcher ended too; shutting down");
            app.fail("the keeper and its launcher ended; restart the server");
            return;
        }
        app.metrics.keeper_restart();
        app.keeper.was_replaced();
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
        let keeper = Arc::new(KeeperWatch::default());
        assert!(keeper.wait_at_most(PATIENCE, || true).await.is_ok());
        keeper.has_ended(0);
        let refused = keeper.wait_at_most(Duration::from_millis(1), || true).await.expect_err("there is none");
        assert_eq!(refused.code(), Code::Unavailable);
        let next = Arc::clone(&keeper);
        tokio::spawn(async move { next.was_replaced() });
        assert!(keeper.wait_at_most(PATIENCE, || true).await.is_ok());
    }

    #[tokio::test]
    async fn a_run_notices_the_end_of_a_keeper_before_the_watch_does() {
        let keeper = KeeperWatch::default();
        assert!(keeper.wait_at_most(Duration::from_millis(1), || false).await.is_err());
        keeper.was_replaced();
        assert!(keeper.wait_at_most(PATIENCE, || true).await.is_ok());
        let replaced_meanwhile = || {
            keeper.was_replaced();
            false
        };
        assert!(keeper.wait_at_most(PATIENCE, replaced_meanwhile).await.is_ok());
    }

    #[tokio::test]
    async fn a_failed_attempt_waits_for_a_keeper_that_it_has_not_seen() {
        let keeper = KeeperWatch::default();
        let seen = keeper.number();
        let waits = async |keeper: &KeeperWatch| {
            tokio::time::timeout(Duration::from_millis(10), keeper.wait_for_next(seen)).await.is_err()
        };
        assert!(waits(&keeper).await, "its end was not noticed yet");
        keeper.has_ended(seen);
        assert!(waits(&keeper).await, "it was not replaced yet");
        keeper.was_replaced();
        assert!(!waits(&keeper).await);
    }
}
